"""A fleet at work as evidence: its console, and the processors that its workers and PostgreSQL use meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pgshoal.bench.advice.bottleneck import Evidence
from pgshoal.bench.measure import process
from pgshoal.bench.measure.machine import Times, cores
from pgshoal.bench.results.words import number
from pgshoal.bench.targets.listeners import holds, inodes, is_ours, processes
from pgshoal.config.load import load
from pgshoal.console.client import Client, ConsoleError
from pgshoal.errors import ConfigError

Rows = Sequence[dict[str, str]]

EVERY_S: Final = 0.5
CONSOLE: Final = "pgbouncer"
ON_SERVERS: Final = ("pool", "database", "user")  # limits of SHOW LEDGER on server connections


@dataclass(frozen=True)
class Moment:
    """What had been counted at one moment. `cpu_ns` is by process, of workers and postmasters."""

    at_s: float
    transactions: float
    cpu_ns: dict[int, int]
    machine: Times


@dataclass(frozen=True)
class Limit:
    """A limit on server connections, over the time that it was watched."""

    name: str
    most: int
    used: int
    waiting: float


def watched(file: Path, seconds: float) -> tuple[Evidence, list[str]]:
    """What the fleet that runs from this file does for so long, and what was not to be seen; ValueError in words."""
    try:
        settings = load(str(file)).settings
        ourselves = os.geteuid()
        with Client(settings) as console:
            os.seteuid(ourselves)  # root has become the owner for the login; it sees PostgreSQL's processes
            return watch(console, seconds)
    except (ConsoleError, ConfigError) as error:
        raise ValueError(str(error)) from None


def watch(console: Client, seconds: float) -> tuple[Evidence, list[str]]:
    """The evidence of one session of the console."""
    workers = [row for row in console.rows("SHOW WORKERS") if row["state"] == "running"]
    pids = [int(row["pid"]) for row in workers]
    servers = postmasters(console.rows("SHOW DATABASES"))
    before = moment(console, pids, servers)
    ledgers = []
    while (left_s := before.at_s + seconds - time.monotonic()) > 0:
        ledgers.append(console.rows("SHOW LEDGER"))
        time.sleep(min(EVERY_S, left_s))
    after = moment(console, pids, servers)
    seen = evidence(before, after, console.rows("SHOW WORKERS"), servers, tightest(ledgers))
    return seen, notes(seen, after.at_s - before.at_s, servers)


def moment(console: Client, workers: Sequence[int], servers: Sequence[int] | None) -> Moment:
    """Reads it."""
    rows = console.rows("SHOW STATS")
    transactions = sum(float(row["total_xact_count"]) for row in rows if row["database"] != CONSOLE)
    spent = process.cpu_of(workers)
    for pid in servers or ():
        spent[pid] = process.cpu_with_reaped_ns(pid, lambda pid=pid: process.family(pid))  # type: ignore[misc]
    return Moment(time.monotonic(), transactions, spent, Times.now())


def evidence(
    before: Moment, after: Moment, workers: Rows, servers: Sequence[int] | None, limit: Limit | None
) -> Evidence:
    """What lies between two moments; the console's own figure for workers whose processes are not to be seen."""
    seconds = after.at_s - before.at_s
    spent = {
        pid: (now - before.cpu_ns[pid]) / 1e9 / seconds for pid, now in after.cpu_ns.items() if pid in before.cpu_ns
    }
    running = [row for row in workers if row["state"] == "running"]
    by_worker = tuple(spent.get(int(row["pid"]), float(row["cpu"]) / 100) for row in running)
    postgres = sum(spent[pid] for pid in servers if pid in spent) if servers else None
    idle = after.machine.shares_since(before.machine).get("machine_idle")
    others = None
    if idle is not None:
        others = max((1 - idle) * (os.cpu_count() or 1) - sum(by_worker) - (postgres or 0.0), 0.0)
    return Evidence(
        workers=len(running),
        rate=max(after.transactions - before.transactions, 0.0) / seconds,
        by_worker=by_worker,
        cores=cores(),
        postgres=postgres,
        postgres_cores=cores() if servers else None,
        load=others,
        idle=idle,
        same_host=bool(servers),
        waiting=limit.waiting if limit else None,
        servers=limit.used if limit else None,
        budget=limit.most if limit else None,
        limit=limit.name if limit else "",
        clients=sum(int(row["clients"]) for row in running),
    )


def tightest(ledgers: Sequence[Rows]) -> Limit | None:
    """The limit on servers for which most clients waited, of those that were reached; None when none was."""
    seen: dict[str, list[dict[str, str]]] = {}
    for row in (row for rows in ledgers for row in rows if row["kind"] in ON_SERVERS and int(row["limit"])):
        name = " ".join(filter(None, (row["kind"], row.get("database", ""), row.get("user", ""))))
        seen.setdefault(name, []).append(row)
    found = [
        Limit(
            name,
            int(rows[-1]["limit"]),
            max(int(row["used"]) for row in rows),
            sum(int(row["waiting"]) for row in rows) / len(rows),
        )
        for name, rows in seen.items()
    ]
    return max((one for one in found if one.used >= one.most), key=lambda one: one.waiting, default=None)


def postmasters(databases: Rows) -> list[int] | None:
    """The PostgreSQLs behind the databases; None when one of them is not on this machine, or not to be seen."""
    places = {(row.get("host", ""), int(row["port"])) for row in databases if row["name"] != CONSOLE}
    found = [postmaster(host, port) for host, port in places]
    return None if not found or None in found else sorted({pid for pid in found if pid is not None})


def postmaster(host: str, port: int) -> int | None:
    """The process that listens there: a folder's lock file names it, of a port it is who holds the socket."""
    if host.startswith("/"):
        return locked(Path(host) / f".s.PGSQL.{port}.lock")
    if not host or not is_ours(host):
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes(port)}
    return next((pid for pid in processes() if wanted and is_postgres(pid) and holds(pid, wanted)), None)


def is_postgres(pid: int) -> bool:
    """Whether it is PostgreSQL by its name; a balancer or another pooler may listen in its place."""
    try:
        return (process.PROC / str(pid) / "comm").read_text().strip() in ("postgres", "postmaster")
    except OSError:
        return False


def locked(file: Path) -> int | None:
    """The process that a lock file names, if it lives."""
    try:
        pid = int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if process.birth(pid) is not None else None


def notes(seen: Evidence, seconds: float, servers: Iterable[int] | None) -> list[str]:
    """What was looked at."""
    used = ", ".join(f"{one:.0%}" for one in seen.by_worker)
    lines = [
        f"Watched for {seconds:.0f} s: {number(seen.rate)} transactions/s of {seen.clients} clients;"
        f" workers used {used} of a core each."
    ]
    if seen.limit:
        lines.append(
            f"The {seen.limit} reached its limit of {seen.budget}; {number(seen.waiting)} clients waited on average."
        )
    if servers is None:
        lines.append("PostgreSQL is not on this machine, or not to be seen from here: its CPU is not part of this.")
    return lines
