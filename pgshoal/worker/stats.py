"""Totals and averages per database, and the stats line of the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from pgshoal.engine.contract import PoolId, PoolStats
from pgshoal.worker.records import Pool

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker


@dataclass(frozen=True, slots=True)
class Totals(PoolStats):
    """Counts since the start: what engines count for a pool, and logins. The order is that of SHOW STATS_TOTALS."""

    client_login_count: int = 0

    def plus(self, other: Totals) -> Totals:
        """The sum of both."""
        return Totals(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, earlier: Totals) -> Totals:
        """What came after `earlier`; never below zero, because a pool's counters die with it."""
        return Totals(*(max(0, a - b) for a, b in zip(astuple(self), astuple(earlier), strict=True)))


def total(parts: Iterable[Totals]) -> Totals:
    """The sum of all."""
    whole = Totals()
    for part in parts:
        whole = whole.plus(part)
    return whole


def averages(delta: Totals, period_us: int) -> Totals:
    """Counts and bytes per second, times per transaction, query or wait."""
    if period_us <= 0:
        return Totals()
    per_second = {f.name: getattr(delta, f.name) * 1_000_000 // period_us for f in fields(Totals)}
    per_second["xact_time_us"] = delta.xact_time_us // max(delta.xact_count, 1)
    per_second["query_time_us"] = delta.query_time_us // max(delta.query_count, 1)
    per_second["wait_time_us"] = delta.wait_time_us // max(delta.server_assignment_count, 1)
    return Totals(**per_second)


class Stats:
    """Takes a snapshot every stats_period; the averages are those of the last whole period."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        now_us = worker.engine.now_us()
        self._older_us, self._newer_us = now_us, now_us
        self._older: dict[PoolId, Totals] = {}
        self._newer: dict[PoolId, Totals] = {}

    def of_pool(self, pool: Pool) -> Totals:
        """A pool's totals now."""
        raw = self.worker.engine.pool_stats(pool.id)
        return Totals(
            raw.server_assignment_count,
            raw.xact_count,
            raw.query_count,
            raw.client_bytes,
            raw.server_bytes,
            raw.xact_time_us,
            raw.query_time_us,
            raw.wait_time_us,
            raw.client_parse_count,
            raw.server_parse_count,
            raw.bind_count,
            pool.client_logins,
        )

    def by_database(self) -> dict[str, tuple[Totals, Totals]]:
        """Database -> (totals, averages), for those that have a pool."""
        result: dict[str, tuple[Totals, Totals]] = {}
        period_us = self._newer_us - self._older_us
        names = dict.fromkeys(pool.database.name for pool in self.worker.pools.by_id.values())
        for name in names:
            pools = [pool for pool in self.worker.pools.by_id.values() if pool.database.name == name]
            delta = total(self._delta(pool.id) for pool in pools)
            result[name] = total(self.of_pool(pool) for pool in pools), averages(delta, period_us)
        return result

    def _delta(self, number: PoolId) -> Totals:
        return self._newer.get(number, Totals()).since(self._older.get(number, Totals()))

    def overall(self) -> tuple[Totals, Totals]:
        """(totals, averages) of all databases together."""
        pools = list(self.worker.pools.by_id.values())
        delta = total(self._delta(pool.id) for pool in pools)
        return total(map(self.of_pool, pools)), averages(delta, self._newer_us - self._older_us)

    def tick(self, now_us: int) -> None:
        """Take a snapshot if the period is over, and log it."""
        settings = self.worker.config.settings
        period_us = max(settings.stats_period, 1) * 1_000_000
        if now_us - self._newer_us < period_us:
            return
        self._older, self._older_us = self._newer, self._newer_us
        self._newer = {pool.id: self.of_pool(pool) for pool in self.worker.pools.by_id.values()}
        self._newer_us = now_us
        text = self.line()
        if settings.log_stats:
            self.worker.log.log(f"stats: {text.replace('µs', 'us')}")
        self.worker.notify(f"STATUS=stats: {text}")

    def line(self) -> str:
        """The averages in PgBouncer's words."""
        avg = self.overall()[1]
        return (
            f"{avg.xact_count} xacts/s, {avg.query_count} queries/s, {avg.client_parse_count} client parses/s, "
            f"{avg.server_parse_count} server parses/s, {avg.bind_count} binds/s, {avg.client_login_count} client "
            f"logins/s, in {avg.client_bytes} B/s, out {avg.server_bytes} B/s, xact {avg.xact_time_us} µs, "
            f"query {avg.query_time_us} µs, wait {avg.wait_time_us} µs"
        )

    def forget_pool(self, pool: Pool) -> None:
        """The pool is dropped."""
        self._older.pop(pool.id, None)
        self._newer.pop(pool.id, None)
