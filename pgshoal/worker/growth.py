"""Performs what policy/growth decides: opens, evicts and reclaims servers for pools that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pgshoal.engine.contract import PoolId
from pgshoal.errors import refuse
from pgshoal.policy.growth import (
    Evict,
    GrowthLimits,
    Open,
    PoolFacts,
    Reclaim,
    Shared,
    Wait,
    decide,
    refill,
)
from pgshoal.worker import clients
from pgshoal.worker.records import Pool, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker


class Growth:
    """Pools ask by `want`; all that asked in one wake are decided together at its end."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._hungry: dict[PoolId, Pool] = {}
        #: Pools that wait and cannot grow until something changes: STARVED of a busy pool must cost nothing.
        self._full: set[PoolId] = set()

    def want(self, pool: Pool) -> None:
        """Somebody waits for a server of this pool, or may."""
        self._set_full(pool.id, False)
        self._hungry[pool.id] = pool

    def _set_full(self, number: PoolId, full: bool) -> None:
        if (number in self._full) is full:
            return
        (self._full.add if full else self._full.discard)(number)
        with suppress(KeyError):  # the pool is gone
            self.worker.engine.hush_pool(number, full)

    def starved(self, number: PoolId) -> None:
        """STARVED."""
        if number in self._full:
            return
        pool = self.worker.pools.by_id.get(number)
        if pool is not None and pool.stream is not None:
            self.worker.replication.starved(pool)
        elif pool is not None:
            if self.worker.shutdown == "servers":
                clients.refuse_waiting(self.worker, pool, refuse("server_shutting_down"))
                return
            self.worker.servers.refuse_starved(pool)
            self._hungry[number] = pool

    def freed(self) -> bool:
        """A backend is gone, here or in another worker: those that wait may grow. True if there are such."""
        found = False
        for number in list(self._full):
            waiting = self.worker.pools.by_id.get(number)
            if waiting is None:
                self._set_full(number, False)
            elif self.worker.budget.may_grow(waiting):
                self.want(waiting)
                found = True
        return found

    def recheck(self) -> bool:
        """Pools that wait: perhaps nobody in them waits any more, or another pool here has an idle server for them.

        All others are looked at when a bell rings or the janitor comes: more often would cost too much.
        True if there are such pools.
        """
        found = False
        for number in list(self.worker.budget.waiting()):
            pool = self.worker.pools.by_id.get(number)
            if pool is not None and (not self._has_waiting(pool) or self._rival_rests(pool)):
                self.want(pool)
                found = True
        return found

    def _rival_rests(self, pool: Pool) -> bool:
        """Whether another pool of this worker has an idle server in one of the limits that pools share."""
        engine, budget, rows = self.worker.engine, self.worker.budget, pool.rows
        limits, own = budget.limits(pool), budget.ledger.own
        shared = [row for row, limit in ((rows.database, limits.database), (rows.user, limits.user)) if limit]
        mine = own(rows.pool)
        if all(own(row) <= mine for row in shared) or 0 < limits.pool <= budget.ledger.used(rows.pool):
            return False
        for other in self.worker.pools.by_id.values():
            if other is not pool and any(row in other.rows for row in shared):
                counts = engine.pool_counts(other.id)
                if counts.sv_idle and not counts.cl_waiting:
                    return True
        return False

    def tick(self) -> None:
        """Time has passed: look again at every pool in which somebody waits, or is thought to."""
        for number in list(self._full):
            self._set_full(number, False)
        waiting = self.worker.budget.waiting()
        for pool in self.worker.pools.by_id.values():
            if pool.id in waiting or self._has_waiting(pool):
                self._hungry[pool.id] = pool

    def _has_waiting(self, pool: Pool) -> bool:
        return bool(
            pool.login_queue or self.worker.lookups.waiting(pool) or self.worker.engine.pool_counts(pool.id).cl_waiting
        )

    def forget(self, pool: Pool) -> None:
        """The pool is dropped."""
        self.worker.budget.forget(pool.id)
        self._hungry.pop(pool.id, None)
        self._full.discard(pool.id)  # never to be heard of again

    def run(self) -> None:
        """Decide for all that asked."""
        if not self._hungry:
            return
        hungry, self._hungry = self._hungry, {}
        chosen = self._with_rivals(hungry)
        limits = self._limits(chosen)
        facts = {pool.id: self.facts(pool) for pool in chosen}
        if not any(facts[number].waiting for number in hungry if number in facts):
            for number in hungry:
                self.worker.budget.settle(number)
            return
        now_s = self.worker.engine.now_us() / 1e6
        opened: Counter[PoolId] = Counter()
        blocked: set[PoolId] = set()
        for action in decide(list(facts.values()), limits, self._shared(chosen), now_s):
            if isinstance(action, Wait):
                blocked.add(action.pool)
                self.worker.replication.make_room(self.worker.pools.by_id[action.pool])
            elif isinstance(action, Open):
                if action.pool not in blocked and self._open(action, facts[action.pool]):
                    opened[action.pool] += 1
                else:
                    blocked.add(action.pool)  # there is room, but another worker comes first
            else:
                self._perform(action)
        self._settle(hungry, facts, opened, blocked)

    def _settle(
        self,
        hungry: Iterable[PoolId],
        facts: Mapping[PoolId, PoolFacts],
        opened: Mapping[PoolId, int],
        blocked: set[PoolId],
    ) -> None:
        """Say in the ledger who still waits, and remember who need not ask again until something changes."""
        budget, now_us = self.worker.budget, self.worker.engine.now_us()
        reserve_timeout_s = self.worker.config.settings.reserve_pool_timeout
        for number in {*hungry, *blocked}:
            pool, fact = self.worker.pools.by_id.get(number), facts.get(number)
            missing = 0 if fact is None else fact.waiting - fact.connecting - fact.returning - opened[number]
            if pool is None or fact is None or missing <= 0 or number not in blocked:
                budget.settle(number)
            else:
                reserve = 0 < reserve_timeout_s <= fact.oldest_wait_s
                budget.wait(pool, reserve, missing, _since_us(fact, now_us))
            if missing > 0:
                self._set_full(number, True)
        if budget.waiting():
            self.worker.giving.attend()

    def _limits(self, pools: Iterable[Pool]) -> GrowthLimits:
        settings, budget = self.worker.config.settings, self.worker.budget
        limits = [(pool, budget.limits(pool)) for pool in pools]
        return GrowthLimits(
            parallel=settings.server_connect_parallel,
            login_retry_s=settings.server_login_retry,
            reserve_timeout_s=settings.reserve_pool_timeout,
            per_database={pool.database.name: budget.part(each.database) for pool, each in limits if each.database},
            per_user={pool.user.name: budget.part(each.user) for pool, each in limits if each.user},
        )

    def _shared(self, pools: Iterable[Pool]) -> Shared:
        budget, escrow = self.worker.budget, self.worker.escrow
        databases: dict[str, tuple[int, int]] = {}
        users: dict[str, tuple[int, int]] = {}
        for pool in pools:
            rows, limits = pool.rows, budget.limits(pool)
            if limits.database and pool.database.name not in databases:
                databases[pool.database.name] = (
                    budget.count(rows.database, limits.database),
                    escrow.coming(rows.database),
                )
            if limits.user and pool.user.name not in users:
                users[pool.user.name] = budget.count(rows.user, limits.user), escrow.coming(rows.user)
        return Shared(
            {name: used for name, (used, _) in databases.items()},
            {name: used for name, (used, _) in users.items()},
            {name: coming for name, (_, coming) in databases.items()},
            {name: coming for name, (_, coming) in users.items()},
        )

    def _with_rivals(self, hungry: dict[PoolId, Pool]) -> list[Pool]:
        """The pools that ask and all that share a limit with them; few, however many pools there are."""
        known = self.worker.pools.by_id
        asking = [pool for number, pool in hungry.items() if number in known]
        limits = self._limits(asking)
        if not limits.per_database and not limits.per_user:
            return asking
        return asking + [
            pool
            for number, pool in known.items()
            if number not in hungry
            and pool.stream is None
            and (pool.database.name in limits.per_database or pool.user.name in limits.per_user)
        ]

    def facts(self, pool: Pool) -> PoolFacts:
        """How a pool stands, after its servers that were set aside have been put to the check its waiters need."""
        worker = self.worker
        counts = worker.engine.pool_counts(pool.id)
        returning = worker.pools.in_state(pool, ServerState.TESTED)
        paused = worker.pools.paused(pool)
        # A replication client that the engine knows has its server.
        waiting = counts.cl_waiting + worker.lookups.waiting(pool) if pool.stream is None else 0
        if not paused:
            returning += self._check_used(pool, waiting - returning)
        oldest_s = max(counts.oldest_wait_us, worker.lookups.oldest_wait_us(pool)) / 1e6
        if pool.login_queue:
            stood = worker.front.unwelcomed.get(next(iter(pool.login_queue)))
            if stood is not None:
                oldest_s = max(oldest_s, (worker.engine.now_us() - stood.since_us) / 1e6)
        idle_us: int | None = None
        if counts.sv_idle and not waiting:
            idle_us = worker.engine.idle_servers(pool.id)[0][1]
        elif not waiting:
            used = [s.released_us for s in pool.servers.values() if s.state is ServerState.USED]
            idle_us = min(used, default=None)
        budget, limits, row = worker.budget, worker.budget.limits(pool), pool.rows.pool
        whole = limits.with_reserve()
        counted = whole if _may_use_reserve(pool) else limits.pool
        size, servers = budget.part(counted), budget.count(row, counted)
        # A pool_size below the number of workers is not divided, but the sum with the reserve may be: the ledger will
        # then look at this worker's servers alone, so what it would grant is added to those of all.
        reserve_size = budget.part(whole) - budget.count(row, whole) + servers - size
        return PoolFacts(
            pool=pool.id,
            database=pool.database.name,
            user=pool.user.name,
            size=size,
            reserve_size=reserve_size,
            servers=servers,
            here=budget.ledger.own(row) - worker.escrow.dying(row),
            dying=worker.escrow.dying(row),
            connecting=worker.servers.connecting(pool) - worker.servers.hosts.doubtful(pool),
            returning=returning,
            waiting=waiting + (1 if pool.login_queue and pool.welcome is None else 0),
            oldest_wait_s=oldest_s,
            idle_since_s=None if idle_us is None else idle_us / 1e6,
            failed_at_s=pool.last_connect_failed_us / 1e6 if pool.last_connect_failed_us else None,
            paused=paused,
        )

    def _check_used(self, pool: Pool, wanted: int) -> int:
        started = 0
        for server in list(pool.servers.values()):
            if started >= wanted:
                break
            if server.state is ServerState.USED:
                self.worker.servers.check(server)
                started += 1
        return started

    def _open(self, action: Open, facts: PoolFacts) -> bool:
        pool = self.worker.pools.by_id[action.pool]
        since_us = _since_us(facts, self.worker.engine.now_us())
        if not self.worker.servers.open(pool, action.reserve or _may_use_reserve(pool), since_us):
            return False
        if action.reserve and not pool.reserve_logged:
            pool.reserve_logged = True
            self.worker.log.warning(f"{self._lead(pool)}taking connection from reserve_pool")
        return True

    def _lead(self, pool: Pool) -> str:
        """How a line begins that speaks of the client that has waited longest; of the pool, if a lookup waits."""
        for conn in (*pool.login_queue, *self.worker.engine.waiting_clients(pool.id)):
            client = self.worker.front.clients.get(conn)
            if client is not None:
                return clients.prefix(client)
        return f"{pool.database.name}/{pool.user.name} "

    def _perform(self, action: Evict | Reclaim) -> None:
        pool = self.worker.pools.by_id.get(action.pool)
        if pool is not None and isinstance(action, Evict):
            self._evict(pool, action)
        elif pool is not None:
            self._reclaim(pool, action)

    def _evict(self, pool: Pool, action: Evict) -> None:
        servers = self.worker.servers
        for conn, _ in self.worker.engine.idle_servers(pool.id):
            server = servers.by_conn.get(conn)
            if server is not None and self.worker.engine.take(conn):
                servers.close(server, action.reason)
                return
        for server in list(pool.servers.values()):
            if server.state is ServerState.USED:
                servers.close(server, action.reason)
                return

    def give_up(self, pool: Pool, reason: str) -> None:
        """A server of the pool makes room for a replication client: an idle one, else the next that is released."""
        counts = self.worker.engine.pool_counts(pool.id)
        if counts.sv_idle or self.worker.pools.in_state(pool, ServerState.USED):
            self._evict(pool, Evict(pool.id, reason))
        else:
            self._reclaim(pool, Reclaim(pool.id, reason))

    def _reclaim(self, pool: Pool, action: Evict | Reclaim) -> None:
        promises = self.worker.servers.promises
        if not promises.owed((pool,)):
            promises.make(pool, action.reason)

    def refill(self, pool: Pool, min_size: int) -> None:
        """Open what min_pool_size asks for."""
        now_s = self.worker.engine.now_us() / 1e6
        limits, shared = self._limits([pool]), self._shared([pool])
        for _ in range(refill(self.facts(pool), limits, min_size, shared, now_s, self.worker.fleet.workers)):
            if not self.worker.servers.open(pool):
                return


def _may_use_reserve(pool: Pool) -> bool:
    return pool.stream is not None and pool.stream.evicted


def _since_us(facts: PoolFacts, now_us: int) -> int:
    """When the oldest client came; never 0, which means nobody."""
    return max(1, now_us - round(facts.oldest_wait_s * 1e6))
