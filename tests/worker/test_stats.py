"""Totals, averages and the stats line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.worker.stats import Totals, averages
from tests.support import messages as m
from tests.worker.bench import Bench, close


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker."""
    made = Bench(server_idle_timeout=0.0)
    yield made
    close(made)


def test_averages_are_per_second_and_per_event() -> None:
    """Counts and bytes are per second; times are per transaction, query and assignment."""
    delta = Totals(
        server_assignment_count=10,
        xact_count=100,
        query_count=200,
        client_bytes=5000,
        xact_time_us=1000,
        query_time_us=4000,
        wait_time_us=500,
    )
    found = averages(delta, 10_000_000)
    assert (found.xact_count, found.query_count, found.client_bytes) == (10, 20, 500)
    assert (found.xact_time_us, found.query_time_us, found.wait_time_us) == (10, 20, 50)


def test_no_period_no_averages() -> None:
    """Before the first period is over everything is zero."""
    assert averages(Totals(xact_count=5), 0) == Totals()


def test_a_period_ends_with_a_log_line(bench: Bench) -> None:
    """After stats_period the line names the rates of that period, and SHOW STATS sees the same."""
    client = bench.login()
    (server,) = bench.serve()
    for _ in range(120):
        bench.say(client, m.query("select 1"))
        bench.answer(server)
    bench.pass_time(59)
    assert not bench.log.has("stats: ")
    bench.pass_time(1)
    assert bench.log.has("stats: 2 xacts/s, 2 queries/s, 0 client parses/s")
    totals, average = bench.worker.stats.by_database()["app"]
    assert (totals.query_count, totals.client_login_count, average.query_count) == (120, 1, 2)
    bench.pass_time(60)
    assert bench.worker.stats.by_database()["app"][1].query_count == 0
