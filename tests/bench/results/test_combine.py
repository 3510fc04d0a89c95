"""Runs of one cell give medians of what counts, and percentiles of all samples, never averages of percentiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pgshoal.bench.model import Row
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.combine import GRID, gathered, groups, reachable
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, cell, run_of


def made(repeat: int, tps: float, invalid: str = "", error: str = "") -> Row:
    """A run with one figure, or with none."""
    row = replace(run_of("x", PGSHOAL, repeat), invalid=(invalid,) if invalid else (), error=error)
    return row if error else replace(row, figures={"tps": tps})


def test_what_target_and_variant_both_say_is_said_once() -> None:
    """Nodes, options by their name, and options that the variant's word is the name of."""
    for target, variant, alone, label in (
        (replace(PGSHOAL, nodes=2), {"nodes": 2}, "pgshoal", "pgshoal 2 nodes"),
        (replace(PGSHOAL, options=(("peers", "off"),)), {"peers": "off"}, "pgshoal", "pgshoal peers=off"),
        (replace(PGSHOAL, options=(("isolated", "on"),)), {"exports": "isolated"}, "pgshoal", "pgshoal isolated=on"),
        (PGSHOAL, {"exports": "shared"}, "pgshoal", "pgshoal, exports shared"),
    ):
        group = cell(run_of("x", target, **variant))
        assert (group.target, group.label) == (alone, label)


def test_invalid_runs_do_not_count_while_valid_ones_are_there() -> None:
    """The median is of valid runs; failed ones never count."""
    group = cell(made(0, 100), made(1, 110), made(2, 5, invalid="steady: far off"), made(3, 0, error="fell over"))
    assert (group.value("tps"), group.valid) == (105, 2)
    assert group.failed == "fell over"


def test_invalid_runs_count_where_nothing_else_is_there() -> None:
    """Figures of a cell without a valid run are shown, and known to be doubtful."""
    group = cell(made(0, 100, invalid="a"), made(1, 120, invalid="b"))
    assert (group.value("tps"), group.valid) == (110, 0)


@pytest.mark.parametrize("name", ["alive", "counts", "budget"])
def test_spoiled_runs_never_count(name: str) -> None:
    """A run whose database was killed is not averaged with one on a full machine, nor shown when it is the only one."""
    spoiled = made(1, 5, invalid=f"{name}: so it was")
    assert cell(made(0, 100, invalid="machine-free: full"), spoiled).value("tps") == 100
    assert cell(spoiled).value("tps") is None


@pytest.mark.parametrize("name", ["stall", "steady"])
def test_runs_that_lie_apart_count_last(name: str) -> None:
    """A run that stood still is left out beside doubtful ones, and is shown when there is nothing else."""
    apart = made(1, 5, invalid=f"{name}: so it was")
    assert cell(made(0, 100, invalid="machine-free: full"), apart).value("tps") == 100
    assert cell(apart).value("tps") == 5


def test_variation_is_of_the_sample() -> None:
    """The coefficient of variation divides by n - 1 and needs two runs."""
    assert cell(made(0, 9), made(1, 11)).variation("tps") == pytest.approx(2**0.5 / 10)
    assert cell(made(0, 9)).variation("tps") is None


def test_percentiles_are_of_all_samples(tmp_path: Path) -> None:
    """A short slow run beside a long quick one: the percentile is that of all samples together."""
    book = Book(tmp_path)
    quick, slow = np.full(990, 1.0, np.float32), np.full(10, 50.0, np.float32)
    for repeat, samples in enumerate((quick, slow)):
        row = run_of("x", PGSHOAL, repeat)
        book.add(replace(row, figures={"p90_ms": float(np.percentile(samples, 90))}), samples)
    (group,) = groups(book)
    assert group.value("p90_ms") == 1.0  # not 25.5, which the mean, or the median, of both would be
    assert group.value("max_ms") == 50.0
    assert group.value("samples") == 1000


def test_a_curve_ends_where_samples_do() -> None:
    """A thousand samples tell nothing beyond p99.9."""
    assert reachable(1000)[-1] == pytest.approx(99.9, abs=0.01)
    assert reachable(10**9)[-1] == GRID[-1]


def test_cells_stand_in_a_readable_order() -> None:
    """By variant, numbers by size; direct first, few processes before many; whatever order they were run in."""
    targets = (PGSHOAL, replace(PGSHOAL, processes=16), replace(PGSHOAL, processes=2), DIRECT, PGBOUNCER)
    rows = [run_of("x", target, clients=clients) for clients in (256, 16) for target in targets]
    found = [(group.first.variant["clients"], group.first.target) for group in gathered(rows)]
    order = ["direct", "pgbouncer", "pgshoal", "pgshoal x2", "pgshoal x16"]
    assert found == [(clients, target) for clients in (16, 256) for target in order]


def test_sides_of_tls_stand_in_their_own_order() -> None:
    """None before client before server before both."""
    rows = [run_of("tls", PGSHOAL, tls=side) for side in ("both", "client", "none", "server")]
    assert [group.first.variant["tls"] for group in gathered(rows)] == ["none", "client", "server", "both"]


def test_cores_are_of_the_interval() -> None:
    """Seconds of CPU are divided by the seconds of the interval, process by process."""
    rows = [
        replace(made(repeat, 1), figures={"seconds": 5.0}, cpu_s={"pooler/0": cpu, "postgres": 1.0})
        for repeat, cpu in enumerate((4.0, 5.0))
    ]
    assert cell(*rows).cores() == pytest.approx({"pooler/0": 0.9, "postgres": 0.2})


def test_outcomes_are_counted_from_clients_where_there_is_no_figure() -> None:
    """Clients are the last word on who was served."""
    clients = [{"number": number, "succeeded": number < 3, "milliseconds": 1.0, "error": ""} for number in range(10)]
    counts = cell(replace(run_of("burst", DIRECT), clients=clients)).outcomes()
    assert counts == (3, 7)
    assert cell(made(0, 1)).outcomes() is None


def test_labels_say_nothing_twice() -> None:
    """A variant that the target's name holds already is left out."""
    told = replace(PGBOUNCER, processes=4, options=(("peers", "off"),))
    assert cell(run_of("x", told, peers="off")).label == "pgbouncer x4 peers=off"
    assert cell(run_of("x", replace(PGSHOAL, nodes=2), nodes=2)).label == "pgshoal 2 nodes"
    assert cell(run_of("x", PGSHOAL, nodes=1, clients=8)).label == "pgshoal, 1 node, 8 clients"
