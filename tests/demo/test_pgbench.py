"""pgbench's report is read whatever its version prints besides."""

from __future__ import annotations

import pytest

from pgshoal.demo import pgbench
from tests.support.postgres import Postgres

RECONNECTING = """transaction type: <builtin: select only>
number of clients: 20
number of transactions actually processed: 31234
number of failed transactions: 2 (0.006%)
latency average = 1.921 ms
average connection time = 0.173 ms
tps = 10411.531700 (including reconnection times)
"""


def test_figures_are_read() -> None:
    """Rate, counts, latency and connection time come out as numbers; what is absent is zero."""
    report = pgbench.parse(RECONNECTING)
    assert report == pgbench.Report(
        tps=10411.5317, transactions=31234, failed=2, latency_ms=1.921, latency_stddev_ms=0.0, connect_ms=0.173
    )


def test_a_report_without_a_rate_is_an_error() -> None:
    """Text that holds no rate is never taken for a result."""
    with pytest.raises(RuntimeError, match="no rate"):
        pgbench.parse("pgbench: error: connection failed")


def test_a_real_run(pg18: Postgres) -> None:
    """The tables are made and a short run against a real server processes what it was told to."""
    pgbench.fill(pg18)
    target = pgbench.Target(pg18.host, pg18.port)
    report = pgbench.measure(pg18.programs["pgbench"], target, ["-S", "-c", "2", "-t", "50"])
    assert (report.transactions, report.failed) == (100, 0)
