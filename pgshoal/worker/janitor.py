"""Three times per second: timeouts, ages, idle servers, minimum sizes, and how far a shutdown is."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.policy import lifetimes, timeouts
from pgshoal.worker import cancel, clients
from pgshoal.worker.records import Pool, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

PERIOD_S: Final = 1 / 3


class Janitor:
    """All maintenance that time asks for; one call of `tick` does all of it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def tick(self) -> None:
        """One round."""
        worker = self.worker
        now_us = worker.engine.now_us()
        worker.budget.ledger.beat(now_us)
        for conn, key in worker.engine.overdue(now_us):
            clients.overdue(worker, conn, key)
        clients.expire(worker, now_us)
        worker.lookups.expire(now_us)
        worker.escrow.expire(now_us)
        cancel.expire(worker, now_us)
        for pool in list(worker.pools.by_id.values()):
            if pool.servers:
                self._connect_timeouts(pool, now_us)
            if pool.stream is not None:
                continue  # neither ages nor is filled
            if pool.servers:
                self._review(pool, now_us)
            self._refill(pool)
        worker.growth.tick()
        worker.pools.expire(now_us)
        worker.admissions.expire()
        worker.stats.tick(now_us)
        worker.pause.changed()
        worker.pause.report()

    # -- servers

    def _connect_timeouts(self, pool: Pool, now_us: int) -> None:
        limit_s = self.worker.config.settings.server_connect_timeout
        begun = [(s.conn, s.connect_us / 1e6) for s in pool.servers.values() if s.state is ServerState.LOGIN]
        for conn in timeouts.expired(begun, limit_s, now_us / 1e6):
            self.worker.servers.login_failed(pool.servers[conn], "connect timeout")

    def _review(self, pool: Pool, now_us: int) -> None:
        """Idle servers and those set aside: close, or set aside for a check."""
        worker, servers = self.worker, self.worker.servers
        limits = servers.life_limits(pool)
        idle = [(conn, since) for conn, since in worker.engine.idle_servers(pool.id) if conn in pool.servers]
        used = [(s.conn, s.released_us) for s in pool.servers.values() if s.state is ServerState.USED]
        facts = [self._facts(pool, conn, since, now_us, used=False) for conn, since in idle]
        facts += [self._facts(pool, conn, since, now_us, used=True) for conn, since in used]
        since_s = (now_us - pool.last_lifetime_kill_us) / 1e6 if pool.last_lifetime_kill_us else None
        verdicts = lifetimes.review(facts, self._standing(pool), worker.pools.paused(pool), since_s, limits)
        extra = worker.budget.surplus(pool)
        doomed = {conn for conn, reason in verdicts if reason != lifetimes.CHECK}
        spare = [conn for conn, _ in [*used, *idle] if conn not in doomed][: max(0, extra - len(doomed))]
        verdicts = [v for v in verdicts if v[0] not in spare] + [(conn, lifetimes.TOO_MANY) for conn in spare]
        for conn, reason in verdicts:
            self._carry_out(pool, conn, reason, now_us)
        if extra > len(doomed) + len(spare):
            # Busy ones too, or a limit that was lowered would never be reached under steady load.
            for server in pool.servers.values():
                if server.state is ServerState.POOLED:
                    servers.mark(server)
        self._mark_old(pool, now_us, limits)
        if worker.config.settings.server_fast_close and worker.pools.mode(pool) == "session":
            self._fast_close(pool)

    def _standing(self, pool: Pool) -> int:
        """The logged-in servers of the pool in the whole fleet, as far as this worker knows."""
        worker, row = self.worker, pool.rows.pool
        here = worker.servers.connecting(pool) + worker.escrow.dying(row)
        return worker.budget.ledger.used(row) - here

    def _fast_close(self, pool: Pool) -> None:
        """server_fast_close: a server to be replaced waits for a pause in its session, not for its end."""
        worker = self.worker
        for server in list(pool.servers.values()):
            if server.close_needed and server.state is ServerState.POOLED:
                with suppress(KeyError):  # it died in this same round; its CLOSED is still to be read
                    facts = worker.engine.facts(server.conn)
                    if facts.mode == "linked" and facts.status == "I" and facts.queue_length == 0:
                        worker.servers.close(server, lifetimes.CHANGED)

    @staticmethod
    def _facts(pool: Pool, conn: int, since_us: int, now_us: int, used: bool) -> lifetimes.ServerFacts:
        server = pool.servers[conn]
        age_s, idle_s = (now_us - server.connect_us) / 1e6, (now_us - since_us) / 1e6
        return lifetimes.ServerFacts(conn, age_s, idle_s, server.close_needed, used)

    def _carry_out(self, pool: Pool, conn: int, reason: str, now_us: int) -> None:
        servers, server = self.worker.servers, pool.servers.get(conn)
        if server is None or (server.state is ServerState.POOLED and not servers.take(server)):
            return
        if reason == lifetimes.CHECK:
            server.released_us = now_us
            servers.set_aside(server)
            return
        if reason == lifetimes.LIFETIME_OVER:
            pool.last_lifetime_kill_us = now_us
        servers.close(server, reason)

    def _mark_old(self, pool: Pool, now_us: int, limits: lifetimes.LifeLimits) -> None:
        """A busy server that is too old is met at its release; under steady load it would never be seen idle."""
        since_s = (now_us - pool.last_lifetime_kill_us) / 1e6 if pool.last_lifetime_kill_us else None
        for server in pool.servers.values():
            age_s = (now_us - server.connect_us) / 1e6
            if server.state is ServerState.POOLED and lifetimes.lifetime_over(age_s, since_s, limits):
                self.worker.servers.mark(server)
                return

    def _refill(self, pool: Pool) -> None:
        worker = self.worker
        entry = pool.database.config
        least = effective.min_pool_size(worker.config, entry, pool.user.name)
        kept = bool(pool.clients) or entry.user == pool.user.name
        ending = worker.shutdown or worker.draining
        if least and kept and not ending and worker.budget.ledger.used(pool.rows.pool) < least:
            worker.growth.refill(pool, least)
