"""The comparison the demonstration makes: the same load straight at PostgreSQL and through the pooler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pgshoal.demo.cluster import Cluster
from pgshoal.demo.pgbench import Report, Target, measure

SAMPLE_EVERY_S = 0.1
COUNT = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
STARTED = "select coalesce(sum(sessions), 0)::bigint from pg_stat_database"


@dataclass(frozen=True)
class Load:
    """One kind of traffic, by the name a reader sees."""

    title: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What one load did to one target."""

    load: Load
    way: str
    report: Report
    backends_at_peak: int
    backends_started: int


def loads(clients: int, seconds: int) -> tuple[Load, ...]:
    """Clients that connect anew for each query, and clients that stay connected."""
    common = ("-S", "-c", str(clients), "-j", "2", "-T", str(seconds))
    return (
        Load("reconnecting", ("-C", *common)),
        Load("persistent", common),
    )


class BackendWatch:
    """Counts PostgreSQL's client backends while a load runs, from a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        import psycopg

        dsn = f"host={cluster.socket_dir} port={cluster.port} user={cluster.superuser} dbname=template1"
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = self._ask(STARTED)
        self.peak = 0

    def _ask(self, sql: str) -> int:
        row = self._conn.execute(sql.encode()).fetchone()
        return int(row[0]) if row else 0

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_EVERY_S):
            self.peak = max(self.peak, self._ask(COUNT))

    @property
    def started(self) -> int:
        """How many sessions PostgreSQL has begun since the watch began."""
        return self._ask(STARTED) - self._before

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def close(self) -> None:
        """Closes the watching connection."""
        self._conn.close()


def compare(
    cluster: Cluster, ways: Sequence[tuple[str, Target]], todo: Sequence[Load], tell: Callable[[str], None]
) -> list[Outcome]:
    """Runs every load one way, then the next way, so that idle pooled backends are not counted as direct ones."""
    results = []
    for way, target in ways:
        for load in todo:
            tell(f"{load.title}, {way}")
            watch = BackendWatch(cluster)
            try:
                with watch:
                    report = measure(cluster.programs["pgbench"], target, load.arguments)
                results.append(Outcome(load, way, report, watch.peak, watch.started))
            finally:
                watch.close()
    return sorted(results, key=lambda outcome: todo.index(outcome.load))
