"""Which pool may open a server, and what must give way: every rule as a small table of facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pgshoal.policy.growth import Evict, GrowthLimits, Open, PoolFacts, Reclaim, decide, refill

NO_LIMITS = GrowthLimits()
POOL = PoolFacts(pool=1, database="app", user="alice", size=20, waiting=1)


def decided(*pools: PoolFacts, limits: GrowthLimits = NO_LIMITS, now_s: float = 100.0) -> list[object]:
    """decide() with tallies that follow from the facts."""
    databases: Counter[str] = Counter()
    users: Counter[str] = Counter()
    for facts in pools:
        databases[facts.database] += facts.servers
        users[facts.user] += facts.servers
    return list(decide(pools, limits, databases, users, now_s))


def test_a_waiter_gets_a_connection() -> None:
    """One client waits, the pool is empty: one server is opened."""
    assert decided(POOL) == [Open(1)]


def test_nobody_waits() -> None:
    """Without demand nothing is opened."""
    assert decided(replace(POOL, waiting=0)) == []


def test_attempts_are_bounded() -> None:
    """A hundred waiters cause at most server_connect_parallel attempts at a time."""
    assert decided(replace(POOL, waiting=100)) == [Open(1)] * 4
    assert decided(replace(POOL, waiting=100, servers=3, connecting=3)) == [Open(1)]
    assert decided(replace(POOL, waiting=100, servers=4, connecting=4)) == []


def test_attempts_and_checks_under_way_count_as_supply() -> None:
    """Two waiters, one attempt and one check under way: nothing more is needed."""
    assert decided(replace(POOL, waiting=2, servers=2, connecting=1, returning=1)) == []


def test_pool_size_is_never_exceeded() -> None:
    """Attempts count against pool_size, so that a burst cannot overshoot."""
    assert decided(replace(POOL, size=2, waiting=9, servers=1)) == [Open(1)]
    assert decided(replace(POOL, size=2, waiting=9, servers=2)) == []


def test_pool_size_zero_is_unlimited() -> None:
    """pool_size 0 means no limit."""
    assert decided(replace(POOL, size=0, servers=500)) == [Open(1)]


def test_paused_pools_do_not_grow() -> None:
    """PAUSE stops new connections whoever waits."""
    assert decided(replace(POOL, paused=True, welcome=False)) == []


def test_a_pool_without_welcome_may_open_one_above_its_size() -> None:
    """After RECONNECT all servers may be busy; new logins still get their first answer."""
    full = replace(POOL, size=2, servers=2, welcome=False)
    assert decided(full) == [Open(1)]
    assert decided(replace(full, servers=3, connecting=1)) == []


@pytest.mark.parametrize(
    ("wait_s", "servers", "expected"),
    [(4.9, 2, []), (5.0, 2, [Open(1, reserve=True)]), (60.0, 3, [])],
    ids=["too early", "after the timeout", "reserve used up"],
)
def test_reserve_pool(wait_s: float, servers: int, expected: list[object]) -> None:
    """The reserve opens when the head of the line has waited reserve_pool_timeout."""
    assert decided(replace(POOL, size=2, servers=servers, reserve_size=1, oldest_wait_s=wait_s)) == expected


def test_reserve_timeout_zero_disables_the_reserve() -> None:
    """reserve_pool_timeout 0 means no reserve."""
    facts = replace(POOL, size=1, servers=1, reserve_size=5, oldest_wait_s=99.0)
    assert decided(facts, limits=GrowthLimits(reserve_timeout_s=0)) == []


def test_login_retry() -> None:
    """After a failure nothing is tried for server_login_retry, then one attempt at a time."""
    failed = replace(POOL, waiting=10, failed_at_s=90.0)
    assert decided(failed, now_s=104.9) == []
    assert decided(failed, now_s=105.0) == [Open(1)]
    assert decided(replace(failed, servers=1, connecting=1), now_s=105.0) == []


def test_database_limit_evicts_the_longest_idle_server() -> None:
    """max_db_connections full: the server idle longest in any pool of the database gives way."""
    limits = GrowthLimits(per_database={"app": 2})
    young = PoolFacts(2, "app", "bob", servers=1, idle_since_s=50.0)
    old = PoolFacts(3, "app", "carol", servers=1, idle_since_s=10.0)
    assert decided(POOL, young, old, limits=limits) == [Evict(3, "evicted for max_db_connections"), Open(1)]


def test_user_limit_evicts_across_databases() -> None:
    """max_user_connections full: a server of the same user in another database gives way."""
    limits = GrowthLimits(per_user={"alice": 1})
    other = PoolFacts(2, "other", "alice", servers=1, idle_since_s=50.0)
    stranger = PoolFacts(3, "app", "bob", servers=1, idle_since_s=1.0)
    assert decided(POOL, other, stranger, limits=limits) == [Evict(2, "evicted for max_user_connections"), Open(1)]


def test_one_eviction_may_serve_both_limits() -> None:
    """A server that counts against both full limits is evicted once."""
    limits = GrowthLimits(per_database={"app": 1}, per_user={"alice": 1})
    same = PoolFacts(2, "app", "alice", servers=1, idle_since_s=50.0)
    assert decided(POOL, same, limits=limits) == [Evict(2, "evicted for max_db_connections"), Open(1)]


def test_without_idle_servers_the_limit_holds() -> None:
    """All servers of the database are busy and shares are equal: nothing happens."""
    limits = GrowthLimits(per_database={"app": 2})
    mine, other = replace(POOL, servers=1), PoolFacts(2, "app", "bob", servers=1)
    assert decided(mine, other, limits=limits) == []


def test_the_greedy_pool_gives_back() -> None:
    """A pool that holds more than another that waits loses one busy server at its next release."""
    limits = GrowthLimits(per_database={"app": 10})
    greedy = PoolFacts(2, "app", "bob", servers=10, waiting=5, oldest_wait_s=9.0)
    assert decided(POOL, greedy, limits=limits) == [Reclaim(2, "evicted for max_db_connections")]


def test_shares_settle() -> None:
    """A difference of one is not worth a reconnect: otherwise pools would trade servers for ever."""
    limits = GrowthLimits(per_database={"app": 5})
    mine, other = replace(POOL, servers=2, oldest_wait_s=9), PoolFacts(2, "app", "bob", servers=3, waiting=5)
    assert decided(mine, other, limits=limits) == []


def test_an_empty_pool_gets_its_turn() -> None:
    """More pools than slots: one without any server takes over from one of equal weight after a short wait."""
    limits = GrowthLimits(per_database={"app": 1})
    holder = PoolFacts(2, "app", "bob", servers=1, waiting=5, oldest_wait_s=0.1)
    assert decided(replace(POOL, oldest_wait_s=0.2), holder, limits=limits) == []
    turn = [Reclaim(2, "evicted for max_db_connections")]
    assert decided(replace(POOL, oldest_wait_s=0.3), holder, limits=limits) == turn


def test_the_longest_wait_goes_first() -> None:
    """One slot, two hungry pools: the one whose head has waited longer gets it."""
    limits = GrowthLimits(per_database={"app": 1})
    late = PoolFacts(2, "app", "bob", size=20, waiting=9, oldest_wait_s=1.0)
    assert decided(late, replace(POOL, oldest_wait_s=2.0), limits=limits)[0] == Open(1)


def test_slots_go_round() -> None:
    """Three slots, two hungry pools: each gets one before anyone gets a second."""
    limits = GrowthLimits(per_database={"app": 3})
    first, second = replace(POOL, waiting=9, oldest_wait_s=2.0), PoolFacts(2, "app", "bob", waiting=9)
    assert decided(first, second, limits=limits) == [Open(1), Open(2), Open(1)]


def test_refill_fills_to_the_minimum_only() -> None:
    """min_pool_size is filled in bounded steps, below pool_size, and not for a paused pool."""
    tallies: tuple[dict[str, int], dict[str, int]] = {"app": 0}, {}
    facts = replace(POOL, waiting=0)
    assert refill(facts, GrowthLimits(), 3, *tallies, 0.0) == 3
    assert refill(facts, GrowthLimits(), 9, *tallies, 0.0) == 4
    assert refill(replace(facts, size=2), GrowthLimits(), 3, *tallies, 0.0) == 2
    assert refill(replace(facts, servers=3), GrowthLimits(), 3, *tallies, 0.0) == 0
    assert refill(replace(facts, paused=True), GrowthLimits(), 3, *tallies, 0.0) == 0


def test_refill_never_evicts_and_waits_after_failure() -> None:
    """The database's limit and server_login_retry bound the refill."""
    limits = GrowthLimits(per_database={"app": 2})
    facts = replace(POOL, waiting=0)
    assert refill(facts, limits, 5, {"app": 1}, {}, 0.0) == 1
    assert refill(facts, limits, 5, {"app": 2}, {}, 0.0) == 0
    failed = replace(facts, failed_at_s=0.0)
    assert refill(failed, GrowthLimits(), 5, {}, {}, 14.0) == 0
    assert refill(failed, GrowthLimits(), 5, {}, {}, 15.0) == 1
