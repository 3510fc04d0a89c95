"""Which pool may open a server now, and what must give way for it: facts in, actions out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

EVICTED_FOR_DATABASE: Final = "evicted for max_db_connections"
EVICTED_FOR_USER: Final = "evicted for max_user_connections"
#: A pool without any server may take one from a pool of equal weight after this wait.
ROTATE_AFTER_S: Final = 0.3
#: After a failed attempt, however small server_login_retry is: a server that dies in its login must not be stormed.
RETRY_LEAST_S: Final = 0.05

#: The limits that pools share: max_db_connections, max_user_connections.
Bound = Literal["database", "user"]
_REASONS: Final[Mapping[Bound, str]] = {"database": EVICTED_FOR_DATABASE, "user": EVICTED_FOR_USER}


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """How a pool stands. `servers` counts those of the whole fleet in every state, attempts under way included."""

    pool: int
    database: str
    user: str
    size: int = 0  # 0 = unlimited
    reserve_size: int = 0
    servers: int = 0
    here: int = 0  # those of this worker, without those that are being closed
    dying: int = 0  # those of this worker that are being closed
    connecting: int = 0
    returning: int = 0  # being reset or checked: each will serve somebody soon
    waiting: int = 0  # clients in line; one more if logged-in clients wait for the welcome
    oldest_wait_s: float = 0.0
    idle_since_s: float | None = None  # of the longest idle server that may be evicted
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

    def retrying(self, facts: PoolFacts, now_s: float) -> bool:
        """Too early for another attempt."""
        least_s = max(self.login_retry_s, RETRY_LEAST_S)
        return facts.failed_at_s is not None and now_s - facts.failed_at_s < least_s


@dataclass(frozen=True, slots=True)
class Shared:
    """Servers that count against the limits of databases and users, and those of them that are being closed here."""

    database: Mapping[str, int] = field(default_factory=dict)
    user: Mapping[str, int] = field(default_factory=dict)
    coming_database: Mapping[str, int] = field(default_factory=dict)
    coming_user: Mapping[str, int] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Wait:
    """A limit is in the pool's way, and nothing here gives room: another worker must."""

    pool: int


Action = Open | Evict | Reclaim | Wait


class _Round:
    """The state of one decision: what was already given away."""

    def __init__(self, pools: Sequence[PoolFacts], limits: GrowthLimits, shared: Shared) -> None:
        self.pools = pools
        self.limits = limits
        self.opened: Counter[int] = Counter()
        #: what pools will open when a server is gone that is going already
        self.promised: Counter[int] = Counter()
        self.evicted: set[int] = set()
        self.reclaimed: set[int] = set()
        self.used: Mapping[Bound, Counter[str]] = {"database": Counter(shared.database), "user": Counter(shared.user)}
        self.coming: Mapping[Bound, Counter[str]] = {
            "database": Counter(shared.coming_database),
            "user": Counter(shared.coming_user),
        }
        self.actions: list[Action] = []

    def serve(self, facts: PoolFacts) -> bool:
        """One server for a pool, now or as soon as another one is gone; False if neither is in sight."""
        reserve = self.room(facts)
        if reserve is None:
            self.actions.append(Wait(facts.pool))
            return False
        full = self.full(facts)
        if full:
            if self.make_room(facts, full):
                self.promised[facts.pool] += 1
                return True
            self.actions.append(Wait(facts.pool))
            return False
        self.opened[facts.pool] += 1
        self.used["database"][facts.database] += 1
        self.used["user"][facts.user] += 1
        self.actions.append(Open(facts.pool, reserve))
        return True

    def room(self, facts: PoolFacts) -> bool | None:
        """Whether the pool's own limit has room: False = yes, True = from the reserve, None = no."""
        servers = facts.servers + self.opened[facts.pool]
        if facts.size == 0 or servers < facts.size:
            return False
        timeout_s = self.limits.reserve_timeout_s
        if timeout_s > 0 and facts.oldest_wait_s >= timeout_s and servers < facts.size + facts.reserve_size:
            return True
        return None

    def full(self, facts: PoolFacts) -> tuple[Bound, ...]:
        """The shared limits that are reached."""
        full: list[Bound] = []
        limit = self.limits.per_database.get(facts.database, 0)
        if limit and self.used["database"][facts.database] >= limit:
            full.append("database")
        limit = self.limits.per_user.get(facts.user, 0)
        if limit and self.used["user"][facts.user] >= limit:
            full.append("user")
        return tuple(full)

    def make_room(self, facts: PoolFacts, full: Sequence[Bound]) -> bool:
        """See to it that each full limit gets room: by a server that is going already, or by sending one away."""
        for bound in full:
            name = facts.database if bound == "database" else facts.user
            if self.coming[bound][name] <= 0 and not self._send_away(facts, bound):
                return False
            self.coming[bound][name] -= 1
        return True

    def _send_away(self, facts: PoolFacts, bound: Bound) -> bool:
        by_database, reason = bound == "database", _REASONS[bound]
        rivals = [p for p in self.pools if (p.database == facts.database if by_database else p.user == facts.user)]
        # Only the longest idle server of a pool is known, so each pool gives at most one in a round.
        idle = [p for p in rivals if p.idle_since_s is not None and p.pool not in self.evicted]
        victim = min(idle, key=lambda p: p.idle_since_s or 0.0, default=None)
        if victim is None:
            self._reclaim(facts, rivals, reason)
            return False
        self.evicted.add(victim.pool)
        self.coming["database"][victim.database] += 1
        self.coming["user"][victim.user] += 1
        self.actions.append(Evict(victim.pool, reason))
        return True

    def _reclaim(self, facts: PoolFacts, rivals: Sequence[PoolFacts], reason: str) -> None:
        """Ask for a busy server of the pool that has most, if that brings the pools nearer to each other."""
        # Who is about to get one has it; who is about to lose one has it no more. Else all would go on taking from each
        # other for as long as servers take to go.
        given = self.opened[facts.pool] + self.promised[facts.pool]
        mine, here = facts.servers - facts.dying + given, facts.here + given
        donors = [p for p in rivals if p.pool != facts.pool and p.pool not in self.reclaimed and p.here > 0]
        donor = max(donors, key=lambda p: p.servers - p.dying, default=None)
        if donor is None:
            return
        # Servers in other workers are no help to the clients of this one.
        starved = here == 0 and facts.oldest_wait_s >= ROTATE_AFTER_S and facts.oldest_wait_s > donor.oldest_wait_s
        if donor.servers - donor.dying > mine + 1 or starved:
            self.reclaimed.add(donor.pool)
            self.actions.append(Reclaim(donor.pool, reason))


def _wanted(facts: PoolFacts, limits: GrowthLimits, now_s: float) -> int:
    """How many attempts may be begun for those who wait."""
    if facts.paused or facts.waiting == 0 or limits.retrying(facts, now_s):
        return 0
    parallel = 1 if facts.failed_at_s is not None else limits.parallel  # one probe, until a login succeeds again
    needed = facts.waiting - facts.connecting - facts.returning
    return max(0, min(needed, parallel - facts.connecting))


def decide(pools: Sequence[PoolFacts], limits: GrowthLimits, shared: Shared, now_s: float) -> list[Action]:
    """What to do for those who wait. `pools` holds every pool that waits, and every pool that shares a limit with one.

    The pool whose head has waited longest gets the first slot, then each other, then each its second.
    A pool that is sent one of another pool's servers opens its own when that one is really gone, not before.
    """
    turn = _Round(pools, limits, shared)
    hungry = [(facts, _wanted(facts, limits, now_s)) for facts in pools]
    queue = sorted((item for item in hungry if item[1]), key=lambda item: -item[0].oldest_wait_s)
    while queue:
        queue = [(facts, wanted - 1) for facts, wanted in queue if turn.serve(facts) and wanted > 1]
    return turn.actions


def refill(
    facts: PoolFacts, limits: GrowthLimits, min_size: int, shared: Shared, now_s: float, workers: int = 1
) -> int:
    """How many servers to open here so that the fleet's pool reaches min_pool_size; never at another pool's cost."""
    if facts.paused or limits.retrying(facts, now_s):
        return 0
    parallel = 1 if facts.failed_at_s is not None else limits.parallel
    # Each worker does its part of what is missing, so that one does not do it all, nor all of them all of it.
    count = min(-(-(min_size - facts.servers) // workers), parallel - facts.connecting)
    if facts.size:
        count = min(count, facts.size - facts.servers)
    limit = limits.per_database.get(facts.database, 0)
    if limit:
        count = min(count, limit - shared.database.get(facts.database, 0))
    limit = limits.per_user.get(facts.user, 0)
    if limit:
        count = min(count, limit - shared.user.get(facts.user, 0))
    return max(0, count)


def surplus(used: int, limit: int, here: int, workers: int = 1) -> int:
    """How many unlinked servers to give up here after a limit was lowered: what is too much, down to our share."""
    return max(0, min(used - limit, here - limit // workers)) if limit else 0
