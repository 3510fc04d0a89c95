"""The sentence of an experiment is computed from its rows, and admits what is in doubt."""

from __future__ import annotations

from dataclasses import replace

from pgshoal.bench.model import Experiment, Metric, Row, Target, Value
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.findings import bounds_met, finding
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, run_of


def said(name: str, *rows: Row) -> str:
    """The sentence of an experiment of that name."""
    return finding(Experiment(name, "", "", lambda knobs: (), (Metric("tps", ""),)), gathered(rows))


def row(name: str, target: Target, variant: dict[str, Value] | None = None, **figures: float) -> Row:
    """One run."""
    return replace(run_of(name, target, 0, 0, **(variant or {})), figures=figures)


def test_of_the_planted_folder(run: Run) -> None:
    """Each chapter says what was planted."""
    sentences = {chapter.name: chapter.finding for chapter in run.chapters}
    assert sentences["burst"] == "Direct lost 75 of 100 clients; pgbouncer and pgshoal lost none."
    assert sentences["connect"].startswith(
        "Connecting for each query, pgbouncer does 1.92 times what direct does, p99 "
    )
    assert "with 256 clients 2 processes of pgbouncer do 1.79 times the work of one" in sentences["scaling"]
    assert sentences["scaling"].endswith("1 of 14 cells has no valid run.")
    assert sentences["compare"] == (
        "1 of 3 bounds are met; missed: "
        "compare-simple-16 on pgshoal engine=epoll and compare-tls on pgshoal engine=uring."
    )


def test_nobody_lost_a_client() -> None:
    """Where all were served, that is the news."""
    rows = [row("burst", target, succeeded=100, failed=0) for target in (PGBOUNCER, PGSHOAL)]
    assert said("burst", *rows) == "Every client was served: by pgbouncer and pgshoal."


def test_more_processes_may_bring_nothing() -> None:
    """One process may do the most."""
    four = replace(PGSHOAL, processes=4)
    text = said("scaling", row("scaling", PGSHOAL, tps=100), row("scaling", four, tps=90))
    assert text == "one process of pgshoal does the most.".capitalize()


def test_tls_is_told_by_side() -> None:
    """Each side's part of the rate."""
    rates = {"none": 100, "client": 88, "server": 84, "both": 65}
    rows = [row("tls", PGSHOAL, {"tls": side}, tps=rate) for side, rate in rates.items()]
    sides = "12% less on the client side, 16% less on the server side and 35% less on both sides"
    assert said("tls", *rows) == f"With TLS pgshoal does {sides}."
    costs = {"none": 10.0, "client": 12.0, "both": 15.0}
    rows = [row("tls", PGSHOAL, {"tls": side}, tps=99, cpu_us_per_tx=cost) for side, cost in costs.items()]
    sides = "20% more on the client side and 50% more on both sides"
    assert said("tls", *rows) == f"In CPU for a transaction, with TLS pgshoal needs {sides}."


def test_cancels_are_counted() -> None:
    """So many of so many, with and without peering."""
    alone = replace(PGBOUNCER, processes=4, options=(("peers", "off"),))
    fleet = replace(PGBOUNCER, processes=4)
    text = said("cancel", row("cancel", alone, succeeded=23, failed=77), row("cancel", fleet, succeeded=100, failed=0))
    assert text == "Cancels that arrived: 100 of 100 by pgbouncer x4 and 23 of 100 by pgbouncer x4 peers=off."


def test_backends_are_told_with_their_memory() -> None:
    """What the same clients kept."""
    rows = (row("backends", DIRECT, backends_max=20, postgres_rss_mb=250.4), row("backends", PGSHOAL, backends_max=10))
    assert said("backends", *rows) == (
        "The same clients kept 20 backends with direct (250 MB of PostgreSQL) and 10 backends with pgshoal."
    )


def test_exports_and_the_api_are_told_together() -> None:
    """The API's p99 and the throughput in each layout."""
    rows = [
        row("mixed", PGSHOAL, {"layout": layout}, p99_ms=slow, throughput_mib_s=speed)
        for layout, slow, speed in (("shared", 2.5, 992), ("isolated", 2.4, 582))
    ]
    assert said("mixed", *rows) == (
        "pgshoal, layout shared: p99 of the API 2.50 ms, exports 992 MiB/s; "
        "pgshoal, layout isolated: p99 of the API 2.40 ms, exports 582 MiB/s."
    )


def test_an_unknown_experiment_shows_its_first_figure() -> None:
    """Nothing is claimed beyond it."""
    assert said("tomorrow", row("tomorrow", PGSHOAL, tps=100)) == "Transactions/s: pgshoal 100."


def test_failed_runs_are_no_news() -> None:
    """Where every run failed, that is what is said."""
    assert said("connect", replace(run_of("connect", PGSHOAL), error="no")) == "Nothing came out: every run failed."


def test_without_a_valid_run_there_is_no_conclusion() -> None:
    """Nothing is compared in words, and no figure is given; the checks are named."""
    costs = {"none": 10.0, "client": 9.4, "both": 15.0}
    rows = [row("tls", PGSHOAL, {"tls": side}, tps=99, cpu_us_per_tx=cost) for side, cost in costs.items()]
    doubtful = [replace(one, invalid=("machine-free: 0 % idle", "steady: no")) for one in rows]
    assert said("tls", *doubtful) == "No conclusion: no run is valid (machine-free and steady)."
    assert said("tomorrow", *doubtful) == "No conclusion: no run is valid (machine-free and steady)."


def test_what_is_not_valid_is_not_compared() -> None:
    """A cell without a valid run is left out of the sentence, which says so; one that failed is not forgotten."""
    wild = replace(row("connect", PGSHOAL, units_per_s=9999), invalid=("steady: no",))
    rows = (row("connect", DIRECT, units_per_s=10), row("connect", PGBOUNCER, units_per_s=20), wild)
    assert said("connect", *rows) == (
        "Connecting for each query, pgbouncer does 2.00 times what direct does. 1 of 3 cells has no valid run."
    )
    served, broken = row("burst", DIRECT, succeeded=5, failed=0), replace(run_of("burst", PGSHOAL), error="no")
    assert said("burst", served, broken) == "pgshoal failed; direct lost none. 1 of 2 cells has no valid run."


def test_bounds_that_were_not_judged_are_no_conclusion() -> None:
    """Of several experiments, too."""
    metric = Metric("cpu_us_per_tx", "µs/tx", {"pgshoal": 1.0}, base="pgbouncer")
    experiment = Experiment("compare-x", "", "", lambda knobs: (), (metric,))
    rows = [row("compare-x", target, cpu_us_per_tx=cost) for target, cost in ((PGBOUNCER, 10.0), (PGSHOAL, 20.0))]
    doubtful = [replace(one, invalid=("steal: much",)) for one in rows]
    assert bounds_met([(experiment, gathered(doubtful))]) == (
        "No conclusion: none of 1 bounds could be judged for want of a valid run."
    )
    assert bounds_met([(experiment, gathered(rows))]) == "0 of 1 bounds are met; missed: compare-x on pgshoal."
