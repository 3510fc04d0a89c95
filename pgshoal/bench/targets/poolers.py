"""The poolers of a target, configured alike whichever they are; none is started here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, NotHere
from pgshoal.bench.targets import pgbouncer
from pgshoal.bench.targets.fleets import PgBouncers, share
from pgshoal.bench.targets.options import Options, Part
from pgshoal.bench.targets.servers import SCRAM_USER
from pgshoal.demo.account import can_run, unprivileged
from pgshoal.demo.pooler import PgBouncer, Pooler

if TYPE_CHECKING:
    from pgshoal.bench.stand import Stand

#: Who asks the consoles of poolers of ours, by their Unix sockets.
ADMIN: Final = "bench_admin"
ADMIN_PASSWORD: Final = "bench-console"
#: What cells need not say.
DEFAULTS: Final[Mapping[str, object]] = {
    "pool_mode": "transaction",
    "max_client_conn": 12000,
    "max_prepared_statements": 200,
    "log_connections": 0,
    "log_disconnections": 0,
    "log_stats": 0,
}
#: Servers by the name of the database that leads to them.
Servers = Mapping[str, tuple[str, int]]


def bouncer(knobs: Knobs) -> Path:
    """The PgBouncer to measure; NotHere when there is none, or none that may run under the servers' account."""
    account = unprivileged()
    given = knobs.text("pgbouncer")
    try:
        found = Path(given) if given else pgbouncer.find()
    except pgbouncer.NoPgBouncer as missing:
        raise NotHere(str(missing)) from None
    if pgbouncer.version_of(found) == (0,):
        raise NotHere(f"{found} is no PgBouncer that runs here")
    if not can_run(found, account):
        raise NotHere(f"{found} cannot be run by {account.name if account else 'this account'}")
    return found


def pooler_of(stand: Stand, cell: Cell, knobs: Knobs, options: Options, part: Part, servers: Servers) -> Pooler:
    """One part of a target; its files exist, it is not started."""
    databases = databases_of(stand, servers)
    facts: dict[str, Any] = share(settings(stand, cell), part.processes, part.whole)
    facts["userlist"] = {ADMIN: ADMIN_PASSWORD, stand.superuser: stand.password}
    facts["admin_users"] = ADMIN
    if stand.scram_secret:
        facts["userlist"][SCRAM_USER] = stand.scram_secret
    if cell.target.kind == "pgbouncer":
        program = bouncer(knobs)
        if part.processes > 1:
            return PgBouncers(program, databases, part.processes, **facts)
        return PgBouncer(program, databases, **facts)
    return Pooler(databases, **facts, **shape(options, part))


def settings(stand: Stand, cell: Cell) -> dict[str, object]:
    """What all poolers of a cell have, the limits undivided."""
    found: dict[str, object] = {**DEFAULTS}
    if stand.password:
        found["auth_type"] = "scram-sha-256"  # a direct login must prove it knows the password, too
    if cell.budget is not None:
        found["default_pool_size"] = cell.budget
    return {**found, **tls(stand, cell), **cell.settings}


def tls(stand: Stand, cell: Cell) -> dict[str, object]:
    """TLS as the cell says, the server's certificate checked where we know who signed it."""
    found: dict[str, object] = {"server_tls_sslmode": "disable"}
    if cell.tls in ("server", "both"):
        found["server_tls_sslmode"] = "require"
        if stand.own:
            found.update(server_tls_sslmode="verify-ca", server_tls_ca_file=f"{stand.tls_folder}/ca.crt")
    if cell.tls in ("client", "both"):
        found["client_tls_sslmode"] = "require"
        found["client_tls_cert_file"] = f"{stand.tls_folder}/server.crt"
        found["client_tls_key_file"] = f"{stand.tls_folder}/server.key"
    return found


def shape(options: Options, part: Part) -> dict[str, Any]:
    """What only pgshoal is told."""
    found: dict[str, Any] = {"workers": part.processes, "engine": options.engine}
    if options.budget is not None:
        found["budget"] = options.budget
    if options.accept is not None:
        found["accept_balance"] = options.accept
    if options.pin:
        found["worker_cpu_affinity"] = ",".join(map(str, part.cpus(sorted(os.sched_getaffinity(0)))))
    return found


def databases_of(stand: Stand, servers: Servers) -> dict[str, str]:
    """The stand's database by its own name, the server that never reads, and others by the names given."""
    found = {
        stand.dbname: f"host={stand.host} port={stand.port}",
        "deaf": f"host={stand.deaf.host} port={stand.deaf.port}",
    }
    more = {name: f"host={host} port={port} dbname={stand.dbname}" for name, (host, port) in servers.items()}
    return {**found, **more}
