"""Which pool may open a server now, and what must give way for it: facts in, actions out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

EVICTED_FOR_DATABASE: Final = "evicted for max_db_connections"
EVICTED_FOR_USER: Final = "evicted for max_user_connections"
#: A pool without any server may take one from a pool of equal weight after this wait.
ROTATE_AFTER_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """How a pool stands. `servers` counts those of every state, attempts under way included."""

    pool: int
    database: str
    user: str
    size: int = 0  # 0 = unlimited
    reserve_size: int = 0
    servers: int = 0
    connecting: int = 0
    returning: int = 0  # being reset or checked: each will serve somebody soon
    waiting: int = 0  # clients in line; one more if logged-in clients wait for the welcome
    oldest_wait_s: float = 0.0
    idle_since_s: float | None = None  # of the longest idle server that may be evicted
    welcome: bool = True
    failed_at_s: float | None = None  # when the last attempt failed, None if it did not
    paused: bool = False


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """Settings that bound growth; a database or user that is not listed has no limit."""

    parallel: int = 4
    login_retry_s: float = 15.0
    reserve_timeout_s: float = 5.0
    per_database: Mapping[str, int] = field(default_factory=dict)
    per_user: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Open:
    """Open a server; `reserve` if it is beyond pool_size."""

    pool: int
    reserve: bool = False


@dataclass(frozen=True, slots=True)
class Evict:
    """Close the longest idle server of `pool`, for another pool."""

    pool: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Close one busy server of `pool` when it is released, because another pool has less and waits."""

    pool: int
    reason: str


Action = Open | Evict | Reclaim


class _Round:
    """The state of one decision: what was already given away."""

    def __init__(
        self,
        pools: Sequence[PoolFacts],
        limits: GrowthLimits,
        database_servers: Mapping[str, int],
        user_servers: Mapping[str, int],
    ) -> None:
        self.pools = pools
        self.limits = limits
        self.opened: Counter[int] = Counter()
        self.evicted: Counter[int] = Counter()
        self.reclaimed: set[int] = set()
        self.database_servers = Counter(database_servers)
        self.user_servers = Counter(user_servers)
        self.actions: list[Action] = []

    def open(self, facts: PoolFacts, reserve: bool) -> None:
        self.opened[facts.pool] += 1
        self.database_servers[facts.database] += 1
        self.user_servers[facts.user] += 1
        self.actions.append(Open(facts.pool, reserve))

    def room(self, facts: PoolFacts) -> bool | None:
        """Whether the pool's own limit has room: False = yes, True = from the reserve, None = no."""
        servers = facts.servers + self.opened[facts.pool]
        if facts.size == 0 or servers < facts.size:
            return False
        if not facts.welcome and servers == facts.size and facts.connecting + self.opened[facts.pool] == 0:
            return False
        timeout_s = self.limits.reserve_timeout_s
        if timeout_s > 0 and facts.oldest_wait_s >= timeout_s and servers < facts.size + facts.reserve_size:
            return True
        return None

    def over(self, facts: PoolFacts) -> list[tuple[str, bool]]:
        """The shared limits that are reached: (reason, whether it is the database's)."""
        full: list[tuple[str, bool]] = []
        limit = self.limits.per_database.get(facts.database, 0)
        if limit and self.database_servers[facts.database] >= limit:
            full.append((EVICTED_FOR_DATABASE, True))
        limit = self.limits.per_user.get(facts.user, 0)
        if limit and self.user_servers[facts.user] >= limit:
            full.append((EVICTED_FOR_USER, False))
        return full

    def make_room(self, facts: PoolFacts) -> bool:
        """Evict until no shared limit is in the way; False if that is not possible now."""
        for reason, by_database in self.over(facts):
            # An eviction for the database may have helped the user too.
            if all(reason != still for still, _ in self.over(facts)):
                continue
            rivals = [p for p in self.pools if (p.database == facts.database if by_database else p.user == facts.user)]
            victim = self._longest_idle(rivals)
            if victim is None:
                self._reclaim(facts, rivals, reason)
                return False
            self.evicted[victim.pool] += 1
            self.database_servers[victim.database] -= 1
            self.user_servers[victim.user] -= 1
            self.actions.append(Evict(victim.pool, reason))
        return not self.over(facts)

    def _longest_idle(self, rivals: Sequence[PoolFacts]) -> PoolFacts | None:
        # Only the longest idle server of a pool is known, so each pool gives at most one in a round.
        idle = [p for p in rivals if p.idle_since_s is not None and not self.evicted[p.pool]]
        return min(idle, key=lambda p: p.idle_since_s or 0.0, default=None)

    def _reclaim(self, facts: PoolFacts, rivals: Sequence[PoolFacts], reason: str) -> None:
        """Ask for a busy server of the pool that has most, if that brings the pools nearer to each other."""
        mine = facts.servers + self.opened[facts.pool]
        donors = [p for p in rivals if p.pool != facts.pool and p.pool not in self.reclaimed and p.servers > 0]
        donor = max(donors, key=lambda p: p.servers, default=None)
        if donor is None:
            return
        starved = mine == 0 and facts.oldest_wait_s >= ROTATE_AFTER_S and facts.oldest_wait_s > donor.oldest_wait_s
        if donor.servers > mine + 1 or starved:
            self.reclaimed.add(donor.pool)
            self.actions.append(Reclaim(donor.pool, reason))


def _wanted(facts: PoolFacts, limits: GrowthLimits, now_s: float) -> int:
    """How many attempts may be begun for those who wait."""
    if facts.paused or facts.waiting == 0:
        return 0
    parallel = limits.parallel
    if facts.failed_at_s is not None:
        if now_s - facts.failed_at_s < limits.login_retry_s:
            return 0
        parallel = 1  # one probe, until a login succeeds again
    needed = facts.waiting - facts.connecting - facts.returning
    return max(0, min(needed, parallel - facts.connecting))


def decide(
    pools: Sequence[PoolFacts],
    limits: GrowthLimits,
    database_servers: Mapping[str, int],
    user_servers: Mapping[str, int],
    now_s: float,
) -> list[Action]:
    """What to do for those who wait. `pools` holds every pool that waits, and every pool that shares a limit with one.

    The pool whose head has waited longest gets the first slot, then each other, then each its second.
    """
    turn = _Round(pools, limits, database_servers, user_servers)
    hungry = [(facts, _wanted(facts, limits, now_s)) for facts in pools]
    queue = sorted((item for item in hungry if item[1]), key=lambda item: -item[0].oldest_wait_s)
    while queue:
        again: list[tuple[PoolFacts, int]] = []
        for facts, wanted in queue:
            reserve = turn.room(facts)
            if reserve is None or not turn.make_room(facts):
                continue
            turn.open(facts, reserve)
            if wanted > 1:
                again.append((facts, wanted - 1))
        queue = again
    return turn.actions


def refill(
    facts: PoolFacts,
    limits: GrowthLimits,
    min_size: int,
    database_servers: Mapping[str, int],
    user_servers: Mapping[str, int],
    now_s: float,
) -> int:
    """How many servers to open so that a pool reaches min_pool_size; never at another pool's cost."""
    if facts.paused or (facts.failed_at_s is not None and now_s - facts.failed_at_s < limits.login_retry_s):
        return 0
    parallel = 1 if facts.failed_at_s is not None else limits.parallel
    count = min(min_size - facts.servers, parallel - facts.connecting)
    if facts.size:
        count = min(count, facts.size - facts.servers)
    limit = limits.per_database.get(facts.database, 0)
    if limit:
        count = min(count, limit - database_servers.get(facts.database, 0))
    limit = limits.per_user.get(facts.user, 0)
    if limit:
        count = min(count, limit - user_servers.get(facts.user, 0))
    return max(0, count)
