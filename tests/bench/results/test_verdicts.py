"""Ratios are judged against the bounds of their own target; an error never looks like a result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgshoal.bench.model import Experiment, Metric, Row, Target
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.verdicts import Verdict, verdicts
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, run_of


def experiment(*metrics: Metric) -> Experiment:
    """A declaration with these metrics."""
    return Experiment("x", "", "", lambda knobs: (), metrics)


def rows(target: Target, *values: float, figure: str = "cpu") -> list[Row]:
    """One row for each value."""
    return [replace(run_of("x", target, number), figures={figure: value}) for number, value in enumerate(values)]


CPU = Metric("cpu", "µs", {"pgshoal": 0.8}, base="pgbouncer")


def judged(metric: Metric, found: list[Row]) -> list[Verdict]:
    """The verdicts of one metric."""
    return verdicts(experiment(metric), gathered(found))


@pytest.mark.parametrize(("value", "met"), [(15.5, True), (26.0, False)])
def test_a_verdict_compares_medians(value: float, met: bool) -> None:
    """One wild run does not move the ratio; the base gets no line of its own."""
    (verdict,) = judged(CPU, rows(PGBOUNCER, 30, 31, 90) + rows(PGSHOAL, value, value, 2))
    assert (verdict.value, verdict.reference, verdict.met) == (value, 31, met)
    assert verdict.ratio == pytest.approx(value / 31)


def test_the_line_says_all_of_it() -> None:
    """Metric, base, both medians, ratio, bound, and whether it is met."""
    (verdict,) = judged(CPU, rows(PGBOUNCER, 31) + rows(PGSHOAL, 15.5))
    assert verdict.cells() == ("x", "cpu, µs against pgbouncer", "pgshoal", "15.5", "31", "0.50", "≤ 0.80", "yes")


@pytest.mark.parametrize("loser", [PGBOUNCER, PGSHOAL])
def test_an_error_is_a_missed_bound(loser: Target) -> None:
    """If a run on either side failed, the line says so and the bound is not met, whatever the other runs gave."""
    failed = replace(run_of("x", loser, 1), error="it fell over")
    (verdict,) = judged(CPU, [*rows(PGBOUNCER, 30), *rows(PGSHOAL, 15), failed])
    assert verdict.met is False
    assert verdict.cells()[3] == "failed"


def test_what_rests_on_no_valid_run_is_not_judged() -> None:
    """Neither met nor missed."""
    doubtful = [replace(row, invalid=("machine-free: busy",)) for row in rows(PGBOUNCER, 30)]
    (verdict,) = judged(CPU, doubtful + rows(PGSHOAL, 15))
    assert verdict.met is None
    assert verdict.cells()[-1] == "not judged"


def test_a_bound_does_not_vanish_with_a_spoiled_run() -> None:
    """A run without a database has no figure that counts, but its line stands, and says so."""
    spoiled = [replace(row, invalid=("alive: PostgreSQL ended",)) for row in rows(PGSHOAL, 15)]
    (verdict,) = judged(CPU, rows(PGBOUNCER, 30) + spoiled)
    assert (verdict.value, verdict.met) == (None, None)
    assert verdict.cells()[-1] == "not judged"


def test_more_may_be_better() -> None:
    """A rate is held from below."""
    metric = Metric("tps", "", {"pgshoal": 1.0}, higher_is_better=True, base="pgbouncer")
    found = [judged(metric, rows(PGBOUNCER, 100, figure="tps") + rows(PGSHOAL, v, figure="tps")) for v in (99, 101)]
    assert [one[0].met for one in found] == [False, True]


def test_absolute_bounds_need_no_base() -> None:
    """The value itself is judged; targets without a bound get no line."""
    metric = Metric("mb", "MB", {"pgshoal": 16.0}, absolute=True, base="pgbouncer")
    (verdict,) = judged(metric, rows(PGSHOAL, 12, figure="mb") + rows(PGBOUNCER, 99, figure="mb"))
    assert (verdict.group.first.target, verdict.met, verdict.ratio) == ("pgshoal", True, None)


def test_the_base_is_that_of_the_same_variant() -> None:
    """Cells are held against the base under the same load, or against one that has no such variant."""
    found = [
        replace(run_of("x", target, clients=clients), figures={"cpu": value})
        for target, clients, value in ((PGBOUNCER, 1, 10.0), (PGBOUNCER, 2, 20.0), (PGSHOAL, 1, 5.0), (PGSHOAL, 2, 5.0))
    ]
    assert [verdict.ratio for verdict in judged(CPU, found)] == [0.5, 0.25]
    bare = [*rows(DIRECT, 50), *found]
    against = judged(Metric("cpu", "µs", base="direct"), bare)
    assert [verdict.ratio for verdict in against] == [0.2, 0.1, 0.4, 0.1]
