"""Hosts: turns, the dead and the unfit, sessions as libpq tells them apart, zones and their serials."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.model import SessionAttributes
from pgshoal.policy.hosts import (
    BAD,
    GOOD,
    SECOND,
    Health,
    Session,
    Turns,
    best,
    fits,
    serial_grew,
    session_of,
    zone_of,
)

A, B = ("10.0.0.1", 5432), ("10.0.0.2", 5432)
RETRY_US = 15_000_000
PRIMARY, STANDBY, READ_ONLY = Session(False, False), Session(True, True), Session(False, True)


def test_turns_go_round_or_stay_until_a_failure() -> None:
    """round-robin goes on with every connection, disable only after a failure."""
    turns = Turns()
    assert [turns.pick(1, [GOOD] * 3, True, False) for _ in range(4)] == [0, 1, 2, 0]
    assert [turns.pick(2, [GOOD] * 2, False, failed) for failed in (False, False, True, False)] == [0, 0, 1, 1]


def test_each_pool_has_its_own_turn() -> None:
    """Another pool begins with the first host, and so does one that was forgotten."""
    turns = Turns()
    assert [turns.pick(pool, [GOOD] * 2, True, False) for pool in (1, 1, 2)] == [0, 1, 0]
    turns.forget(1)
    assert turns.pick(1, [GOOD] * 2, True, False) == 0


def test_dead_hosts_are_passed_over_in_both_orders() -> None:
    """The next good one takes the turn; disable stays with it when the first is back."""
    turns = Turns()
    assert [turns.pick(1, [GOOD, BAD, GOOD], True, False) for _ in range(4)] == [0, 2, 0, 2]
    assert [turns.pick(2, ranks, False, False) for ranks in ([BAD, GOOD], [GOOD, GOOD])] == [1, 1]


def test_when_all_are_dead_each_gets_its_turn() -> None:
    """Nobody is given up for ever."""
    turns = Turns()
    assert [turns.pick(1, [BAD, BAD], True, False) for _ in range(3)] == [0, 1, 0]
    assert [turns.pick(2, [BAD, BAD], False, True) for _ in range(3)] == [0, 1, 0]


def test_best_looks_from_where_it_is_told() -> None:
    """The first of the best, around the end of the list."""
    assert best([GOOD, BAD, GOOD], 1) == 2
    assert best([GOOD, SECOND, BAD], 2) == 0
    assert best([BAD, SECOND, BAD], 2) == 1


@given(
    st.lists(st.lists(st.sampled_from([GOOD, SECOND, BAD]), min_size=4, max_size=4), min_size=8, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_nothing_worse_is_ever_chosen(rounds: list[list[int]], round_robin: bool, failed: bool) -> None:
    """Whatever the turn is, the choice is among the best; and with equal hosts round-robin leaves none out."""
    turns = Turns()
    for ranks in rounds:
        assert ranks[turns.pick(1, ranks, round_robin, failed)] == min(ranks)
    assert {turns.pick(1, [GOOD] * 4, True, failed) for _ in range(4)} == {0, 1, 2, 3}


def test_a_failed_place_is_bad_for_the_retry_time() -> None:
    """After that it counts as good, so that somebody tries it."""
    health = Health()
    health.failed(A, 1, RETRY_US)
    assert [health.rank(A, "any", now) for now in (1, RETRY_US, RETRY_US + 1)] == [BAD, BAD, GOOD]
    assert health.rank(B, "any", 1) == GOOD


def test_one_attempt_at_a_time_where_the_last_one_failed() -> None:
    """Who tries a dead place again keeps others away from it, until it succeeds."""
    health = Health()
    health.failed(A, 1, RETRY_US)
    later = 2 * RETRY_US
    health.chosen(A, later, RETRY_US)
    assert health.rank(A, "any", later + 1) == BAD
    health.succeeded(A)
    assert health.rank(A, "any", later + 2) == GOOD
    health.chosen(A, later + 3, RETRY_US)
    assert health.rank(A, "any", later + 4) == GOOD


def test_unfit_places_are_passed_over_until_they_may_have_changed() -> None:
    """A standby is no primary for the retry time; for prefer-standby a primary is second best."""
    health = Health()
    health.learned(A, STANDBY, 1, RETRY_US)
    health.learned(B, PRIMARY, 1, RETRY_US)
    assert [health.rank(A, "primary", now) for now in (2, RETRY_US + 1)] == [BAD, GOOD]
    assert [health.rank(place, "prefer-standby", 2) for place in (A, B)] == [GOOD, SECOND]
    assert [health.rank(place, "any", 2) for place in (A, B)] == [GOOD, GOOD]


def test_places_that_are_long_gone_are_forgotten() -> None:
    """Names whose addresses change all the time do not fill the memory."""
    health = Health()
    for number in range(1000):
        health.failed((f"host{number}", 1), 1, RETRY_US)
    health.failed(A, 2 * RETRY_US, RETRY_US)
    assert len(health._known) == 1
    assert health.rank(A, "any", 2 * RETRY_US) == BAD


@pytest.mark.parametrize(
    ("wanted", "primary", "standby", "read_only"),
    [
        ("any", True, True, True),
        ("read-write", True, False, False),
        ("read-only", False, True, True),
        ("primary", True, False, True),
        ("standby", False, True, False),
        ("prefer-standby", False, True, False),
    ],
)
def test_what_fits(wanted: SessionAttributes, primary: bool, standby: bool, read_only: bool) -> None:
    """As in libpq: roles look at recovery, the others at whether a session can write."""
    assert wanted in get_args(SessionAttributes)
    assert [fits(session, wanted) for session in (PRIMARY, STANDBY, READ_ONLY)] == [primary, standby, read_only]


def test_sessions_are_known_from_what_new_servers_report() -> None:
    """in_hot_standby and default_transaction_read_only together; old servers have to be asked."""
    standby, read_only = ("in_hot_standby", "on"), ("default_transaction_read_only", "on")
    assert session_of([standby, ("default_transaction_read_only", "off")]) == STANDBY
    assert session_of([("in_hot_standby", "off"), read_only]) == READ_ONLY
    assert session_of([("in_hot_standby", "off"), ("default_transaction_read_only", "off")]) == PRIMARY
    assert session_of([standby]) is None
    assert session_of([("server_version", "13.1")]) is None


def test_zones() -> None:
    """The zone is what follows the first dot; a plain name has none."""
    assert [zone_of(host) for host in ("db.example.com", "DB.Example.com.", "db", "db.")] == [
        "example.com",
        "example.com",
        "",
        "",
    ]


def test_serials_grow_around_their_end() -> None:
    """A smaller serial is an older one, unless it has wrapped."""
    assert [serial_grew(old, new) for old, new in ((7, 8), (7, 7), (8, 7), (2**32 - 1, 3))] == [
        True,
        False,
        False,
        True,
    ]
