"""How long a server may live, and when it must be checked."""

from __future__ import annotations

import pytest

from pgshoal.policy.lifetimes import LifeLimits, ServerFacts, lifetime_over, review

LIMITS = LifeLimits(lifetime_s=100, idle_timeout_s=50, check_delay_s=30, pool_size=10)


def verdict(facts: ServerFacts, limits: LifeLimits = LIMITS, connected: int = 1, paused: bool = False) -> str:
    """What happens to one server; "" for nothing."""
    found = review([facts], connected, paused, None, limits)
    return found[0][1] if found else ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (ServerFacts(1, age_s=10, idle_s=10), ""),
        (ServerFacts(1, age_s=99, idle_s=30), ""),
        (ServerFacts(1, age_s=99, idle_s=31), "check"),
        (ServerFacts(1, age_s=99, idle_s=31, used=True), ""),
        (ServerFacts(1, age_s=99, idle_s=51), "server idle timeout"),
        (ServerFacts(1, age_s=100, idle_s=0), "server lifetime over"),
        (ServerFacts(1, age_s=1, idle_s=0, close_needed=True), "close_needed"),
    ],
)
def test_idle_servers(facts: ServerFacts, expected: str) -> None:
    """Age, idleness and the dirty mark each close; a long idle server needs a check, once."""
    assert verdict(facts) == expected


def test_pause_closes_idle_servers() -> None:
    """A paused pool keeps no idle server."""
    assert verdict(ServerFacts(1, 1, 1), paused=True) == "pause mode"


def test_min_pool_size_survives_the_idle_timeout() -> None:
    """server_idle_timeout goes down to min_pool_size and no further."""
    limits = LifeLimits(idle_timeout_s=50, min_size=2, check=False)
    servers = [ServerFacts(n, 60, 60) for n in (1, 2, 3)]
    assert review(servers, 3, False, None, limits) == [(1, "server idle timeout")]


def test_no_check_query_no_check() -> None:
    """An empty server_check_query switches checks off."""
    assert verdict(ServerFacts(1, 40, 40), LifeLimits(check=False)) == ""


def test_lifetimes_end_one_by_one() -> None:
    """Servers of one age do not all go at once: lifetime / pool_size lies between two of them."""
    servers = [ServerFacts(n, 200, 0) for n in (1, 2, 3)]
    assert review(servers, 3, False, None, LIMITS) == [(1, "server lifetime over")]
    assert not lifetime_over(200, 9.9, LIMITS)
    assert lifetime_over(200, 10.0, LIMITS)


def test_lifetime_zero_is_used_once() -> None:
    """With server_lifetime 0 each release closes; an idle server that was never used stays."""
    limits = LifeLimits(lifetime_s=0)
    assert lifetime_over(0, 0, limits)
    assert verdict(ServerFacts(1, 5, 5), limits) == ""
