"""ROWS: what each SHOW item finds in one worker's records and its engine's facts, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pgshoal.config import effective
from pgshoal.config.model import Config, DatabaseConfig, UserConfig
from pgshoal.config.show import shown_settings
from pgshoal.console import memory, names, sockets
from pgshoal.console.sockets import Row, Snapshot, Value, sorted_pools
from pgshoal.console.tables import TABLES
from pgshoal.fleet.ledger import Kind
from pgshoal.policy.access import CONSOLE_DATABASE, CONSOLE_USER
from pgshoal.worker.records import Database, Pool, ServerState, User
from pgshoal.worker.welcome import PGBOUNCER_VERSION

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole
    from pgshoal.engine.contract import PoolCounts
    from pgshoal.worker.app import Worker

F = TypeVar("F")
#: The console counts as a database with one pool of this size, in this mode.
_CONSOLE_SIZE: Final = 2
_CONSOLE_MODE: Final = "statement"


def _shaped(table: str, getters: Mapping[str, Callable[[F], Value]], facts: Iterable[F]) -> list[Row]:
    """One row for each fact, in the order of the table's columns."""
    chosen = [getters[column.name] for column in TABLES[table].columns]
    return [tuple(get(fact) for get in chosen) for fact in facts]


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def strategy(entry: DatabaseConfig) -> str | None:
    """load_balance_hosts, which says something of a host list only."""
    return entry.load_balance_hosts if len(entry.hosts) > 1 else None


# -- pools


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool; the waiting clients include those that wait for the pool's first server."""

    pool: Pool
    counts: PoolCounts
    mode: str
    unwelcomed: int
    lookups: int
    cancels_active: int
    cancels_waiting: int
    connecting: int
    servers: Mapping[ServerState, int]
    oldest_wait_us: int


POOL_GETTERS: Mapping[str, Callable[[PoolFacts], Value]] = {
    "database": lambda p: p.pool.database.name,
    "user": lambda p: p.pool.user.name,
    "cl_active": lambda p: p.counts.cl_parked + p.counts.cl_linked,
    "cl_waiting": lambda p: p.counts.cl_waiting + p.unwelcomed + p.lookups,
    "cl_active_cancel_req": lambda p: p.cancels_active,
    "cl_waiting_cancel_req": lambda p: p.cancels_waiting,
    "sv_active": lambda p: (
        (p.counts.sv_linked if p.pool.stream is None else p.servers[ServerState.STREAM]) + p.servers[ServerState.LOOKUP]
    ),
    "sv_active_cancel": lambda p: p.servers[ServerState.CANCEL],
    "sv_being_canceled": lambda p: p.counts.sv_held,
    "sv_idle": lambda p: p.counts.sv_idle,
    "sv_used": lambda p: p.servers[ServerState.USED],
    "sv_tested": lambda p: p.servers[ServerState.TESTED],
    "sv_login": lambda p: p.connecting,
    "maxwait": lambda p: p.oldest_wait_us // 1_000_000,
    "maxwait_us": lambda p: p.oldest_wait_us % 1_000_000,
    "pool_mode": lambda p: p.mode,
    "load_balance_hosts": lambda p: strategy(p.pool.database.config),
}


def _pool_facts(worker: Worker, pool: Pool) -> PoolFacts:
    engine, front = worker.engine, worker.front
    counts = engine.pool_counts(pool.id)
    jobs = {*front.cancels.values(), *(delivery.job for delivery in front.deliveries.values())}
    mine = [job for job in jobs if job.client.pool is pool]
    requests = sum(len(job.waiters) for job in mine)
    under_way = sum(len(job.waiters) for job in mine if job.active)
    oldest_us = max(counts.oldest_wait_us, worker.lookups.oldest_wait_us(pool))
    if pool.login_queue:
        stood = front.unwelcomed.get(next(iter(pool.login_queue)))
        oldest_us = max(oldest_us, 0 if stood is None else engine.now_us() - stood.since_us)
    return PoolFacts(
        pool,
        counts,
        worker.pools.mode(pool),
        len(pool.login_queue),
        worker.lookups.waiting(pool),
        under_way,
        requests - under_way,
        worker.servers.connecting(pool),
        {state: worker.pools.in_state(pool, state) for state in ServerState},
        oldest_us,
    )


def _pools(worker: Worker, console: AdminConsole) -> list[Row]:
    rows = _shaped("POOLS", POOL_GETTERS, [_pool_facts(worker, pool) for pool in sorted_pools(worker)])
    zeros = (0,) * (len(TABLES["POOLS"].columns) - 5)
    rows.append((CONSOLE_DATABASE, CONSOLE_USER, len(console.sessions), *zeros, _CONSOLE_MODE, None))
    return sorted(rows, key=lambda row: (str(row[0]), str(row[1])))


# -- databases


DatabaseFacts = tuple[Config, Database]

DATABASE_GETTERS: Mapping[str, Callable[[DatabaseFacts], Value]] = {
    "name": lambda f: f[1].name,
    "host": lambda f: ",".join(f[1].config.hosts) or None,
    "port": lambda f: f[1].config.port,
    "database": lambda f: f[1].config.server_dbname,
    "force_user": lambda f: f[1].config.user,
    "pool_size": lambda f: effective.pool_size(f[0], f[1].config, f[1].config.user or ""),
    "min_pool_size": lambda f: effective.min_pool_size(f[0], f[1].config, f[1].config.user or ""),
    "reserve_pool_size": lambda f: effective.reserve_pool_size(f[0], f[1].config, f[1].config.user or ""),
    "server_lifetime": lambda f: int(effective.server_lifetime_s(f[0], f[1].config)),
    "pool_mode": lambda f: f[1].config.pool_mode,
    "load_balance_hosts": lambda f: strategy(f[1].config),
    "max_connections": lambda f: effective.max_db_connections(f[0], f[1].config),
    "current_connections": lambda f: f[1].server_connections,
    "max_client_connections": lambda f: effective.max_db_client_connections(f[0], f[1].config),
    "current_client_connections": lambda f: f[1].client_connections,
    "paused": lambda f: int(f[1].paused),
    "disabled": lambda f: int(f[1].disabled),
}


def _console_database(worker: Worker, console: AdminConsole) -> Database:
    """The console as if it were an entry of [databases]."""
    entry = DatabaseConfig(
        CONSOLE_DATABASE, port=worker.config.settings.listen_port, user=CONSOLE_USER, pool_mode=_CONSOLE_MODE,
        pool_size=_CONSOLE_SIZE, min_pool_size=0, reserve_pool_size=0,
    )  # fmt: skip
    return Database(CONSOLE_DATABASE, entry, client_connections=len(console.sessions))


def _shown_databases(worker: Worker) -> list[Database]:
    """All but those of `*` that nobody uses, which are kept for autodb_idle_timeout only."""
    return [
        database
        for database in worker.pools.databases.values()
        if not database.auto or database.paused or database.client_connections or database.server_connections
    ]


def _databases(worker: Worker, console: AdminConsole) -> list[Row]:
    records = [*_shown_databases(worker), _console_database(worker, console)]
    records.sort(key=lambda database: database.name)
    return _shaped("DATABASES", DATABASE_GETTERS, [(worker.config, database) for database in records])


# -- users


UserFacts = tuple[Config, User, UserConfig]

USER_GETTERS: Mapping[str, Callable[[UserFacts], Value]] = {
    "name": lambda f: f[1].name,
    "pool_size": lambda f: _padded(f[2].pool_size),
    "reserve_pool_size": lambda f: _padded(f[2].reserve_pool_size),
    "pool_mode": lambda f: f[2].pool_mode,
    "max_user_connections": lambda f: effective.max_user_connections(f[0], f[1].name),
    "current_connections": lambda f: f[1].server_connections,
    "max_user_client_connections": lambda f: effective.max_user_client_connections(f[0], f[1].name),
    "current_client_connections": lambda f: f[1].client_connections,
}


def _padded(size: int | None) -> str:
    """PgBouncer's form: nine wide, or nothing."""
    return "" if size is None or size < 0 else f"{size:9d}"


def known_users(worker: Worker) -> dict[str, User]:
    """Everybody who may log in or whom we log in as, the console's own user included."""
    return {CONSOLE_USER: worker.front.console_user, **worker.pools.forced, **worker.pools.users}


def _users(worker: Worker, console: AdminConsole) -> list[Row]:
    config = worker.config
    known = sorted(known_users(worker).items())
    return _shaped(
        "USERS", USER_GETTERS, [(config, user, config.users.get(name) or UserConfig(name)) for name, user in known]
    )


# -- connections


def _clients(worker: Worker, console: AdminConsole) -> list[Row]:
    return [sockets.row(facts) for facts in Snapshot(worker, console).clients()]


def _servers(worker: Worker, console: AdminConsole) -> list[Row]:
    return [sockets.row(facts) for facts in Snapshot(worker, console).servers()]


def _sockets(worker: Worker, console: AdminConsole) -> list[Row]:
    seen = Snapshot(worker, console)
    return [sockets.socket_row(facts) for facts in (*seen.clients(), *seen.servers(), *seen.logins())]


def _active_sockets(worker: Worker, console: AdminConsole) -> list[Row]:
    seen = Snapshot(worker, console)
    everything = (*seen.clients(), *seen.servers(), *seen.logins())
    return [sockets.socket_row(facts) for facts in everything if facts.recv or facts.send]


# -- the process


def _lists(worker: Worker, console: AdminConsole) -> list[Row]:
    """(list, items, names): what all workers know is counted by name, once."""
    front, resolver = worker.front, worker.resolver
    pools = {(pool.database.name, pool.user.name) for pool in worker.pools.by_id.values()}
    # Nothing is kept in reserve: records are made when they are needed.
    return [
        _named("databases", [*(database.name for database in _shown_databases(worker)), CONSOLE_DATABASE]),
        _named("users", known_users(worker)),
        _named("peers", map(str, worker.config.peers)),
        _named("pools", [*map("\0".join, pools), CONSOLE_DATABASE]),
        _named("peer_pools", (str(row[0]) for row in worker.peers.pool_rows())),
        ("free_clients", 0),
        ("used_clients", front.connections()),
        ("login_clients", len(front.logins)),
        ("free_servers", 0),
        ("used_servers", len(worker.servers.by_conn)),
        _named("dns_names", resolver.names),
        _named("dns_zones", resolver.zones),
        ("dns_queries", resolver.queries),
        ("dns_pending", resolver.pending),
    ]


def _named(what: str, names: Iterable[str]) -> Row:
    found = list(names)
    return (what, len(found), *found)


def _config(worker: Worker, console: AdminConsole) -> list[Row]:
    return [(s.name, s.value, s.default, _yes(s.reloadable)) for s in shown_settings(worker.config)]


def _state(worker: Worker, console: AdminConsole) -> list[Row]:
    paused = worker.pause.everything
    return [("active", _yes(not paused)), ("paused", _yes(paused))]


def _stats(worker: Worker, console: AdminConsole) -> list[Row]:
    """(database, totals): the supervisor knows the averages."""
    return [(name, *counts) for name, counts in worker.stats.counts().items()]


def _peers(worker: Worker, console: AdminConsole) -> list[Row]:
    return list(worker.peers.rows())


def _peer_pools(worker: Worker, console: AdminConsole) -> list[Row]:
    return list(worker.peers.pool_rows())


def _workers(worker: Worker, console: AdminConsole) -> list[Row]:
    """The supervisor knows them all."""
    return []


def _ledger(worker: Worker, console: AdminConsole) -> list[Row]:
    """(kind, database, user, row): the ledger itself does not know names; see ledger.py."""
    named = [(*key, row) for key, row in worker.budget.named().items()]
    named += [(kind, name, "", row) for (kind, name), row in worker.admissions.named().items()]
    named += [(Kind.PEER, str(peer_id), "", line.row) for peer_id, line in worker.peers.lines.items()]
    return [(int(kind), name, user, row) for kind, name, user, row in named]


def _version(worker: Worker, console: AdminConsole) -> list[Row]:
    # Monitoring tools read the version out of this text.
    return [(f"PgBouncer {PGBOUNCER_VERSION}",)]


Builder = Callable[["Worker", "AdminConsole"], list[Row]]

#: Source of a SHOW item -> this worker's rows, in the order of TABLES' columns; see merge.py for LISTS and STATS.
ROWS: Mapping[str, Builder] = {
    "ACTIVE_SOCKETS": _active_sockets,
    "CLIENTS": _clients,
    "CONFIG": _config,
    "DATABASES": _databases,
    "DNS_HOSTS": names.hosts,
    "DNS_ZONES": names.zones,
    "LEDGER": _ledger,
    "LISTS": _lists,
    "MEM": memory.rows,
    "PEERS": _peers,
    "PEER_POOLS": _peer_pools,
    "POOLS": _pools,
    "SERVERS": _servers,
    "SOCKETS": _sockets,
    "STATE": _state,
    "STATS": _stats,
    "USERS": _users,
    "VERSION": _version,
    "WORKERS": _workers,
}
