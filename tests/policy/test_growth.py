"""Which pool may open a server, and what must give way: every rule as a small table of facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pgshoal.policy.growth import Evict, GrowthLimits, Open, PoolFacts, Reclaim, Shared, Wait, decide, refill, surplus

NO_LIMITS = GrowthLimits()
POOL = PoolFacts(pool=1, database="app", user="alice", size=20, waiting=1)


def decided(*pools: PoolFacts, limits: GrowthLimits = NO_LIMITS, now_s: float = 100.0) -> list[object]:
    """decide() with tallies that follow from the facts."""
    databases: Counter[str] = Counter()
    users: Counter[str] = Counter()
    for facts in pools:
        databases[facts.database] += facts.servers
        users[facts.user] += facts.servers
    return list(decide(pools, limits, Shared(databases, users), now_s))


def acts(*pools: PoolFacts, limits: GrowthLimits = NO_LIMITS, now_s: float = 100.0) -> list[object]:
    """As `decided`, without those that only wait."""
    return [action for action in decided(*pools, limits=limits, now_s=now_s) if not isinstance(action, Wait)]


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
    """Attempts count against pool_size, so that a burst cannot overshoot; who is left over waits for the pool."""
    assert decided(replace(POOL, size=2, waiting=9, servers=1)) == [Open(1), Wait(1)]
    assert decided(replace(POOL, size=2, waiting=9, servers=2)) == [Wait(1)]


def test_pool_size_zero_is_unlimited() -> None:
    """pool_size 0 means no limit."""
    assert decided(replace(POOL, size=0, servers=500)) == [Open(1)]


def test_paused_pools_do_not_grow() -> None:
    """PAUSE stops new connections whoever waits."""
    assert decided(replace(POOL, paused=True)) == []


@pytest.mark.parametrize(
    ("wait_s", "servers", "expected"),
    [(4.9, 2, []), (5.0, 2, [Open(1, reserve=True)]), (60.0, 3, [])],
    ids=["too early", "after the timeout", "reserve used up"],
)
def test_reserve_pool(wait_s: float, servers: int, expected: list[object]) -> None:
    """The reserve opens when the head of the line has waited reserve_pool_timeout."""
    assert acts(replace(POOL, size=2, servers=servers, reserve_size=1, oldest_wait_s=wait_s)) == expected


def test_reserve_timeout_zero_disables_the_reserve() -> None:
    """reserve_pool_timeout 0 means no reserve."""
    facts = replace(POOL, size=1, servers=1, reserve_size=5, oldest_wait_s=99.0)
    assert acts(facts, limits=GrowthLimits(reserve_timeout_s=0)) == []


def test_login_retry() -> None:
    """After a failure nothing is tried for server_login_retry, then one attempt at a time."""
    failed = replace(POOL, waiting=10, failed_at_s=90.0)
    assert decided(failed, now_s=104.9) == []
    assert decided(failed, now_s=105.0) == [Open(1)]
    assert decided(replace(failed, servers=1, connecting=1), now_s=105.0) == []


def test_retry_of_zero_still_has_a_floor() -> None:
    """server_login_retry 0 tries again soon, not at once: the next attempt would die in the same wake."""
    failed, at_once = replace(POOL, failed_at_s=100.0), GrowthLimits(login_retry_s=0.0)
    assert decided(failed, limits=at_once, now_s=100.04) == []
    assert decided(failed, limits=at_once, now_s=100.06) == [Open(1)]


def test_database_limit_evicts_the_longest_idle_server() -> None:
    """max_db_connections full: the server idle longest in any pool of the database gives way."""
    limits = GrowthLimits(per_database={"app": 2})
    young = PoolFacts(2, "app", "bob", servers=1, idle_since_s=50.0)
    old = PoolFacts(3, "app", "carol", servers=1, idle_since_s=10.0)
    assert acts(POOL, young, old, limits=limits) == [Evict(3, "evicted for max_db_connections")]


def test_user_limit_evicts_across_databases() -> None:
    """max_user_connections full: a server of the same user in another database gives way."""
    limits = GrowthLimits(per_user={"alice": 1})
    other = PoolFacts(2, "other", "alice", servers=1, idle_since_s=50.0)
    stranger = PoolFacts(3, "app", "bob", servers=1, idle_since_s=1.0)
    assert acts(POOL, other, stranger, limits=limits) == [Evict(2, "evicted for max_user_connections")]


def test_nothing_is_opened_before_the_evicted_server_is_gone() -> None:
    """The slot of a server that is being closed counts until its backend has ended, and serves one waiter only."""
    facts = [replace(POOL, waiting=2), PoolFacts(2, "app", "bob", servers=1, idle_since_s=50.0)]
    limits, used = GrowthLimits(per_database={"app": 2}), {"app": 2}
    one_goes = decide(facts, limits, Shared(used, coming_database={"app": 1}), 100.0)
    assert one_goes == [Evict(2, "evicted for max_db_connections")]
    assert decide(facts, limits, Shared(used, coming_database={"app": 2}), 100.0) == []
    assert decide(facts, limits, Shared({"app": 1}, coming_database={"app": 1}), 100.0) == [Open(1)]


def test_one_eviction_may_serve_both_limits() -> None:
    """A server that counts against both full limits is evicted once."""
    limits = GrowthLimits(per_database={"app": 1}, per_user={"alice": 1})
    same = PoolFacts(2, "app", "alice", servers=1, idle_since_s=50.0)
    assert decided(POOL, same, limits=limits) == [Evict(2, "evicted for max_db_connections")]


def test_who_finds_no_room_waits_for_other_workers() -> None:
    """With nobody to evict here, it is said once that a server must come from elsewhere."""
    limits = GrowthLimits(per_database={"app": 1}, per_user={"alice": 1})
    other = PoolFacts(2, "app", "alice", servers=1)
    assert decided(replace(POOL, waiting=9), other, limits=limits) == [Wait(1)]


def test_a_pool_that_is_full_evicts_nobody() -> None:
    """Another pool's server would not help a pool that has reached its own size."""
    limits = GrowthLimits(per_database={"app": 3})
    other = PoolFacts(2, "app", "bob", servers=1, idle_since_s=50.0)
    assert decided(replace(POOL, size=2, servers=2), other, limits=limits) == [Wait(1)]


def test_without_idle_servers_the_limit_holds() -> None:
    """All servers of the database are busy and shares are equal: nothing happens."""
    limits = GrowthLimits(per_database={"app": 2})
    mine, other = replace(POOL, servers=1, here=1), PoolFacts(2, "app", "bob", servers=1, here=1)
    assert acts(mine, other, limits=limits) == []


def test_the_greedy_pool_gives_back() -> None:
    """A pool that holds more than another that waits loses one busy server at its next release."""
    limits = GrowthLimits(per_database={"app": 10})
    greedy = PoolFacts(2, "app", "bob", servers=10, here=10, waiting=5, oldest_wait_s=9.0)
    assert acts(POOL, greedy, limits=limits) == [Reclaim(2, "evicted for max_db_connections")]


def test_only_who_has_a_server_here_can_give_one() -> None:
    """Pools are compared by what they hold in the fleet; the server comes from this worker."""
    limits = GrowthLimits(per_database={"app": 12})
    elsewhere = PoolFacts(2, "app", "bob", servers=8, here=0)
    near = PoolFacts(3, "app", "carol", servers=4, here=1)
    assert acts(POOL, elsewhere, near, limits=limits) == [Reclaim(3, "evicted for max_db_connections")]


def test_shares_settle() -> None:
    """A difference of one is not worth a reconnect: otherwise pools would trade servers for ever."""
    limits = GrowthLimits(per_database={"app": 5})
    mine = replace(POOL, servers=2, here=2, oldest_wait_s=9)
    other = PoolFacts(2, "app", "bob", servers=3, here=3, waiting=5)
    assert acts(mine, other, limits=limits) == []


def test_an_empty_pool_gets_its_turn() -> None:
    """More pools than slots: one without any server takes over from one of equal weight after a short wait."""
    limits = GrowthLimits(per_database={"app": 1})
    holder = PoolFacts(2, "app", "bob", servers=1, here=1, waiting=5, oldest_wait_s=0.1)
    assert acts(replace(POOL, oldest_wait_s=0.2), holder, limits=limits) == []
    turn = [Reclaim(2, "evicted for max_db_connections")]
    assert acts(replace(POOL, oldest_wait_s=0.3), holder, limits=limits) == turn


def test_a_pool_with_servers_elsewhere_gets_its_turn_too() -> None:
    """What it holds in other workers does not serve the clients it has here."""
    limits = GrowthLimits(per_database={"app": 4})
    holder = PoolFacts(2, "app", "bob", servers=1, here=1, waiting=5, oldest_wait_s=0.1)
    elsewhere = replace(POOL, servers=3, here=0, oldest_wait_s=0.3)
    assert acts(elsewhere, holder, limits=limits) == [Reclaim(2, "evicted for max_db_connections")]


def test_the_longest_wait_goes_first() -> None:
    """One slot, two hungry pools: the one whose head has waited longer gets it."""
    limits = GrowthLimits(per_database={"app": 1})
    late = PoolFacts(2, "app", "bob", size=20, waiting=9, oldest_wait_s=1.0)
    assert decided(late, replace(POOL, oldest_wait_s=2.0), limits=limits)[0] == Open(1)


def test_slots_go_round() -> None:
    """Three slots, two hungry pools: each gets one before anyone gets a second."""
    limits = GrowthLimits(per_database={"app": 3})
    first, second = replace(POOL, waiting=9, oldest_wait_s=2.0), PoolFacts(2, "app", "bob", waiting=9)
    assert acts(first, second, limits=limits) == [Open(1), Open(2), Open(1)]


def test_refill_fills_to_the_minimum_only() -> None:
    """min_pool_size is filled in bounded steps, below pool_size, and not for a paused pool."""
    facts, shared = replace(POOL, waiting=0), Shared({"app": 0})
    assert refill(facts, GrowthLimits(), 3, shared, 0.0) == 3
    assert refill(facts, GrowthLimits(), 9, shared, 0.0) == 4
    assert refill(replace(facts, size=2), GrowthLimits(), 3, shared, 0.0) == 2
    assert refill(replace(facts, servers=3), GrowthLimits(), 3, shared, 0.0) == 0
    assert refill(replace(facts, paused=True), GrowthLimits(), 3, shared, 0.0) == 0


def test_workers_share_the_refill() -> None:
    """Each worker opens its part of what the fleet's pool lacks, at least one."""
    facts = replace(POOL, waiting=0, servers=3)
    assert [refill(facts, GrowthLimits(), 9, Shared(), 0.0, workers) for workers in (1, 2, 4, 8)] == [4, 3, 2, 1]


def test_refill_never_evicts_and_waits_after_failure() -> None:
    """The database's limit and server_login_retry bound the refill."""
    limits = GrowthLimits(per_database={"app": 2})
    facts = replace(POOL, waiting=0)
    assert refill(facts, limits, 5, Shared({"app": 1}), 0.0) == 1
    assert refill(facts, limits, 5, Shared({"app": 2}), 0.0) == 0
    failed = replace(facts, failed_at_s=0.0)
    assert refill(failed, GrowthLimits(), 5, Shared(), 14.0) == 0
    assert refill(failed, GrowthLimits(), 5, Shared(), 15.0) == 1


@pytest.mark.parametrize(
    ("used", "limit", "here", "workers", "expected"),
    [(9, 0, 9, 1, 0), (3, 3, 3, 1, 0), (9, 4, 9, 1, 5), (9, 4, 1, 4, 0), (9, 4, 3, 4, 2), (5, 4, 5, 4, 1)],
)
def test_surplus(used: int, limit: int, here: int, workers: int, expected: int) -> None:
    """What is above a limit goes, from those who hold more than their share of it; 0 is no limit."""
    assert surplus(used, limit, here, workers) == expected


def test_who_is_promised_a_server_takes_no_other() -> None:
    """Servers on their way out are for those without any: a pool that will get one does not ask for a second's too."""
    limits = GrowthLimits(per_database={"app": 3})
    one = replace(POOL, waiting=5, servers=1, here=1, oldest_wait_s=0.5)
    two = replace(POOL, pool=2, user="bob", waiting=5, servers=2, dying=2, oldest_wait_s=1.0)
    three = replace(POOL, pool=3, user="carol", waiting=5, oldest_wait_s=1.0)
    shared = Shared({"app": 3}, {}, {"app": 2}, {})
    found = decide((one, two, three), limits, shared, 100.0)
    assert [action for action in found if not isinstance(action, Wait)] == []


def test_a_pool_is_not_asked_for_what_it_is_losing() -> None:
    """Two of its three servers are being closed for others: the last one stays."""
    limits = GrowthLimits(per_database={"app": 3})
    losing = replace(POOL, waiting=5, servers=3, here=1, dying=2, oldest_wait_s=0.1)
    having = replace(POOL, pool=2, user="bob", waiting=5, servers=1, here=1, connecting=1, oldest_wait_s=0.2)
    found = decide((losing, having), limits, Shared({"app": 3}, {}, {}, {}), 100.0)
    assert [action for action in found if not isinstance(action, Wait)] == []
