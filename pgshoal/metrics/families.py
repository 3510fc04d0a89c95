"""FAMILIES: every metric as data, each from one column of a console table.

The names that begin with `pgbouncer_` are those of the usual Prometheus exporter for PgBouncer, so its dashboards and
alerts go on working; what only pgshoal has begins with `pgshoal_`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

MICRO: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. A counter's name is written without its `_total`.

    `tail` is a column of microseconds to be added; `labels` are columns of the same row, by the label's name.
    """

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    table: str
    column: str
    labels: Mapping[str, str]
    scale: float = 1.0
    tail: str = ""


def _pools() -> Iterator[Family]:
    labels = {"database": "database", "user": "user"}
    for name, column, doc in (
        ("client_active_connections", "cl_active", "clients linked to a server, or idle"),
        ("client_waiting_connections", "cl_waiting", "clients that wait for a server"),
        ("client_active_cancel_connections", "cl_active_cancel_req", "cancel requests under way"),
        ("client_waiting_cancel_connections", "cl_waiting_cancel_req", "cancel requests that wait"),
        ("server_active_connections", "sv_active", "servers linked to a client"),
        ("server_active_cancel_connections", "sv_active_cancel", "servers that carry a cancel request"),
        ("server_being_canceled_connections", "sv_being_canceled", "servers that wait for cancel requests to end"),
        ("server_idle_connections", "sv_idle", "servers ready for use"),
        ("server_used_connections", "sv_used", "servers that need a check before use"),
        ("server_testing_connections", "sv_tested", "servers that run a reset or check query"),
        ("server_login_connections", "sv_login", "servers that are logging in"),
    ):
        yield Family(f"pgbouncer_pools_{name}", "gauge", doc, "POOLS", column, labels)
    doc = "seconds the first client in line has waited"
    yield Family("pgbouncer_pools_client_maxwait_seconds", "gauge", doc, "POOLS", "maxwait", labels, tail="maxwait_us")


def _databases() -> Iterator[Family]:
    labels = {label: label for label in ("name", "host", "port", "database", "force_user", "pool_mode")}
    for name, column, doc in (
        ("current_connections", "current_connections", "server connections now"),
        ("max_connections", "max_connections", "server connections allowed; 0 is no limit"),
        ("current_client_connections", "current_client_connections", "client connections now"),
        ("max_client_connections", "max_client_connections", "client connections allowed; 0 is no limit"),
        ("pool_size", "pool_size", "servers of one pool"),
        ("min_pool_size", "min_pool_size", "servers that are kept open"),
        ("reserve_pool_size", "reserve_pool_size", "further servers for clients that wait long"),
        ("paused", "paused", "1 after PAUSE or KILL of this database"),
        ("disabled", "disabled", "1 after DISABLE"),
    ):
        yield Family(f"pgbouncer_databases_{name}", "gauge", doc, "DATABASES", column, labels)


def _stats() -> Iterator[Family]:
    for name, column, doc, scale in (
        ("server_assignments", "server_assignment_count", "clients linked to a server", 1.0),
        ("sql_transactions_pooled", "xact_count", "transactions", 1.0),
        ("queries_pooled", "query_count", "queries", 1.0),
        ("received_bytes", "received", "bytes received from clients", 1.0),
        ("sent_bytes", "sent", "bytes received from servers", 1.0),
        ("server_in_transaction_seconds", "xact_time", "seconds in transactions", MICRO),
        ("queries_duration_seconds", "query_time", "seconds in queries", MICRO),
        ("client_wait_seconds", "wait_time", "seconds clients waited for a server", MICRO),
        ("client_parses", "client_parse_count", "Parse messages of clients", 1.0),
        ("server_parses", "server_parse_count", "Parse messages sent to servers", 1.0),
        ("binds", "bind_count", "Bind messages of named statements", 1.0),
        ("client_logins", "client_login_count", "client logins", 1.0),
    ):
        labels = {"database": "database"}
        yield Family(f"pgbouncer_stats_{name}", "counter", doc, "STATS", f"total_{column}", labels, scale)


def _workers() -> Iterator[Family]:
    labels = {"worker": "worker"}
    yield Family("pgshoal_worker_clients", "gauge", "client connections of a worker", "WORKERS", "clients", labels)
    yield Family("pgshoal_worker_servers", "gauge", "server connections of a worker", "WORKERS", "servers", labels)
    doc = "processors a worker keeps busy, over the last seconds"
    yield Family("pgshoal_worker_cpus", "gauge", doc, "WORKERS", "cpu", labels, 0.01)
    doc = "longest delay of a worker's loop in the last ten seconds"
    yield Family("pgshoal_worker_loop_lag_seconds", "gauge", doc, "WORKERS", "loop_lag_us", labels, MICRO)
    yield Family("pgshoal_worker_resident_bytes", "gauge", "memory of a worker", "WORKERS", "rss", labels)
    yield Family("pgshoal_worker_uptime_seconds", "gauge", "since a worker was started", "WORKERS", "uptime", labels)
    doc = "starts of a worker's number after a death"
    yield Family("pgshoal_worker_restarts", "counter", doc, "WORKERS", "restarts", labels)


FAMILIES: Final = (*_pools(), *_databases(), *_stats(), *_workers())
#: Of SHOW LISTS, each row a metric: `pgbouncer_used_clients` and so on.
LISTS: Final = "LISTS"
#: What is asked of the workers for one page.
SOURCES: Final = ("POOLS", "DATABASES", "STATS", "WORKERS", LISTS)
