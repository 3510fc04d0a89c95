"""SHOW DNS_HOSTS and DNS_ZONES: the names a worker has looked up, and the zones they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.console.sockets import Row

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole
    from pgshoal.worker.app import Worker


def hosts(worker: Worker, console: AdminConsole) -> list[Row]:
    """One row for each name, those without an address included."""
    now_us = worker.engine.now_us()
    return [
        (host, max(0, name.valid_until_us - now_us) // 1_000_000, ",".join(map(_with_port, name.addresses)))
        for host, name in sorted(worker.resolver.names.items())
    ]


def _with_port(address: str) -> str:
    """As PgBouncer shows an address without a port."""
    return f"[{address}]:0" if ":" in address else f"{address}:0"


def zones(worker: Worker, console: AdminConsole) -> list[Row]:
    """(zone, serial, names): what several workers know is counted by name, once."""
    resolver = worker.resolver
    return [
        (zone, serial, ",".join(sorted(resolver.names_of(zone)))) for zone, serial in sorted(resolver.zones.items())
    ]
