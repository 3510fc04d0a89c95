"""Totals per database, as the fleet adds them up, and what averages are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Final

from pgshoal.engine.contract import PoolStats
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.worker.records import Pool
from pgshoal.worker.vitals import LoopLag

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: How often the supervisor hears of totals that have changed: what a crash may lose. Less than a second, so that every
#: third tick of the janitor is one that reports.
REPORT_US: Final = 900_000


@dataclass(frozen=True, slots=True)
class Totals(PoolStats):
    """Counts since the start: what engines count for a pool, and logins. The order is that of SHOW STATS_TOTALS."""

    client_login_count: int = 0

    @property
    def counts(self) -> Counts:
        """All of them, in order. There may be thousands of these, every second: `astuple` is too slow."""
        found: Counts = _ALL(self)
        return found

    def plus(self, other: Totals) -> Totals:
        """The sum of both."""
        return Totals(*map(add, self.counts, other.counts))

    def since(self, earlier: Totals) -> Totals:
        """What came after `earlier`; never below zero, because a pool's counters die with it."""
        return Totals(*(max(0, more) for more in map(sub, self.counts, earlier.counts)))


Counts = tuple[int, ...]
#: By database.
Counted = Mapping[str, Totals]
_OF_ENGINE: Final = attrgetter(*(f.name for f in fields(PoolStats)))
_ALL: Final = attrgetter(*(f.name for f in fields(Totals)))


def total(parts: Iterable[Totals]) -> Totals:
    """The sum of all."""
    return Totals(*(sum(column) for column in zip(*(part.counts for part in parts), strict=True)))


def added(parts: Iterable[Counted]) -> dict[str, Totals]:
    """The sum of all, database by database."""
    found: dict[str, list[Totals]] = {}
    for part in parts:
        for name, totals in part.items():
            found.setdefault(name, []).append(totals)
    return {name: each[0] if len(each) == 1 else total(each) for name, each in found.items()}


def averages(delta: Totals, period_us: int) -> Totals:
    """Counts and bytes per second, times per transaction, query or wait."""
    if period_us <= 0:
        return Totals()
    per_second = {f.name: getattr(delta, f.name) * 1_000_000 // period_us for f in fields(Totals)}
    per_second["xact_time_us"] = delta.xact_time_us // max(delta.xact_count, 1)
    per_second["query_time_us"] = delta.query_time_us // max(delta.query_count, 1)
    per_second["wait_time_us"] = delta.wait_time_us // max(delta.server_assignment_count, 1)
    return Totals(**per_second)


def overall(deltas: Counted, period_us: int) -> Totals:
    """The averages of all databases together. Commands of the console take no time, so they do not thin it out."""
    served = averages(total(delta for name, delta in deltas.items() if name != CONSOLE_DATABASE), period_us)
    return served.plus(averages(deltas.get(CONSOLE_DATABASE, Totals()), period_us))


def line(avg: Totals) -> str:
    """The stats line of the log, in PgBouncer's words."""
    return (
        f"{avg.xact_count} xacts/s, {avg.query_count} queries/s, {avg.client_parse_count} client parses/s, "
        f"{avg.server_parse_count} server parses/s, {avg.bind_count} binds/s, {avg.client_login_count} client "
        f"logins/s, in {avg.client_bytes} B/s, out {avg.server_bytes} B/s, xact {avg.xact_time_us} µs, "
        f"query {avg.query_time_us} µs, wait {avg.wait_time_us} µs"
    )


class Stats:
    """What this worker has counted; once a second the supervisor is told, so that it outlives the process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.lag = LoopLag()
        #: commands and logins of the console, which make the row `pgbouncer`
        self.console_queries = 0
        self.console_logins = 0
        #: by database: what replication clients that have left have counted; their pools end with them
        self._kept: dict[str, Totals] = {}
        self._reported: dict[str, Counts] = {}
        self._reported_us = worker.engine.now_us()

    def of_pool(self, pool: Pool) -> Totals:
        """A pool's totals now."""
        return Totals(*self._of_pool(pool))

    def _of_pool(self, pool: Pool) -> Counts:
        return (*_OF_ENGINE(self.worker.engine.pool_stats(pool.id)), pool.client_logins)

    def keep(self, database: str, totals: Totals) -> None:
        """A replication client has left, its pool is dropped."""
        self._kept[database] = totals.plus(self._kept.get(database, Totals()))

    def by_database(self) -> dict[str, Totals]:
        """Totals of each database that has a pool or had a stream, and of the console."""
        return {name: Totals(*counts) for name, counts in self.counts().items()}

    def counts(self) -> dict[str, Counts]:
        """The same as they travel. Each command of the console is a transaction too."""
        pools = self.worker.pools
        self._kept = {name: kept for name, kept in self._kept.items() if name in pools.databases}
        found = {name: kept.counts for name, kept in self._kept.items()}
        for pool in pools.by_id.values():
            name, mine = pool.database.name, self._of_pool(pool)
            found[name] = tuple(map(add, found[name], mine)) if name in found else mine
        found[CONSOLE_DATABASE] = Totals(
            xact_count=self.console_queries, query_count=self.console_queries, client_login_count=self.console_logins
        ).counts
        return found

    def tick(self, now_us: int) -> None:
        """The janitor was here."""
        self.lag.ticked(now_us)
        if now_us - self._reported_us >= REPORT_US:
            self._reported_us = now_us
            self.report()

    def report(self) -> None:
        """Tell the supervisor what has changed since the last time, if anything; None for what has no pool any more."""
        now, before = self.counts(), self._reported
        changed: dict[str, Counts | None] = {name: each for name, each in now.items() if before.get(name) != each}
        changed |= dict.fromkeys(before.keys() - now.keys())
        if changed:
            self._reported = now
            self.worker.fleet.send("totals", {"databases": changed})
