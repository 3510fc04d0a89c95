"""Performs what policy/growth decides: opens, evicts and reclaims servers for pools that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgshoal.config import effective
from pgshoal.engine.contract import PoolId
from pgshoal.errors import refuse
from pgshoal.policy.growth import Action, Evict, GrowthLimits, Open, PoolFacts, Reclaim, decide, refill
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
        self._full.discard(pool.id)
        self._hungry[pool.id] = pool

    def starved(self, number: PoolId) -> None:
        """STARVED."""
        if number in self._full:
            return
        pool = self.worker.pools.by_id.get(number)
        if pool is not None:
            if self.worker.shutdown == "servers":
                clients.refuse_waiting(self.worker, pool, refuse("server_shutting_down"))
                return
            self.worker.servers.refuse_starved(pool)
            self._hungry[number] = pool

    def freed(self, pool: Pool) -> None:
        """A server is gone: those that wait may grow."""
        for number in self._full:
            waiting = self.worker.pools.by_id.get(number)
            if waiting is not None:
                self._hungry[number] = waiting
        self._full.clear()
        self._hungry[pool.id] = pool

    def tick(self) -> None:
        """Time has passed: look again at every pool in which somebody waits."""
        self._full.clear()
        for pool in self.worker.pools.by_id.values():
            if (
                pool.login_queue
                or self.worker.lookups.waiting(pool)
                or self.worker.engine.pool_counts(pool.id).cl_waiting
            ):
                self._hungry[pool.id] = pool

    def forget(self, pool: Pool) -> None:
        """The pool is dropped."""
        self._hungry.pop(pool.id, None)
        self._full.discard(pool.id)

    def run(self) -> None:
        """Decide for all that asked."""
        if not self._hungry:
            return
        hungry, self._hungry = self._hungry, {}
        chosen = self._with_rivals(hungry)
        limits = self._limits(chosen)
        rivals = {pool.id: self.facts(pool) for pool in chosen}
        if not any(rivals[number].waiting for number in hungry if number in rivals):
            return
        now_s = self.worker.engine.now_us() / 1e6
        opened: Counter[PoolId] = Counter()
        for action in decide(list(rivals.values()), limits, *self._tallies(chosen), now_s):
            opened[action.pool] += isinstance(action, Open)
            self._perform(action)
        for number in hungry:
            facts = rivals.get(number)
            if facts is not None and facts.waiting - facts.connecting - facts.returning > opened[number]:
                self._full.add(number)

    def _limits(self, pools: Iterable[Pool]) -> GrowthLimits:
        config = self.worker.config
        settings = config.settings
        per_database = {p.database.name: effective.max_db_connections(config, p.database.config) for p in pools}
        per_user = {p.user.name: effective.max_user_connections(config, p.user.name) for p in pools}
        return GrowthLimits(
            parallel=settings.server_connect_parallel,
            login_retry_s=settings.server_login_retry,
            reserve_timeout_s=settings.reserve_pool_timeout,
            per_database={name: limit for name, limit in per_database.items() if limit},
            per_user={name: limit for name, limit in per_user.items() if limit},
        )

    @staticmethod
    def _tallies(pools: Iterable[Pool]) -> tuple[dict[str, int], dict[str, int]]:
        return (
            {p.database.name: p.database.server_connections for p in pools},
            {p.user.name: p.user.server_connections for p in pools},
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
            if number not in hungry and (pool.database.name in limits.per_database or pool.user.name in limits.per_user)
        ]

    def facts(self, pool: Pool) -> PoolFacts:
        """How a pool stands, after its servers that were set aside have been put to the check its waiters need."""
        worker = self.worker
        counts = worker.engine.pool_counts(pool.id)
        returning = worker.pools.in_state(pool, ServerState.TESTED)
        paused = worker.pools.paused(pool)
        waiting = counts.cl_waiting + worker.lookups.waiting(pool)
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
        config, entry, user = worker.config, pool.database.config, pool.user.name
        return PoolFacts(
            pool=pool.id,
            database=entry.name,
            user=user,
            size=effective.pool_size(config, entry, user),
            reserve_size=effective.reserve_pool_size(config, entry, user),
            servers=worker.servers.count(pool),
            connecting=worker.servers.connecting(pool),
            returning=returning,
            waiting=waiting + (1 if pool.login_queue and pool.welcome is None else 0),
            oldest_wait_s=oldest_s,
            idle_since_s=None if idle_us is None else idle_us / 1e6,
            welcome=pool.welcome is not None,
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

    def _perform(self, action: Action) -> None:
        pool = self.worker.pools.by_id.get(action.pool)
        if pool is None:
            return
        if isinstance(action, Open):
            if action.reserve and not pool.reserve_logged:
                pool.reserve_logged = True
                self.worker.log.warning(f"{pool.database.name}/{pool.user.name} taking connection from reserve_pool")
            self.worker.servers.open(pool)
        elif isinstance(action, Evict):
            self._evict(pool, action)
        else:
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

    def _reclaim(self, pool: Pool, action: Reclaim) -> None:
        servers = self.worker.servers
        if any(conn in servers.reclaimed for conn in pool.servers):
            return
        for server in pool.servers.values():
            if server.state is ServerState.POOLED and not server.cancels:
                servers.reclaimed[server.conn] = action.reason
                servers.mark(server)
                return

    def refill(self, pool: Pool, min_size: int) -> None:
        """Open what min_pool_size asks for."""
        now_s = self.worker.engine.now_us() / 1e6
        limits, tallies = self._limits([pool]), self._tallies([pool])
        for _ in range(refill(self.facts(pool), limits, min_size, *tallies, now_s)):
            self.worker.servers.open(pool)
