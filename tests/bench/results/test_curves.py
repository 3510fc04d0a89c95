"""Charts of lines show what the cells say: ideals, distributions, budgets."""

from __future__ import annotations

import numpy as np
import pytest

from pgshoal.bench.model import Chart
from pgshoal.bench.results import paint
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.curves import nines
from tests.bench.results.drawing import cells, drawn, words
from tests.bench.results.planted import SCALING


def test_scaling_shows_the_ideal(run: Run) -> None:
    """A panel for each crowd; beside each measured line one that doubles with the processes; direct is level."""
    figure = drawn(SCALING.charts[0], cells(run, "scaling"))
    assert len(figure.axes) == 2
    axis = figure.axes[1]
    lines = [np.asarray(line.get_xydata()).tolist() for line in axis.lines]
    assert [[1, 29_000], [2, 51_910], [4, 69_600]] in [[[x, round(y)] for x, y in points] for points in lines]
    assert [[1, 29_000], [4, 4 * 29_000]] in lines
    assert {"ideal", "pgshoal", "pgbouncer", "direct"} <= set(words(figure))
    assert axis.get_xticks().tolist() == [1, 2, 4]


def test_the_axis_of_percentiles_gives_each_nine_the_same_width() -> None:
    """p90 at one, p99 at two, p99.9 at three."""
    assert nines(np.array([0, 90, 99, 99.9])) == pytest.approx([0, 1, 2, 3])


def test_lines_without_valid_runs_are_pale(run: Run) -> None:
    """Only as far as they rest on such cells: the last stretch, its point, and its name."""
    figure = drawn(SCALING.charts[0], cells(run, "scaling"))
    strengths = {
        (tuple(np.asarray(line.get_xdata()).astype(int).tolist()), line.get_alpha())
        for line in figure.axes[1].lines
        if line.get_color() == paint.light("pgbouncer-2") and line.get_transform() == figure.axes[1].transData
    }
    assert {((1, 2), 1), ((2, 4), paint.PALE), ((2,), 1), ((4,), paint.PALE)} <= strengths


def test_distributions_without_valid_runs_are_pale(run: Run) -> None:
    """In the charts of latency and of connections, too."""
    doubtful = [group for group in cells(run, "scaling") if not group.valid]
    for chart, most in ((Chart("latency", "Latency"), paint.PALE), (Chart("backends", "B"), paint.PALE)):
        colour = paint.colours(doubtful)[doubtful[0].target]
        found = [line for line in drawn(chart, doubtful).axes[0].lines if line.get_color() == colour]
        assert found
        assert all((line.get_alpha() or 1) <= most for line in found)


def test_panels_of_latency_have_one_scale(run: Run) -> None:
    """So that crowds can be compared."""
    one, other = drawn(Chart("latency", "Latency"), cells(run, "scaling")).axes
    assert (one.get_xlim(), one.get_ylim()) == (other.get_xlim(), other.get_ylim())


def test_distributions_end_at_their_largest_samples(run: Run) -> None:
    """A line for each cell, on a log scale, named at its end."""
    figure = drawn(Chart("latency", "Latency"), cells(run, "connect"))
    (axis,) = figure.axes
    assert axis.get_yscale() == "log"
    assert words(figure) == ["pgshoal", "pgbouncer", "direct"]  # from below


def test_the_budget_is_a_line(run: Run) -> None:
    """Connections over time stand under the budget they may not pass."""
    figure = drawn(Chart("backends", "Backends"), cells(run, "burst"))
    assert "budget 10" in words(figure)
    assert any(set(line.get_ydata()) == {10} for line in figure.axes[0].lines)  # type: ignore[arg-type]
