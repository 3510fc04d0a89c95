"""How a limit is shared: who may take a slot, and who gives one back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.policy.budget import (
    KEEP_IDLE_US,
    ROTATE_AFTER_US,
    SLICE_US,
    Cell,
    gives_way,
    may_take,
    share,
    static_limit,
)

NOW = 10_000_000


def holder(seat: int, used: int, number: int | None = None, took_us: int = 1) -> Cell:
    """A seat that holds slots and wants no more."""
    return Cell(seat, used, 0, 0, True, seat if number is None else number, took_us)


def waiter(seat: int, used: int, waited_us: int, waiting: int = 1, number: int | None = None) -> Cell:
    """A seat whose oldest client has waited so long."""
    return Cell(seat, used, waiting, NOW - waited_us, True, seat if number is None else number, 1)


def test_shares_never_exceed_the_limit() -> None:
    """A share is the limit divided by the workers, rounded down."""
    assert [share(limit, 4) for limit in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


@given(limit=st.integers(1, 200), workers=st.integers(1, 64))
def test_static_parts_add_up_to_the_limit(limit: int, workers: int) -> None:
    """No slot is lost to rounding, and the lowest numbers have the remainder."""
    parts = [static_limit(limit, workers, number) for number in range(workers)]
    assert parts == sorted(parts, reverse=True)
    if limit >= workers:
        assert sum(parts) == limit
        assert parts[0] - parts[-1] <= 1
    else:
        assert set(parts) == {limit}


def test_a_free_slot_goes_to_whoever_asks_if_nobody_waits() -> None:
    """Elastic: one worker may hold the whole limit, far beyond its share."""
    cells = [waiter(0, 7, 0), holder(1, 0)]
    assert may_take(cells, 0, 8, 4, NOW)
    assert not may_take([waiter(0, 8, 0)], 0, 8, 4, NOW)


def test_no_limit_refuses_nobody() -> None:
    """Limit 0 only counts."""
    assert may_take([holder(0, 10**6)], 0, 0, 4, NOW)


def test_below_its_share_comes_first_however_short_its_wait() -> None:
    """The guarantee: the next slot is for the seat that lacks one of its share."""
    cells = [waiter(0, 5, 900_000), waiter(1, 1, 0), holder(2, 1)]
    assert not may_take(cells, 0, 8, 4, NOW)
    assert may_take(cells, 1, 8, 4, NOW)


def test_among_equals_the_longest_wait_comes_first() -> None:
    """Beyond the shares it is one queue for the whole fleet."""
    cells = [waiter(0, 3, 5_000), waiter(1, 3, 6_000), holder(2, 1)]
    assert not may_take(cells, 0, 8, 4, NOW)
    assert may_take(cells, 1, 8, 4, NOW)


def test_a_second_free_slot_does_not_wait_for_the_first() -> None:
    """Who comes first claims what it lacks to its share, or one slot; more than that is free for all."""
    cells = [waiter(0, 2, 5_000), waiter(1, 2, 6_000, waiting=50)]
    assert not may_take(cells, 0, 5, 2, NOW)
    assert may_take(cells, 0, 6, 2, NOW)
    lacking = [waiter(0, 3, 5_000), waiter(1, 1, 0, waiting=50)]
    assert not may_take(lacking, 0, 6, 2, NOW)
    assert may_take(lacking, 0, 7, 2, NOW)


def test_for_nobody_in_particular_is_last() -> None:
    """min_pool_size does not go before anybody who waits, whatever the shares."""
    cells = [holder(0, 0), waiter(1, 5, 1)]
    assert not may_take(cells, 0, 6, 2, NOW)
    assert may_take([holder(0, 0), holder(1, 5)], 0, 6, 2, NOW)


def test_who_sleeps_is_not_waited_for() -> None:
    """A stopped process keeps what it has, but no place in the queue."""
    sleeper = Cell(1, 2, 5, NOW - 9_000_000, False, 1)
    assert may_take([waiter(0, 5, 0), sleeper], 0, 8, 4, NOW)
    assert not may_take([waiter(0, 6, 0), sleeper], 0, 8, 4, NOW)
    assert gives_way([holder(0, 6), sleeper], 0, 8, 4, NOW) == ""


def test_too_few_slots_for_all_go_round() -> None:
    """With fewer slots than workers, a seat without any comes before all once it has waited long enough."""
    early = [waiter(0, 1, 400_000), waiter(1, 0, ROTATE_AFTER_US - 1), holder(2, 1)]
    assert may_take(early, 0, 3, 4, NOW)
    late = [waiter(0, 1, 400_000), waiter(1, 0, ROTATE_AFTER_US), holder(2, 1)]
    assert not may_take(late, 0, 3, 4, NOW)
    assert may_take(late, 1, 3, 4, NOW)


def test_two_seats_of_one_number_have_one_share() -> None:
    """While a worker is replaced, its old and its new process together are entitled to no more than any other."""
    cells = [holder(0, 2, number=0), waiter(4, 2, 900_000, number=0), waiter(1, 3, 1_000, number=1)]
    assert may_take(cells, 1, 8, 2, NOW)
    assert not may_take(cells, 4, 8, 2, NOW)
    # The old one has it all: it gives to the new one as to a stranger.
    assert gives_way([holder(0, 4, number=0), waiter(4, 0, 0, number=0), holder(1, 4)], 0, 8, 2, NOW) == "busy"
    assert gives_way([holder(0, 4, number=0), waiter(4, 0, 0, number=0), holder(1, 4)], 1, 8, 2, NOW, 0, 0) == ""


def test_slots_of_the_dead_are_nobodys_share() -> None:
    """The new process of a number gets its share, although the backends of the old one still count."""
    dead = Cell(0, 2, 0, 0, False, 0)
    cells = [dead, waiter(4, 0, 0, number=0), waiter(1, 5, 900_000), holder(2, 0)]
    assert may_take(cells, 4, 8, 4, NOW)
    assert not may_take(cells, 1, 8, 4, NOW)


def test_busy_servers_are_given_for_shares_only() -> None:
    """Who has more than its share gives to who has less; nobody gives a busy one to who has its share."""
    assert gives_way([holder(0, 6), waiter(1, 1, 0), holder(2, 1)], 0, 8, 4, NOW, 0, 0) == "busy"
    assert gives_way([holder(0, 6), waiter(1, 2, 900_000)], 0, 8, 4, NOW, 0, 0) == ""
    assert gives_way([holder(0, 2), waiter(1, 1, 0), holder(2, 5)], 0, 8, 4, NOW, 0, 0) == ""


def test_those_with_most_give_first() -> None:
    """One waiter costs one server: all holders reckon alike who it is."""
    cells = [holder(0, 6), holder(1, 4), waiter(2, 1, 0), holder(3, 1)]
    assert [gives_way(cells, seat, 12, 4, NOW, 0, 0) for seat in (0, 1, 3)] == ["busy", "", ""]
    both = [holder(0, 5), holder(1, 5), waiter(2, 1, 0, waiting=9), holder(3, 1)]
    assert [gives_way(both, seat, 12, 4, NOW, 0, 0) for seat in (0, 1, 3)] == ["busy", "busy", ""]


def test_a_long_wait_is_everybodys() -> None:
    """If those who have most do not come to an end, whoever is above its share gives."""
    cells = [holder(0, 6), holder(1, 4), waiter(2, 1, 2 * ROTATE_AFTER_US), holder(3, 1)]
    assert [gives_way(cells, seat, 12, 4, NOW, 0, 0) for seat in (0, 1, 3)] == ["busy", "busy", ""]


def test_what_is_on_its_way_back_counts() -> None:
    """A holder that has begun to give enough gives no more."""
    cells = [holder(0, 7), waiter(1, 1, 0, waiting=1)]
    assert gives_way(cells, 0, 8, 2, NOW, leaving=0) == "busy"
    assert gives_way(cells, 0, 8, 2, NOW, leaving=1) == ""
    assert gives_way([holder(0, 1), waiter(1, 1, 0, waiting=5)], 0, 2, 2, NOW, leaving=1) == ""


def test_free_slots_are_not_given_again() -> None:
    """Nothing is closed for somebody who only has to take what is there."""
    assert gives_way([holder(0, 6), waiter(1, 1, 0, waiting=1)], 0, 8, 2, NOW) == ""
    assert gives_way([holder(0, 6), waiter(1, 1, 0, waiting=2)], 0, 8, 2, NOW) == "busy"


def test_an_idle_server_is_not_stranded() -> None:
    """Even a seat below its share gives what it does not use, to a seat far above its own."""
    cells = [holder(0, 1), waiter(1, 7, 0, waiting=9)]
    assert gives_way(cells, 0, 8, 2, NOW) == "idle"
    assert gives_way(cells, 0, 8, 2, NOW, idle_us=KEEP_IDLE_US) == "idle"


def test_a_server_that_was_just_used_is_kept() -> None:
    """Or the slot would be passed on after every transaction, with a new connection each time."""
    cells = [holder(0, 1), waiter(1, 7, 0, waiting=9)]
    assert gives_way(cells, 0, 8, 2, NOW, idle_us=KEEP_IDLE_US - 1) == ""


def test_a_single_slot_is_not_passed_on_at_once() -> None:
    """With fewer slots than workers, whoever got one has it for a while."""
    fresh = [holder(0, 1, took_us=NOW - SLICE_US + 1), waiter(1, 0, ROTATE_AFTER_US)]
    assert gives_way(fresh, 0, 1, 2, NOW, 0, 0) == ""
    used = [holder(0, 1, took_us=NOW - SLICE_US), waiter(1, 0, ROTATE_AFTER_US)]
    assert gives_way(used, 0, 1, 2, NOW, 0, 0) == "busy"
    unripe = [holder(0, 1), waiter(1, 0, ROTATE_AFTER_US - 1)]
    assert gives_way(unripe, 0, 1, 2, NOW, 0, 0) == ""


def test_of_several_single_slots_the_oldest_goes() -> None:
    """Who has had its slot longest gives it, so that the same seat is not asked every time."""
    cells = [holder(0, 1, took_us=NOW - 300_000), holder(1, 1, took_us=NOW - 500_000), waiter(2, 0, ROTATE_AFTER_US)]
    assert [gives_way(cells, seat, 2, 3, NOW, 0, 0) for seat in (0, 1)] == ["", "busy"]


def test_who_waits_longer_itself_gives_nothing() -> None:
    """A seat whose own clients come first keeps its idle servers for them."""
    cells = [waiter(0, 2, 5_000), waiter(1, 2, 4_000)]
    assert gives_way(cells, 0, 4, 2, NOW) == ""
    assert gives_way(cells, 1, 4, 2, NOW) == "idle"


def test_a_lowered_limit_is_reached_by_those_above_their_share() -> None:
    """After a reload, nobody has to wait for the surplus to go, and nobody takes until it is gone."""
    cells = [holder(0, 6), holder(1, 2)]
    assert [gives_way(cells, seat, 4, 2, NOW) for seat in (0, 1)] == ["idle", ""]
    assert gives_way(cells, 0, 4, 2, NOW, leaving=4) == ""
    assert not may_take([holder(0, 6), waiter(1, 0, 0)], 1, 4, 2, NOW)
    # Who waits needs one slot, and two must go before that is free.
    below = [holder(0, 5), waiter(1, 0, 0)]
    assert [gives_way(below, 0, 4, 2, NOW, leaving) for leaving in (0, 1, 2)] == ["busy", "busy", ""]


def test_nothing_held_or_no_limit_gives_nothing() -> None:
    """Who has nothing cannot give, and without a limit nobody has to."""
    assert gives_way([holder(0, 0), waiter(1, 0, 0)], 0, 1, 2, NOW) == ""
    assert gives_way([waiter(1, 0, 0)], 0, 1, 2, NOW) == ""
    assert gives_way([holder(0, 5), waiter(1, 0, 0)], 0, 0, 2, NOW) == ""


@st.composite
def fleets(draw: st.DrawFn) -> list[Cell]:
    """Any state a row can be in."""
    cells = []
    for seat in range(draw(st.integers(1, 6))):
        waiting = draw(st.integers(0, 4))
        since_us = NOW - draw(st.integers(0, 900_000)) if waiting else 0
        awake, number = draw(st.integers(0, 9)) > 0, draw(st.sampled_from((seat, seat, seat, 0)))
        cells.append(Cell(seat, draw(st.integers(0, 5)), waiting, since_us, awake, number, 1))
    return cells


@given(cells=fleets(), limit=st.integers(1, 20), workers=st.integers(1, 6))
def test_a_free_slot_has_somebody_who_may_take_it(cells: list[Cell], limit: int, workers: int) -> None:
    """No order of claims blocks everybody: if there is room and somebody awake waits, one of them may take."""
    hungry = [cell.seat for cell in cells if cell.awake and cell.waiting]
    allowed = [seat for seat in hungry if may_take(cells, seat, limit, workers, NOW)]
    room = limit - sum(cell.used for cell in cells)
    assert bool(allowed) == bool(hungry and room > 0)
    # And no more than fit: all that are allowed may act on it at once only one after another.
    assert len(allowed) <= max(room, 0)


@given(cells=fleets(), limit=st.integers(1, 20), workers=st.integers(1, 6))
def test_no_waiter_costs_more_busy_servers_than_it_lacks(cells: list[Cell], limit: int, workers: int) -> None:
    """All holders together give no more busy servers than are missing to the shares, and none below its own."""
    if any(cell.waiting and NOW - cell.since_us >= 2 * ROTATE_AFTER_US for cell in cells):
        return
    given_up = 0
    for cell in cells:
        if not cell.awake or cell.waiting:
            continue
        leaving = 0
        while gives_way(cells, cell.seat, limit, workers, NOW, leaving, 0) == "busy":
            leaving += 1
        assert cell.used - leaving >= min(
            cell.used, share(limit, workers) // sum(c.number == cell.number for c in cells)
        )
        given_up += leaving
    lacking = sum(max(share(limit, workers) - c.used, 1) for c in cells if c.awake and c.waiting)
    over = sum(cell.used for cell in cells) - limit
    assert given_up <= max(lacking + over, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_has_everything(workers: int) -> None:
    """A fleet of one shares with nobody."""
    assert share(5, workers) == 5
    assert static_limit(5, max(workers, 1), 0) == 5
