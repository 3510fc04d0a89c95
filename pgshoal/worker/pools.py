"""Databases, users and pools of the worker: found by name, made on demand, dropped when nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.config import effective
from pgshoal.engine.contract import PoolId, PoolMode, PoolSpec
from pgshoal.policy.timeouts import notify_after_s, unused
from pgshoal.worker.records import Database, Pool, ServerState, Stream, User

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

CONSOLE = "pgbouncer"
_MODES = {"session": PoolMode.SESSION, "transaction": PoolMode.TRANSACTION, "statement": PoolMode.STATEMENT}


def microseconds(seconds: float) -> int:
    """A setting's seconds as the engine wants them; above 0 stays above 0."""
    return max(1, round(seconds * 1_000_000)) if seconds > 0 else 0


class Pools:
    """The registry. Pools are keyed by (database, server-side user); a forced user counts as the pool's user."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.databases: dict[str, Database] = {}
        self.users: dict[str, User] = {}
        #: forced users nobody can log in as, because neither auth_file nor [users] names them
        self.forced: dict[str, User] = {}
        self.by_key: dict[tuple[str, str], Pool] = {}
        self.by_id: dict[PoolId, Pool] = {}
        #: pools that nobody can find any more, until their last connection is flushed
        self.retired: dict[PoolId, Pool] = {}

    # -- names

    def load(self) -> None:
        """Make the records of what the configuration lists, and the pools that min_pool_size keeps alive."""
        config = self.worker.config
        for name, entry in config.databases.items():
            self.databases[name] = Database(name, entry)
        for name in {**config.users, **config.secrets}:
            self.users[name] = User(name, config.secrets.get(name))
        for database in self.databases.values():
            self.keep_alive(database)

    def keep_alive(self, database: Database) -> None:
        """An entry with a forced user and min_pool_size has its pool without any client."""
        user = database.config.user
        if user is not None and effective.min_pool_size(self.worker.config, database.config, user) > 0:
            self.pool(database, self.record(user))

    def database(self, name: str, lead: str = "") -> Database | None:
        """The record of an entry; a name that only `*` knows is registered, which `lead` says of whom."""
        found = self.databases.get(name)
        if found is not None or name == CONSOLE:
            return found
        entry = self.worker.config.database(name)
        if entry is None:
            return None
        disabled = name in self.worker.pause.disabled
        database = Database(name, entry, True, disabled=disabled, idle_since_us=self.worker.engine.now_us())
        self.databases[name] = database
        self.worker.log.log(f"{lead}registered new auto-database: {name}")
        return database

    def user(self, name: str) -> User | None:
        """The record of a user who may log in."""
        return self.users.get(name)

    def record(self, name: str) -> User:
        """The record of a user, made if there is none: one we log in as, or one auth_query has found."""
        found = self.users.get(name) or self.forced.get(name)
        if found is None:
            found = self.forced[name] = User(name, self.worker.config.secrets.get(name))
        return found

    # -- pools

    def pool(self, database: Database, user: User) -> Pool:
        """The pool of an entry and a login user."""
        forced = database.config.user
        key = (database.name, user.name if forced is None else forced)
        found = self.by_key.get(key)
        if found is None:
            found = self._make(database, user if forced is None else self.record(forced))
            found.welcome = self.worker.welcomes.known(found)
            self.by_key[key] = self.by_id[found.id] = found
        return found

    def _make(self, database: Database, user: User, lookups: bool = False) -> Pool:
        engine = self.worker.engine
        rows = self.worker.budget.register(database.name, user.name, lookups)  # first: it may fail
        number = engine.add_pool(self.spec(database, user.name))
        if database.paused or self.worker.pause.everything:
            engine.pause_pool(number, True)
        return Pool(number, database, user, rows, idle_since_us=engine.now_us())

    def lookup_pool(self, database: Database, user: str) -> Pool:
        """A pool for auth_query: it has servers, and no client can get into it."""
        found = self._make(database, self.record(user), lookups=True)
        self.by_id[found.id] = found
        return found

    def stream_pool(self, database: Database, user: User, stream: Stream) -> Pool:
        """A pool for one replication client: session mode, without limits of time and without pauses."""
        forced = database.config.user
        owner = user if forced is None else self.record(forced)
        engine = self.worker.engine
        number = engine.add_pool(PoolSpec(decide=True))
        rows = self.worker.budget.register(database.name, owner.name, False)
        found = Pool(number, database, owner, rows, idle_since_us=engine.now_us(), stream=stream)
        self.by_id[number] = found
        return found

    def of_database(self, database: Database | None) -> list[Pool]:
        """The pools of one database, or all of them."""
        return [pool for pool in self.by_id.values() if database is None or pool.database is database]

    def mode(self, pool: Pool) -> str:
        """session, transaction or statement."""
        return effective.pool_mode(self.worker.config, pool.database.config, pool.user.name)

    def spec(self, database: Database, user: str) -> PoolSpec:
        """What the engine must know of a pool."""
        config, entry = self.worker.config, database.config
        settings = config.settings
        mode = effective.pool_mode(config, entry, user)
        paused = database.paused or self.worker.pause.everything
        # A lifetime of 0 means that a server is used once, so that every release must be looked at.
        once = effective.server_lifetime_s(config, entry) <= 0
        check_always = settings.server_check_delay <= 0 and bool(settings.server_check_query)
        return PoolSpec(
            mode=_MODES[mode],
            max_prepared_statements=0 if mode == "session" else settings.max_prepared_statements,
            round_robin=settings.server_round_robin,
            decide=paused or once or check_always or self.reset_query(mode) != "",
            query_timeout_us=microseconds(effective.query_timeout_s(config, user)),
            query_wait_timeout_us=microseconds(effective.query_wait_timeout_s(config, entry, user)),
            query_wait_notify_us=microseconds(notify_after_s(settings.query_wait_notify)),
            idle_transaction_timeout_us=microseconds(effective.idle_transaction_timeout_s(config, user)),
            transaction_timeout_us=microseconds(effective.transaction_timeout_s(config, user)),
        )

    def reset_query(self, mode: str) -> str:
        """The query that cleans a released server, "" for none."""
        settings = self.worker.config.settings
        return settings.server_reset_query if mode == "session" or settings.server_reset_query_always else ""

    def refresh(self, pool: Pool) -> None:
        """Tell the engine what has changed: settings, or a pause."""
        if pool.stream is None:
            self.worker.engine.set_pool(pool.id, self.spec(pool.database, pool.user.name))

    def paused(self, pool: Pool) -> bool:
        """Whether PAUSE stands, for all or for this database."""
        return pool.database.paused or self.worker.pause.everything

    # -- dropping

    def settle(self, pool: Pool) -> None:
        """After a client or server has gone: note since when the pool and its database are unused."""
        if not pool.clients and not pool.servers:
            pool.idle_since_us = self.worker.engine.now_us()
        database = pool.database
        if database.client_connections == 0 and database.server_connections == 0:
            database.idle_since_us = self.worker.engine.now_us()

    def drop(self, pool: Pool) -> bool:
        """Forget a pool without connections; False while the engine still flushes some, then `expire` tries again."""
        if self.by_id.get(pool.id) is not pool:
            return True  # a replication client's, which goes with its client
        key = (pool.database.name, pool.user.name)
        if self.by_key.get(key) is pool:
            del self.by_key[key]
        self.worker.lookups.forget_pool(pool)
        counted = None if pool.stream is None else self.worker.stats.of_pool(pool)
        try:
            self.worker.engine.drop_pool(pool.id)
        except RuntimeError:
            self.retired[pool.id] = pool
            return False
        if counted is not None:
            self.worker.stats.keep(pool.database.name, counted)
        self.by_id.pop(pool.id, None)
        self.retired.pop(pool.id, None)
        self.worker.servers.forget_pool(pool)
        self.worker.budget.settle(pool.id)
        self.worker.budget.release(pool.rows)
        return True

    def expire(self, now_us: int) -> None:
        """Drop pools and auto-databases that were unused for too long."""
        settings = self.worker.config.settings
        now_s = now_us / 1e6
        for pool in list(self.retired.values()):
            self.drop(pool)
        for pool in list(self.by_id.values()):
            if pool.clients or pool.servers or pool.login_queue or self.worker.lookups.waiting(pool):
                continue
            if not unused(pool.idle_since_us / 1e6, settings.pool_idle_timeout, now_s) or self._exempt(pool):
                continue
            age_s = int(now_s - pool.idle_since_us / 1e6)
            if self.drop(pool):
                self.worker.log.log(
                    f"cleaning up idle pool for user {pool.user.name} on db {pool.database.name} "
                    f"because: pool idle timeout (age= {age_s}s)"
                )
        for database in [d for d in self.databases.values() if d.auto and not d.paused]:
            if database.client_connections or database.server_connections:
                continue
            if unused(database.idle_since_us / 1e6, settings.autodb_idle_timeout, now_s):
                self.drop_database(database)

    def _exempt(self, pool: Pool) -> bool:
        entry = pool.database.config
        return entry.user is not None and effective.min_pool_size(self.worker.config, entry, entry.user) > 0

    def drop_database(self, database: Database) -> None:
        """Forget a database without connections."""
        for pool in self.of_database(database):
            self.drop(pool)
        self.databases.pop(database.name, None)
        self.worker.log.warning(
            f"dropping database '{database.name}' as it does not exist anymore or inactive auto-database"
        )

    # -- facts

    def connected(self, pool: Pool) -> int:
        """Servers that are logged in."""
        away = (ServerState.LOGIN, ServerState.CANCEL)
        return sum(1 for server in pool.servers.values() if server.state not in away)

    def in_state(self, pool: Pool, state: ServerState) -> int:
        """Servers in one state."""
        return sum(1 for server in pool.servers.values() if server.state is state)
