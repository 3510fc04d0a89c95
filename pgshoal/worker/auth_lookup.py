"""auth_query: users whose secret is not in auth_file are looked up, on server connections no client is ever given."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.config.model import DEFAULT_AUTH_QUERY, DatabaseConfig
from pgshoal.config.userlist import classify
from pgshoal.engine.contract import ConnId, PoolId
from pgshoal.errors import Refused, refuse
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.policy.lookup import Answer, Broken, Row, request
from pgshoal.worker.handler import Handler
from pgshoal.worker.lookup_cache import LookupCache, Origin
from pgshoal.worker.records import Found, Pool, Server, ServerState, User

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker
    from pgshoal.worker.client_login import ClientLogin
    from pgshoal.worker.handler import WorkerFace

#: The entry of a console login, which has none: only auth_user and auth_dbname of [pgbouncer] count for it.
_CONSOLE_ENTRY: Final = DatabaseConfig(CONSOLE_DATABASE)


def entry_for(worker: WorkerFace, login: ClientLogin) -> DatabaseConfig | None:
    """The client's database entry if this login must be looked up, else None."""
    config, user, wish = worker.config, login.user, login.wish
    if wish is None or config.settings.auth_type == "any" or user is worker.front.console_user:
        return None
    if user is not None and user.secret is not None:
        return None
    entry = _CONSOLE_ENTRY if wish.database == CONSOLE_DATABASE else config.database(wish.database)
    return entry if entry is not None and effective.auth_user(config, entry) is not None else None


class Lookup(Handler):
    """One user's lookup: waiting for a server, then the handler of that server until the answer is whole."""

    __slots__ = ("answer", "entry", "login", "origin", "owner", "pool", "server", "since_us", "user")

    def __init__(self, owner: Lookups, login: ClientLogin, entry: DatabaseConfig, pool: Pool) -> None:
        self.owner = owner
        self.login: ClientLogin | None = login
        self.entry = entry
        self.pool = pool
        self.since_us = owner.worker.engine.now_us()
        self.answer = Answer()
        self.server: Server | None = None
        self.user = "" if login.wish is None else login.wish.user
        #: what was asked, once it is
        self.origin: Origin | None = None

    def run(self, server: Server, user: str) -> None:
        """Ask; `server` is in dialogue and ours until the answer."""
        worker = self.owner.worker
        self.server, self.since_us = server, worker.engine.now_us()
        server.state = ServerState.LOOKUP
        worker.handlers[server.conn] = self.owner.running[server.conn] = self
        sql = effective.auth_query(worker.config, self.entry)
        self.origin = Origin(self.pool.database.name, self.pool.user.name, sql)
        worker.engine.send(server.conn, request(sql, user, own_query=sql != DEFAULT_AUTH_QUERY))

    def message(self, kind: int, payload: bytes) -> None:
        """A part of the answer."""
        found = self.answer.feed(kind, payload)
        if found is None or self.server is None:
            return
        worker, server, login = self.owner.worker, self.server, self.login
        if isinstance(found, Broken):
            if found.error:
                worker.log.error(f"S: error in auth_query: {found.error}")
            worker.servers.close(server, found.reason)
            return
        del self.owner.running[server.conn]
        worker.servers.released(server)
        if isinstance(found, Row):
            self.owner.keep(self, found)
        if login is not None:
            # It may have died in this wake; its CLOSED is then still to be read.
            with suppress(KeyError):
                login.looked_up(found if isinstance(found, Row) else None)

    def oversize(self, header: bytes) -> None:
        """A secret longer than any may be."""
        if self.server is not None:
            self.owner.worker.servers.close(self.server, "bad pkt header")

    def closed(self, reason: str) -> None:
        """The server has gone; `lost` follows from there."""
        if self.server is not None:
            self.owner.worker.servers.gone(self.server, reason)

    def refuse(self, refused: Refused) -> None:
        """There will be no answer."""
        login, self.login = self.login, None
        if login is not None:
            login.refuse(refused)


class Lookups:
    """All lookups of the worker. Their pools are theirs alone: what a client leaves on a server never meets them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: by database and auth_user
        self.pools: dict[tuple[str, str], Pool] = {}
        self.running: dict[ConnId, Lookup] = {}
        self._waiting: dict[PoolId, deque[Lookup]] = {}
        self.cache = LookupCache()

    # -- one login

    def begin(self, login: ClientLogin, entry: DatabaseConfig) -> Lookup | None:
        """Look a user up; `login.looked_up` or `login.refuse` follows, perhaps at once (then None)."""
        worker = self.worker
        name = effective.auth_dbname(worker.config, entry)
        user = effective.auth_user(worker.config, entry)
        if name == CONSOLE_DATABASE or user is None:
            worker.log.error(f'{login.lead()}cannot use the reserved "{CONSOLE_DATABASE}" database as an auth_dbname')
            login.refuse(refuse("bouncer_config_error"))
            return None
        database = worker.pools.database(name)
        if database is None:
            worker.log.error(f'{login.lead()}authentication database "{name}" is not configured.')
            login.refuse(refuse("bouncer_config_error"))
            return None
        if database.disabled:
            login.refuse(refuse("auth_database_disabled", db=name))
            return None
        row = self._kept(login, entry)
        if row is not None:
            login.looked_up(row)
            return None
        pool = self.pools.get((name, user))
        if pool is None:
            pool = self.pools[name, user] = worker.pools.lookup_pool(database, user)
            self._waiting[pool.id] = deque()
        if self._failing(pool):
            login.refuse(refuse("server_login_failing", reason=pool.last_error))
            return None
        lookup = Lookup(self, login, entry, pool)
        self._waiting[pool.id].append(lookup)
        self.serve(pool)
        if self.waiting(pool):
            worker.grow(pool)
        return lookup

    def _origin(self, entry: DatabaseConfig) -> Origin:
        config = self.worker.config
        user = effective.auth_user(config, entry) or ""
        return Origin(effective.auth_dbname(config, entry), user, effective.auth_query(config, entry))

    def _kept(self, login: ClientLogin, entry: DatabaseConfig) -> Row | None:
        ttl_s = self.worker.config.settings.auth_query_cache_ttl
        if ttl_s <= 0 or login.wish is None:
            return None
        return self.cache.get(login.wish.user, self._origin(entry), self.worker.engine.now_us(), ttl_s)

    def keep(self, lookup: Lookup, row: Row) -> None:
        """For auth_query_cache_ttl."""
        ttl_s = self.worker.config.settings.auth_query_cache_ttl
        if lookup.origin is not None:
            self.cache.put(lookup.user, lookup.origin, row, self.worker.engine.now_us(), ttl_s)

    def _failing(self, pool: Pool) -> bool:
        """No server, and too early for another attempt."""
        if not pool.last_connect_failed_us or self.worker.pools.connected(pool):
            return False
        since_s = (self.worker.engine.now_us() - pool.last_connect_failed_us) / 1e6
        return since_s < self.worker.config.settings.server_login_retry

    def user(self, row: Row, database: str) -> tuple[User, Found]:
        """The record of a user who was found, and the secret that counts for one client database."""
        user = self.worker.pools.record(row.user)
        secret = classify(row.secret)
        found = user.found.get(database)
        if found is None or found.secret != secret:
            found = user.found[database] = Found(secret)
        return user, found

    def abandon(self, lookup: Lookup) -> None:
        """The client has left. A lookup under way goes on, so that a client cannot make us lose connections."""
        lookup.login = None
        if lookup.server is None:
            with suppress(ValueError, KeyError):
                self._waiting[lookup.pool.id].remove(lookup)

    # -- one pool

    def waiting(self, pool: Pool) -> int:
        """Lookups that wait for a server."""
        return len(self._waiting.get(pool.id, ()))

    def oldest_wait_us(self, pool: Pool) -> int:
        """How long the first of them has waited."""
        line = self._waiting.get(pool.id)
        return self.worker.engine.now_us() - line[0].since_us if line else 0

    def serve(self, pool: Pool) -> None:
        """A server may be free: give it to who waits."""
        line = self._waiting.get(pool.id)
        while line and not self.worker.pools.paused(pool):
            wish = line[0].login and line[0].login.wish
            if not wish:
                line.popleft()
                continue
            server = self._take(pool)
            if server is None:
                return
            line.popleft().run(server, wish.user)

    def _take(self, pool: Pool) -> Server | None:
        worker = self.worker
        idle = worker.engine.idle_servers(pool.id)
        for conn, _ in idle if worker.config.settings.server_round_robin else reversed(idle):
            server = worker.servers.by_conn.get(conn)
            with suppress(KeyError):
                if server is not None and worker.engine.take(conn):
                    return server
        return None

    def refuse_waiting(self, pool: Pool, refused: Refused) -> None:
        """The server does not let us in, or the pool is dropped."""
        line = self._waiting.get(pool.id)
        while line:
            line.popleft().refuse(refused)

    def lost(self, conn: ConnId) -> None:
        """A server is closed, for whatever reason."""
        lookup = self.running.pop(conn, None)
        if lookup is not None:
            lookup.refuse(refuse("bouncer_config_error"))

    def forget_pool(self, pool: Pool) -> None:
        """The pool is dropped."""
        if pool.id in self._waiting:
            self.refuse_waiting(pool, refuse("bouncer_config_error"))
            del self._waiting[pool.id]
            self.pools = {key: kept for key, kept in self.pools.items() if kept is not pool}

    # -- time

    def expire(self, now_us: int) -> None:
        """query_wait_timeout of those who wait; lookups that hang; entries nobody but a guess has asked for."""
        config = self.worker.config
        for line in self._waiting.values():
            for lookup in list(line):
                name = lookup.login.wish.user if lookup.login and lookup.login.wish else ""
                limit_s = effective.query_wait_timeout_s(config, lookup.entry, name)
                if limit_s > 0 and now_us - lookup.since_us > limit_s * 1e6:
                    lookup.refuse(refuse("query_wait_timeout"))
        for lookup in list(self.running.values()):
            # Nobody waits longer than this for the answer, and the pool needs its server.
            limits = (effective.query_timeout_s(config, lookup.pool.user.name), config.settings.client_login_timeout)
            limit_s = min((limit for limit in limits if limit > 0), default=0.0)
            if limit_s and now_us - lookup.since_us > limit_s * 1e6 and lookup.server is not None:
                self.worker.servers.close(lookup.server, "query timeout")
        for pool in list(self.pools.values()):
            self._forget_guess(pool)

    def _forget_guess(self, pool: Pool) -> None:
        """A name that only `*` knows and no server has: whoever has not proved anything must not fill our memory."""
        database = pool.database
        used = database.client_connections or database.server_connections or database.paused or database.disabled
        if not database.auto or used or pool.welcome is not None or self.waiting(pool):
            return
        if pool.last_connect_failed_us and not self._failing(pool):
            self.worker.pools.drop_database(database)
