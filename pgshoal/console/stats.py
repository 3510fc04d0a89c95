"""The console's own counters, and the rows of SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from pgshoal.console.tables import COUNTERS
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.worker.stats import Totals, averages

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

Row = tuple[str | int | None, ...]


class ConsoleCounts:
    """Commands and logins of the console; they make the row `pgbouncer` of SHOW STATS."""

    def __init__(self, now_us: int) -> None:
        self.queries = 0
        self.logins = 0
        self._older = self._newer = Totals()
        self._older_us = self._newer_us = now_us

    def totals(self) -> Totals:
        """Since the start; each command counts as a transaction too."""
        return Totals(xact_count=self.queries, query_count=self.queries, client_login_count=self.logins)

    def averages(self, now_us: int, period_us: int) -> Totals:
        """Per second over the last whole period; it ends when somebody looks after it is over."""
        if now_us - self._newer_us >= period_us:
            self._older, self._older_us = self._newer, self._newer_us
            self._newer, self._newer_us = self.totals(), now_us
        return averages(self._newer.since(self._older), self._newer_us - self._older_us)


def by_database(worker: Worker, counts: ConsoleCounts) -> list[tuple[str, Totals, Totals]]:
    """(database, totals, averages) in order of names, the console's own row among them."""
    found = {**worker.stats.by_database(), CONSOLE_DATABASE: (counts.totals(), _own_averages(worker, counts))}
    return [(name, *found[name]) for name in sorted(found)]


def _own_averages(worker: Worker, counts: ConsoleCounts) -> Totals:
    period_us = max(worker.config.settings.stats_period, 1) * 1_000_000
    return counts.averages(worker.engine.now_us(), period_us)


def stats_rows(worker: Worker, counts: ConsoleCounts) -> list[Row]:
    """SHOW STATS."""
    return [(name, *astuple(total), *astuple(mean)) for name, total, mean in by_database(worker, counts)]


def totals_only_rows(worker: Worker, counts: ConsoleCounts) -> list[Row]:
    """SHOW STATS_TOTALS."""
    return [(name, *astuple(total)) for name, total, _ in by_database(worker, counts)]


def averages_only_rows(worker: Worker, counts: ConsoleCounts) -> list[Row]:
    """SHOW STATS_AVERAGES."""
    return [(name, *astuple(mean)) for name, _, mean in by_database(worker, counts)]


def overall_rows(worker: Worker, counts: ConsoleCounts) -> list[Row]:
    """SHOW TOTALS: one row for each counter, then one for each average."""
    total, mean = worker.stats.overall()
    total, mean = total.plus(counts.totals()), mean.plus(_own_averages(worker, counts))
    names = [name for _, _, name, _ in COUNTERS]
    rows: list[Row] = [(f"total_{name}", value) for name, value in zip(names, astuple(total), strict=True)]
    return rows + [(f"avg_{name}", value) for name, value in zip(names, astuple(mean), strict=True)]
