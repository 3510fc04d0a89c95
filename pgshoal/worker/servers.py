"""Servers from open to close: who may open one, what happens at release, and the accounts kept of them."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

from pgshoal.config import effective
from pgshoal.engine.contract import ConnId, SocketOptions
from pgshoal.errors import Refused, refuse
from pgshoal.fleet.ledger import LedgerFull
from pgshoal.policy import lifetimes
from pgshoal.wire import build
from pgshoal.worker import clients
from pgshoal.worker.escrow import at_work, ended_first
from pgshoal.worker.hosts import Hosts
from pgshoal.worker.log import place, socket_prefix
from pgshoal.worker.promises import Promises
from pgshoal.worker.records import Pool, Rows, Server, ServerState
from pgshoal.worker.resolver import endpoint
from pgshoal.worker.server_login import ServerLogin
from pgshoal.worker.server_queries import EMPTY_CHECK, ServerQuery, UsedServer

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

NOT_READY = "57P03"
UNRESOLVED = "server DNS lookup failed"


class Servers:
    """All server connections of the worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.by_conn: dict[ConnId, Server] = {}
        self.hosts = Hosts(worker)
        #: attempts whose host name is still being looked up
        self.resolving: Counter[int] = Counter()
        self.promises = Promises(worker)
        self.options = SocketOptions()
        self.read_settings()

    def read_settings(self) -> None:
        """Take what new connections need from the configuration."""
        s = self.worker.config.settings
        self.options = SocketOptions(
            s.tcp_keepalive, s.tcp_keepidle, s.tcp_keepintvl, s.tcp_keepcnt, s.tcp_user_timeout, s.tcp_socket_buffer
        )

    def connecting(self, pool: Pool) -> int:
        """Attempts under way."""
        return self.worker.pools.in_state(pool, ServerState.LOGIN) + self.resolving[pool.id]

    # -- opening

    def open(self, pool: Pool, reserve: bool = False, since_us: int = 0) -> bool:
        """Begin one connection, if the fleet has a slot for it; its name may have to be looked up first.

        `since_us`: when the oldest client came who waits for it; 0 for nobody.
        """
        if not self.worker.budget.take(pool, reserve, since_us):
            return False
        host = self.hosts.pick(pool)
        self.resolving[pool.id] += 1
        pool.database.server_connections += 1
        pool.user.server_connections += 1
        rows, begun_us = pool.rows, self.worker.engine.now_us()

        def found(addresses: list[str]) -> None:
            if not addresses:
                self._log_nameless(pool, begun_us)
            self._resolved(pool, rows, host, addresses)

        self.worker.resolver.find(host, found)
        return True

    def _log_nameless(self, pool: Pool, begun_us: int) -> None:
        """An attempt ends before it has a socket, so there is no number to show and no address."""
        if self.worker.config.settings.log_disconnections:
            lead = socket_prefix("S", 0, pool.database.name, pool.user.name, "(bad-af):0")
            age_s = (self.worker.engine.now_us() - begun_us) // 1_000_000
            self.worker.log.log(f"{lead}closing because: {UNRESOLVED} (age={age_s}s)")

    def _uncount(self, pool: Pool) -> None:
        pool.database.server_connections -= 1
        pool.user.server_connections -= 1

    def _unopened(self, pool: Pool, rows: Rows) -> None:
        self._uncount(pool)
        self.worker.budget.give(rows)
        self.worker.growth.freed()

    def _resolved(self, pool: Pool, rows: Rows, host: str, addresses: list[str]) -> None:
        current = self.worker.pools.by_id.get(pool.id) is pool
        if current:
            self.resolving[pool.id] -= 1
        if not current or not addresses or self.worker.pools.paused(pool):
            self._unopened(pool, rows)
            if current and not addresses:
                self.missed(pool, UNRESOLVED, self.hosts.unknown(pool, host))
            return
        engine, port = self.worker.engine, pool.database.config.port
        address = self.hosts.address(pool, host, addresses)
        target = endpoint(address, port)
        try:
            number = self.worker.next_number()
            conn = engine.connect(target, self.options)
        except (ValueError, LedgerFull) as error:  # such as an IPv6 scope this machine does not have
            self._unopened(pool, rows)
            self.worker.log.warning(f"{pool.database.name}/{pool.user.name} cannot connect to {host}: {error}")
            self.missed(pool, f"connect failed: {error}", self.hosts.unreachable(pool, address))
            return
        server = Server(
            conn,
            number,
            pool,
            ServerState.LOGIN,
            time.time(),
            engine.now_us(),
            address,
            port,
            target,
            rows=rows,
        )
        self.worker.escrow.begin(server)
        self.by_conn[conn] = pool.servers[conn] = server
        self.worker.handlers[conn] = ServerLogin(self.worker, server, host)

    def logged_in(self, server: Server, parameters: list[tuple[str, str]]) -> None:
        """The server is ready for its first query, if it is one as the entry wants it."""
        self.hosts.succeeded(server)
        self.hosts.check(server, parameters, lambda: self._accepted(server, parameters))

    def _accepted(self, server: Server, parameters: list[tuple[str, str]]) -> None:
        pool = server.pool
        pool.last_login_failed, pool.last_connect_failed_us, pool.last_error = False, 0, ""
        if server.close_needed:
            self.close(server, "connect string changed")
            return
        sql = pool.database.config.connect_query
        if not sql or (pool.stream is not None and pool.stream.kind == "physical"):  # which knows no SQL
            self.enroll(server, parameters)
            return
        server.state = ServerState.TESTED
        query: ServerQuery

        def done(error: str) -> None:
            if error:
                self.worker.log.error(f"S: error while executing exec_on_query: {error}")
            merged = dict(parameters) | query.parameters
            self.enroll(server, list(merged.items()))

        query = ServerQuery(self.worker, server, sql, "exec_on_connect query failed", done)

    def enroll(self, server: Server, parameters: list[tuple[str, str]]) -> None:
        """Give a fresh server to its pool, and the pool's first parameters to those who wait for them."""
        pool = server.pool
        self.worker.handlers.pop(server.conn, None)
        if pool.stream is not None:
            self.worker.replication.logged_in(server, parameters)
            return
        if self.worker.pools.paused(pool):
            self.close(server, lifetimes.PAUSED)
            return
        server.state = ServerState.POOLED
        self.worker.welcomes.told(pool, parameters)
        self.worker.engine.enroll(server.conn, pool.id, parameters)
        if self.promises.watched(pool):
            self.mark(server)
        self.worker.lookups.serve(pool)
        self.worker.growth.want(pool)

    # -- failing

    def failed(self, server: Server, reason: str, refused: Refused | None = None) -> None:
        """An attempt did not succeed. `refused`: a login refusal, for the clients if no server is left for them."""
        self.missed(server.pool, reason, self.hosts.failed(server, refused), refused)

    def missed(self, pool: Pool, reason: str, another: bool, refused: Refused | None = None) -> None:
        """An attempt brought no server; `another` host may do at once, else the pool waits for server_login_retry."""
        if another:
            self.worker.growth.want(pool)
            return
        pool.last_connect_failed_us = max(1, self.worker.engine.now_us())
        pool.last_error = str(refused) if refused is not None else reason
        if pool.stream is not None:
            self.worker.replication.failed(pool, refused)
            return
        if refused is not None:
            pool.last_login_failed = True
            if refused.sqlstate != NOT_READY and not self.worker.pools.connected(pool):
                clients.refuse_waiting(self.worker, pool, refused)
                self.worker.lookups.refuse_waiting(pool, refused)
        self.worker.growth.want(pool)

    def login_failed(self, server: Server, reason: str, refused: Refused | None = None) -> None:
        """As `failed`, for a server whose socket is still ours to close."""
        self.close(server, reason)
        self.failed(server, reason, refused)

    def refuse_starved(self, pool: Pool) -> None:
        """A pool whose last login failed and that has no server tells its clients so, until the next attempt is due.

        Then they wait for that attempt: if all were refused, nobody would be left for whom one is made.
        """
        retry_us = self.worker.config.settings.server_login_retry * 1_000_000
        due = self.worker.engine.now_us() - pool.last_connect_failed_us >= retry_us
        if pool.last_login_failed and not due and not self.worker.pools.connected(pool):
            refused = refuse("server_login_failing", reason=pool.last_error)
            for conn in self.worker.engine.waiting_clients(pool.id):
                client = self.worker.front.clients.get(conn)
                if client is not None:
                    clients.close(self.worker, client, refused)

    # -- closing

    def prefix(self, server: Server) -> str:
        """What stands before a server's log lines."""
        pool = server.pool
        unix = server.address.startswith(("/", "@"))
        where = f"unix:{server.port}" if unix else place(server.address, server.port)
        return socket_prefix("S", server.conn, pool.database.name, pool.user.name, where)

    def close(self, server: Server, reason: str) -> None:
        """Close a server in any state; a linked client is told the reason by the engine's FAULT."""
        engine = self.worker.engine
        busy = server.state in (ServerState.TESTED, ServerState.LOOKUP)
        with contextlib.suppress(KeyError):  # it died in this same wake; its CLOSED is still in the list
            polite = False
            if server.state not in (ServerState.LOGIN, ServerState.CANCEL):
                facts = engine.facts(server.conn)
                # A linked server may hold half a message of its client: a Terminate behind that would complete it.
                polite = facts.mode in ("dialogue", "idle", "held")
                busy = busy or (not polite and (facts.queue_length > 0 or facts.status != "I"))
            engine.close(server.conn, build.TERMINATE if polite else b"", reason)
        self._forget(server, reason)
        self.worker.escrow.bury(server, busy)

    def gone(self, server: Server, reason: str) -> None:
        """The engine says a server is gone."""
        self._forget(server, reason)
        if ended_first(reason, bool(server.tls)):
            self.worker.escrow.lost(server)
        else:
            self.worker.escrow.bury(server, at_work(reason))

    def _forget(self, server: Server, reason: str) -> None:
        if self.by_conn.pop(server.conn, None) is None:
            return
        pool = server.pool
        pool.servers.pop(server.conn, None)
        self.worker.handlers.pop(server.conn, None)
        self.worker.lookups.lost(server.conn)
        if not pool.servers:
            self.promises.forget(pool.id)
        self._uncount(pool)
        if self.worker.config.settings.log_disconnections:
            age_s = (self.worker.engine.now_us() - server.connect_us) // 1_000_000
            self.worker.log.log(f"{self.prefix(server)}closing because: {reason} (age={age_s}s)")
        self.worker.pools.settle(pool)
        self.worker.growth.want(pool)
        self.worker.pause.changed()
        if pool.stream is not None:
            self.worker.replication.lost(server, reason)

    def forget_pool(self, pool: Pool) -> None:
        """The pool is dropped."""
        self.hosts.forget(pool.id)
        self.resolving.pop(pool.id, None)
        self.worker.growth.forget(pool)
        self.promises.forget(pool.id)

    def lost_addresses(self, host: str, gone: set[str]) -> None:
        """A name no longer has some addresses: servers connected to those are replaced."""
        for server in list(self.by_conn.values()):
            hosts = effective.server_hosts(self.worker.config, server.pool.database.config)
            if hosts == (host,) and server.address in gone and server.state is not ServerState.CANCEL:
                self.dirty(server)

    # -- release, reset, check

    def mark(self, server: Server) -> None:
        """Make the next release of a busy server come to `returned`."""
        with contextlib.suppress(KeyError):  # it died in this same wake; its CLOSED is still in the list
            self.worker.engine.decide(server.conn, True)

    def take(self, server: Server) -> bool:
        """Take an idle server out of its pool; False if it is not idle, or has died in this same wake."""
        try:
            return server.state is ServerState.POOLED and self.worker.engine.take(server.conn)
        except KeyError:
            return False

    def dirty(self, server: Server) -> None:
        """Close a server as soon as nobody uses it."""
        server.close_needed = True
        if server.state is ServerState.LOGIN:
            self.close(server, "connect string changed")
        elif server.state is ServerState.STREAM:
            self.close(server, lifetimes.CHANGED)
        elif server.state is ServerState.POOLED:
            self.mark(server)

    def returned(self, conn: ConnId) -> None:
        """A release that must be looked at: close, clean, set aside, or park."""
        server = self.by_conn.get(conn)
        if server is None:
            return
        server.released_us = self.worker.engine.now_us()
        reason = self.unfit(server)
        if reason:
            self.close(server, reason)
        elif server.recheck:
            self.hosts.look(server, lambda: self._reset(server))
        else:
            self._reset(server)

    def _reset(self, server: Server) -> None:
        sql = self.worker.pools.reset_query(self.worker.pools.mode(server.pool))
        if sql:
            server.state = ServerState.TESTED
            ServerQuery(self.worker, server, sql, "reset query failed", lambda error: self.clean(server))
        else:
            self.clean(server)

    def released(self, server: Server) -> None:
        """An auth_query is answered: as `returned`, without a reset, because no client is ever there."""
        server.released_us = self.worker.engine.now_us()
        reason = self.unfit(server)
        if reason:
            self.close(server, reason)
        else:
            self.clean(server)

    def unfit(self, server: Server) -> str:
        """Why a server may not go back to its pool, or ""."""
        pool, pools, now_us = server.pool, self.worker.pools, self.worker.engine.now_us()
        limits = self.life_limits(pool)
        since_s = (now_us - pool.last_lifetime_kill_us) / 1e6 if pool.last_lifetime_kill_us else None
        if server.close_needed:
            return lifetimes.CLOSE_NEEDED
        if pools.paused(pool):
            return lifetimes.PAUSED
        if promised := self.promises.keep(pool):
            return promised
        if lifetimes.lifetime_over((now_us - server.connect_us) / 1e6, since_s, limits):
            pool.last_lifetime_kill_us = now_us
            return lifetimes.LIFETIME_OVER
        if self.worker.budget.surplus(pool) > 0:
            return lifetimes.TOO_MANY
        return ""

    def clean(self, server: Server) -> None:
        """Released and reset: to the pool, unless every use needs a check or somebody has paused meanwhile."""
        settings = self.worker.config.settings
        self.worker.handlers.pop(server.conn, None)
        if self.worker.pools.paused(server.pool) or server.close_needed:
            self.close(server, lifetimes.PAUSED if not server.close_needed else lifetimes.CLOSE_NEEDED)
        elif settings.server_check_delay <= 0 and settings.server_check_query:
            self.set_aside(server)
            self.worker.growth.want(server.pool)
        else:
            self.park(server)

    def park(self, server: Server) -> None:
        """Back to the pool's first waiter or its idle list."""
        server.state = ServerState.POOLED
        self.worker.engine.decide(server.conn, self.promises.watched(server.pool))
        self.worker.engine.park(server.conn)
        self.worker.lookups.serve(server.pool)
        self.worker.pause.changed()

    def set_aside(self, server: Server) -> None:
        """The server, in dialogue, needs a check before its next use."""
        server.state = ServerState.USED
        UsedServer(self.worker, server)

    def check(self, server: Server) -> None:
        """Find out whether a server that was set aside still answers."""
        sql = self.worker.config.settings.server_check_query
        server.state = ServerState.TESTED
        text = "" if sql == EMPTY_CHECK else sql
        with contextlib.suppress(KeyError):  # as in `mark`; its handler hears of it
            ServerQuery(self.worker, server, text, "test query failed", lambda error: self.checked(server))

    def checked(self, server: Server) -> None:
        """A server in dialogue has answered: to its pool, unless something else is in the way."""
        reason = self.unfit(server)
        if reason:
            self.close(server, reason)
        else:
            self.park(server)

    def life_limits(self, pool: Pool) -> lifetimes.LifeLimits:
        """The settings that bound the life of a pool's servers."""
        config, entry, user = self.worker.config, pool.database.config, pool.user.name
        settings = config.settings
        return lifetimes.LifeLimits(
            lifetime_s=effective.server_lifetime_s(config, entry),
            idle_timeout_s=settings.server_idle_timeout,
            check_delay_s=settings.server_check_delay,
            check=bool(settings.server_check_query),
            pool_size=effective.pool_size(config, entry, user),
            min_size=effective.min_pool_size(config, entry, user),
        )
