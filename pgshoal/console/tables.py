"""TABLES: every SHOW result as data, one Column a console column, in PgBouncer 1.26's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

#: How the rows of several workers become one: `key` columns name the row, `each` rows stay apart. `tail` is the finer
#: part of the `max` column before it, and comes from the same row. `average` is made of sums, never of averages.
Merge = Literal["key", "sum", "max", "tail", "first", "each", "average"]

Kind = Literal["text", "int4", "int8", "numeric"]

#: kind -> (type oid, size), as PostgreSQL's pg_type has them.
TYPES: dict[str, tuple[int, int]] = {"text": (25, -1), "int4": (23, 4), "int8": (20, 8), "numeric": (1700, -1)}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and type on the wire, what it means, and how workers merge it."""

    name: str
    kind: Kind
    doc: str
    merge: Merge = "first"


@dataclass(frozen=True, slots=True)
class Table:
    """One SHOW item. Each worker's rows come from console.rows under the name in `source`, its own if empty."""

    name: str
    columns: tuple[Column, ...]
    doc: str
    #: any worker knows all of it
    local: bool = False
    source: str = ""
    #: whether the rows are in the order of their keys
    sorted: bool = False
    #: not PgBouncer's
    ours: bool = False


def _texts(merge: Merge, **docs: str) -> tuple[Column, ...]:
    return tuple(Column(name, "text", doc, merge) for name, doc in docs.items())


def _ints(merge: Merge, **docs: str) -> tuple[Column, ...]:
    return tuple(Column(name, "int4", doc, merge) for name, doc in docs.items())


_SOCKET = (
    *_texts(
        "each",
        type="C for a client, S for a server",
        user="user of the connection",
        database="pooler database",
        replication="none, logical or physical",
        state="state of the connection",
        addr="address of the peer, or unix",
    ),
    Column("port", "int4", "port of the peer", "each"),
    Column("local_addr", "text", "our address", "each"),
    Column("local_port", "int4", "our port", "each"),
    *_texts("each", connect_time="when it was connected", request_time="when the last request began"),
    *_ints(
        "each",
        wait="seconds since the request began",
        wait_us="microseconds beyond `wait`",
        close_needed="1 if the server is closed as soon as it is free",
    ),
    *_texts("each", ptr="identity of the connection", link="identity of its partner"),
    Column("remote_pid", "int4", "process id of a Unix peer or of the backend", "each"),
    *_texts("each", tls="TLS version and cipher", application_name="application_name of the client"),
    Column("prepared_statements", "int4", "prepared statements known", "each"),
    Column("id", "int4", "number of the connection; KILL_CLIENT takes it", "each"),
)

_BUFFERS = _ints(
    "each",
    recv_pos="bytes received and not yet read",
    pkt_pos="where the next packet begins",
    pkt_remain="bytes of the current packet still to come",
    send_pos="where sending stands",
    send_remain="bytes of the current packet still to send",
    pkt_avail="bytes parsed and not yet forwarded",
    send_avail="bytes that wait to be sent",
)

_POOLS = (
    *_texts("key", database="pooler database", user="user of the server connections"),
    *_ints(
        "sum",
        cl_active="clients linked to a server, or idle",
        cl_waiting="clients that wait for a server",
        cl_active_cancel_req="cancel requests under way",
        cl_waiting_cancel_req="cancel requests that wait",
        sv_active="servers linked to a client",
        sv_active_cancel="servers that carry a cancel request",
        sv_being_canceled="servers that wait for cancel requests to end",
        sv_idle="servers ready for use",
        sv_used="servers that need a check before use",
        sv_tested="servers that run a reset or check query",
        sv_login="servers that are logging in",
    ),
    *_ints("max", maxwait="seconds the first client in line has waited"),
    *_ints("tail", maxwait_us="microseconds beyond `maxwait`"),
    *_texts("first", pool_mode="effective pool mode", load_balance_hosts="strategy for a host list"),
)

_DATABASES = (
    Column("name", "text", "entry in [databases]", "key"),
    Column("host", "text", "host of the servers"),
    Column("port", "int4", "port of the servers"),
    *_texts("first", database="database name at the server", force_user="forced user"),
    *_ints(
        "first",
        pool_size="effective pool_size",
        min_pool_size="effective min_pool_size",
        reserve_pool_size="effective reserve_pool_size",
        server_lifetime="effective server_lifetime, seconds",
    ),
    *_texts("first", pool_mode="pool mode if set here", load_balance_hosts="strategy for a host list"),
    Column("max_connections", "int4", "effective max_db_connections"),
    Column("current_connections", "int4", "server connections now", "sum"),
    Column("max_client_connections", "int4", "effective max_db_client_connections"),
    Column("current_client_connections", "int4", "client connections now", "sum"),
    *_ints("max", paused="1 after PAUSE or KILL of this database", disabled="1 after DISABLE"),
)

_USERS = (
    Column("name", "text", "user", "key"),
    *_texts("first", pool_size="pool_size if set", reserve_pool_size="reserve_pool_size if set", pool_mode="if set"),
    Column("max_user_connections", "int4", "effective max_user_connections"),
    Column("current_connections", "int4", "server connections now", "sum"),
    Column("max_user_client_connections", "int4", "effective max_user_client_connections"),
    Column("current_client_connections", "int4", "client connections now", "sum"),
)

#: (name in STATS, name in STATS_TOTALS and STATS_AVERAGES, name in TOTALS, what it counts)
COUNTERS: tuple[tuple[str, str, str, str], ...] = (
    ("server_assignment_count", "server_assignment_count", "server_assignment_count", "clients linked to a server"),
    ("xact_count", "xact_count", "xact_count", "transactions"),
    ("query_count", "query_count", "query_count", "queries"),
    ("received", "bytes_received", "client_bytes", "bytes received from clients"),
    ("sent", "bytes_sent", "server_bytes", "bytes received from servers"),
    ("xact_time", "xact_time", "xact_time", "microseconds in transactions"),
    ("query_time", "query_time", "query_time", "microseconds in queries"),
    ("wait_time", "wait_time", "wait_time", "microseconds clients waited for a server"),
    ("client_parse_count", "client_parse_count", "ps_client_parse_count", "Parse messages of clients"),
    ("server_parse_count", "server_parse_count", "ps_server_parse_count", "Parse messages sent to servers"),
    ("bind_count", "bind_count", "ps_bind_count", "Bind messages of named statements"),
    ("client_login_count", "client_login_count", "client_login_count", "client logins"),
)


def _stats() -> Iterator[Column]:
    yield Column("database", "text", "pooler database", "key")
    for name, _, _, doc in COUNTERS:
        yield Column(f"total_{name}", "numeric", f"{doc}, since start", "sum")
    for name, _, _, doc in COUNTERS:
        short = {"received": "recv"}.get(name, name)
        yield Column(f"avg_{short}", "numeric", f"{doc}, averaged over the last stats_period", "average")


def _stats_part(averages: bool) -> Iterator[Column]:
    yield Column("database", "text", "pooler database", "key")
    for index, (_, name, _, doc) in enumerate(COUNTERS):
        prefix = "avg_" if averages and index >= 8 else ""
        yield Column(prefix + name, "numeric", doc, "average" if averages else "sum")


def _list(*tables: Table) -> dict[str, Table]:
    return {table.name: table for table in tables}


_PEERS = (
    Column("peer_id", "int4", "its number in [peers]", "key"),
    Column("host", "text", "where it listens"),
    *_ints("first", port="its port", pool_size="connections to it at once"),
)

_PEER_POOLS = (
    Column("peer_id", "int4", "its number in [peers]", "key"),
    *_ints(
        "sum",
        cl_active_cancel_req="cancel requests that were passed on and not yet answered",
        cl_waiting_cancel_req="cancel requests that wait for a connection",
        sv_active_cancel="connections that carry a cancel request",
        sv_login="connections under way",
    ),
)

_DNS_HOSTS = (
    Column("hostname", "text", "name", "key"),
    Column("ttl", "int8", "seconds for which the answer is still good", "max"),
    Column("addrs", "text", "addresses, each with port 0; empty if the look-up failed", "first"),
)

_DNS_ZONES = (
    Column("zonename", "text", "zone: a name without what stands before its first dot", "key"),
    Column("serial", "int8", "its serial; 0 if nobody has asked for it", "max"),
    Column("count", "int4", "names in it", "sum"),
)

_MEM = (
    Column("name", "text", "what the memory is for", "key"),
    *_ints("max", size="bytes of one item"),
    *_ints("sum", used="items in use", free="items kept for use", memtotal="bytes"),
)

_WORKERS = (
    *_ints("each", worker="its number", seat="its column in SHOW LEDGER", pid="its process"),
    *_texts("each", state="starting, running, draining, silent or down", engine="what relays its traffic"),
    *_ints("each", clients="client connections, logins and cancel requests included", servers="server connections"),
    Column("cpu", "numeric", "per cent of one CPU, over the last seconds", "each"),
    *_ints(
        "each",
        loop_lag_us="longest delay of its loop in the last ten seconds, microseconds",
        uptime="seconds since it was started",
        restarts="how often this number was started again after a death",
    ),
    Column("rss", "int8", "bytes of memory resident", "each"),
)

_LEDGER = (
    *_texts("key", kind="pool, database, user, clients, database clients, user clients or peer"),
    *_texts("key", database="database, or number of the peer", user="user"),
    Column("limit", "int4", "what the fleet may hold; 0 is no limit", "first"),
    *_ints("first", used="what it holds, the reserve of a pool included", waiting="clients that wait for more"),
    Column("workers", "text", "what each worker holds, as number:used", "first"),
    Column("dying", "int4", "of those used: slots of servers that are closed and whose backends still live", "first"),
)

TABLES: dict[str, Table] = _list(
    Table("ACTIVE_SOCKETS", _SOCKET + _BUFFERS, "sockets with data in a buffer"),
    Table("CLIENTS", _SOCKET, "client connections after login"),
    Table(
        "CONFIG",
        _texts("first", key="setting", value="now", default="default", changeable="yes or no"),
        "settings",
        local=True,
    ),
    Table("DATABASES", _DATABASES, "databases", sorted=True),
    Table("DNS_HOSTS", _DNS_HOSTS, "names that were looked up", sorted=True),
    Table("DNS_ZONES", _DNS_ZONES, "zones of those names", sorted=True),
    Table("LEDGER", _LEDGER, "limits of the fleet and who holds what", ours=True),
    Table(
        "LISTS",
        (
            Column("list", "text", "what is counted", "key"),
            Column("items", "int4", "how many; what has a name is counted once", "sum"),
        ),
        "counts",
    ),
    Table("MEM", _MEM, "memory of records and of the engine"),
    Table("PEERS", _PEERS, "peers, to which cancel requests of theirs are passed on", local=True),
    Table("PEER_POOLS", _PEER_POOLS, "cancel requests on their way to peers", sorted=True),
    Table("POOLS", _POOLS, "pools", sorted=True),
    Table("SERVERS", _SOCKET, "server connections"),
    Table("SOCKETS", _SOCKET + _BUFFERS, "all connections with their buffers"),
    Table("STATE", _texts("first", key="active or paused", value="yes or no"), "state of the pooler", local=True),
    Table("STATS", tuple(_stats()), "totals and averages by database"),
    Table("STATS_AVERAGES", tuple(_stats_part(averages=True)), "averages by database", source="STATS"),
    Table("STATS_TOTALS", tuple(_stats_part(averages=False)), "totals by database", source="STATS"),
    Table(
        "TOTALS",
        (Column("name", "text", "counter", "key"), Column("value", "numeric", "value", "sum")),
        "sums",
        source="STATS",
    ),
    Table("USERS", _USERS, "users", sorted=True),
    Table("VERSION", _texts("first", version="version"), "version", local=True),
    Table("WORKERS", _WORKERS, "worker processes", ours=True),
)

#: The lines of SHOW HELP's DETAIL, without their tab; what is not PgBouncer's comes last.
HELP: tuple[str, ...] = (
    "SHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION",
    "SHOW PEERS|PEER_POOLS",
    "SHOW SOCKETS|ACTIVE_SOCKETS|LISTS|MEM|STATE",
    "SHOW DNS_HOSTS|DNS_ZONES",
    "SHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS",
    "SET key = arg",
    "RELOAD",
    "PAUSE [<db>]",
    "RESUME [<db>]",
    "DISABLE <db>",
    "ENABLE <db>",
    "RECONNECT [<db>]",
    "KILL [<db>]",
    "KILL_CLIENT <client_id>",
    "SHUTDOWN",
    "SHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS",
    "WAIT_CLOSE [<db>]",
    "SHOW WORKERS|LEDGER",
    "RESTART [<seconds>]",
    "UPGRADE",
)

#: PostgreSQL settings that clients ask any server for: name -> what SHOW answers; SET is ignored with a notice.
FAKE_VARIABLES: dict[str, str | None] = {
    "client_encoding": "UTF-8",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "datestyle": "ISO",
    "timezone": "GMT",
    "extra_float_digits": None,  # only SET
}
