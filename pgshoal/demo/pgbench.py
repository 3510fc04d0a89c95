"""One run of pgbench and the figures it reports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgshoal.demo.account import run, unprivileged
from pgshoal.demo.cluster import Cluster

FIGURES = {
    "transactions": r"number of transactions actually processed: (\d+)",
    "failed": r"number of failed transactions: (\d+)",
    "latency_ms": r"latency average = ([\d.]+) ms",
    "latency_stddev_ms": r"latency stddev = ([\d.]+) ms",
    "connect_ms": r"average connection time = ([\d.]+) ms",
    "tps": r"tps = ([\d.]+)",
}


@dataclass(frozen=True)
class Report:
    """What pgbench said about one run; figures it did not print are zero."""

    tps: float
    transactions: int
    failed: int
    latency_ms: float
    latency_stddev_ms: float
    connect_ms: float


@dataclass(frozen=True)
class Target:
    """Where pgbench connects to; environment carries passwords and TLS settings."""

    host: str
    port: int
    user: str = "postgres"
    dbname: str = "postgres"
    environment: tuple[tuple[str, str], ...] = ()

    def env(self) -> Mapping[str, str]:
        """The libpq environment of a client of this target."""
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGDATABASE": self.dbname,
            **dict(self.environment),
        }


def parse(text: str) -> Report:
    """Reads the report; RuntimeError when it holds no rate at all."""
    found = {name: match[1] for name, pattern in FIGURES.items() if (match := re.search(pattern, text))}
    if "tps" not in found:
        raise RuntimeError(f"pgbench printed no rate:\n{text[-1000:]}")
    values = {name: float(found.get(name, 0)) for name in FIGURES}
    counts = {name: int(values.pop(name)) for name in ("transactions", "failed")}
    return Report(transactions=counts["transactions"], failed=counts["failed"], **values)


def measure(program: Path, target: Target, arguments: Sequence[str]) -> Report:
    """Runs pgbench to its end under the unprivileged account."""
    return parse(run([program, "-n", *arguments], unprivileged(), env=target.env()))


def fill(cluster: Cluster, dbname: str = "postgres", scale: int = 1) -> None:
    """Makes pgbench's tables, without progress lines."""
    target = Target(cluster.host, cluster.port, cluster.superuser, dbname)
    run([cluster.programs["pgbench"], "-i", "-q", "-s", str(scale)], cluster.account, env=target.env())
