"""Charts of bars say in words what they draw."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import pytest
from matplotlib.patches import Rectangle

from pgshoal.bench.model import Chart, Pick, Published
from pgshoal.bench.results import ladders, paint
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.published import Beside
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
    """One rung for each ratio that was measured, on an axis with a scale; figures that are no ratios have their own."""
    found = [one for chapter in run.chapters for one in chapter.published]
    figure = ladders.published(found)
    assert figure is not None
    assert sum(text.startswith("scaling: ") for text in words(figure)) == 4
    ratios, figures = figure.axes
    for axis in (ratios, figures):
        low, high = axis.get_xlim()
        assert axis.get_xscale() == "log"
        assert len([tick for tick in axis.get_xticklabels() if tick.get_text()]) > 1
        assert low < 1 < high
    assert any("clients served" in text.get_text() for text in figures.texts)


def test_sources_of_one_experiment_are_told_apart_and_zero_has_a_place() -> None:
    """Two lines of the same words name where they were published; a share of nothing is drawn at the left end."""
    found = [
        Beside("x", Published("rate", 2.0, Pick("tps"), source=source), "pgshoal", "pgshoal", here)
        for source, here in (("one host", 1.0), ("another host", 0.0))
    ]
    figure = ladders.published(found)
    assert figure is not None
    assert {"x: rate, pgshoal (one host)", "x: rate, pgshoal (another host)", "2 / 0"} <= set(words(figure))


def test_legends_keep_inside_the_picture(run: Run) -> None:
    """Four words do not fit beside each other."""
    figure = drawn(Chart("cpu", "CPU"), cells(run, "scaling"))
    figure.savefig(BytesIO())
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][-1] == "load"
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_cpu_without_a_valid_run_is_pale() -> None:
    """As other bars are."""
    row = replace(run_of("x", PGSHOAL), figures={"seconds": 1.0}, cpu_s={"pooler/0": 1.0}, invalid=("steal: much",))
    assert [bar.get_alpha() for bar in drawn(Chart("cpu", "CPU"), [cell(row)]).axes[0].patches] == [paint.PALE]
