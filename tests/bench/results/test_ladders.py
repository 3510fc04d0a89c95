"""Charts of bars say in words what they draw."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.patches import Rectangle

from pgshoal.bench.model import Chart
from pgshoal.bench.results import ladders
from pgshoal.bench.results.chapters import Run
from tests.bench.results.drawing import cells, drawn, words
from tests.bench.results.planted import PGSHOAL, cell, run_of


def test_bars_of_cpu_are_stacked(run: Run) -> None:
    """Processes of the pooler, PostgreSQL and the load one after the other, their sum at the end."""
    groups = [group for group in cells(run, "scaling") if group.first.target == "pgshoal x2"]
    figure = drawn(Chart("cpu", "CPU"), groups[:1])
    bars = [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert len(bars) == 4
    assert [bar.get_x() for bar in bars[1:]] == pytest.approx([bar.get_x() + bar.get_width() for bar in bars[:-1]])
    assert sum(bar.get_width() for bar in bars) == pytest.approx(sum(groups[0].cores().values()))


def test_outcomes_are_counted_in_words(run: Run) -> None:
    """Who failed is written, not only drawn."""
    assert words(drawn(Chart("outcomes", "Served"), cells(run, "burst"))) == [
        "direct", "pgbouncer", "pgshoal", "25 of 100", "100 of 100", "100 of 100",
    ]  # fmt: skip


def test_bars_without_a_valid_run_say_so() -> None:
    """Doubtful figures are pale, and marked in words."""
    group = cell(replace(run_of("x", PGSHOAL), figures={"tps": 5.0}, invalid=("samples: few",)))
    assert words(drawn(Chart("bars", "Rate", "tps"), [group])) == ["pgshoal (no valid run)", "5"]


def test_published_ratios_are_rings_and_dots(run: Run) -> None:
    """One rung for each ratio that was measured; plain figures, and what was not measured, stay in the table."""
    found = [one for chapter in run.chapters for one in chapter.published]
    figure = ladders.published(found)
    assert figure is not None
    assert sum(text.startswith("scaling: ") for text in words(figure)) == 4
    assert not any("clients served" in text for text in words(figure))
