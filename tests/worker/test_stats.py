"""Totals, averages and the stats line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.worker.stats import Totals, added, averages, line, overall, total
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


def test_the_whole_is_weighted_by_what_was_done() -> None:
    """Times are per transaction of all databases; commands of the console count and take no time."""
    deltas = {
        "a": Totals(xact_count=300, query_count=300, xact_time_us=300),
        "b": Totals(xact_count=100, query_count=100, xact_time_us=100_100),
        "pgbouncer": Totals(xact_count=600, query_count=600),
    }
    found = overall(deltas, 1_000_000)
    assert (found.xact_count, found.query_count, found.xact_time_us) == (1000, 1000, 251)


def test_the_sum_of_nothing() -> None:
    """Is nothing."""
    assert total([]) == Totals()
    assert added([]) == {}


def test_the_supervisor_hears_of_what_has_changed(bench: Bench) -> None:
    """At most once a second, and not at all from an idle worker."""
    client = bench.login()
    (server,) = bench.serve()
    for _ in range(3):
        bench.say(client, m.query("select 1"))
        bench.answer(server)
    bench.worker.stats.console_queries = 2
    bench.pass_time(1)
    bench.pass_time(0.4)
    bench.pass_time(5)
    told = [fields["databases"] for verb, fields in bench.fleet.sent if verb == "totals"]
    assert len(told) == 1
    app, console = Totals(*told[0]["app"]), Totals(*told[0]["pgbouncer"])
    assert (app.query_count, app.client_login_count, console.query_count) == (3, 1, 2)
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    bench.pass_time(1)
    bench.say(client, m.message(b"X"))
    bench.worker.servers.close(bench.worker.servers.by_conn[server], "age")
    bench.worker.pools.drop(bench.worker.pools.by_key["app", "alice"])
    bench.pass_time(1)
    told = [fields["databases"] for verb, fields in bench.fleet.sent if verb == "totals"]
    assert [list(each) for each in told] == [["app", "pgbouncer"], ["app"], ["app"]]
    assert (Totals(*told[1]["app"]).query_count, told[2]["app"]) == (4, None)


def test_the_stats_line() -> None:
    """PgBouncer's words."""
    found = line(Totals(xact_count=2, query_count=3, client_bytes=5, xact_time_us=7))
    assert found.startswith("2 xacts/s, 3 queries/s, 0 client parses/s")
    assert found.endswith("in 5 B/s, out 0 B/s, xact 7 µs, query 0 µs, wait 0 µs")
