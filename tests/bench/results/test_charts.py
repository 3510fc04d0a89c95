"""Charts show what the cells say; their inks follow the paper; files are there for other uses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pgshoal.bench.model import Chart
from pgshoal.bench.results import ladders, paint
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.charts import KINDS, draw
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.curves import nines
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, SCALING, cell, run_of


def drawn(chart: Chart, groups: Sequence[Group]) -> Figure:
    """A chart that has something to show."""
    figure = draw(chart, groups, paint.colours(groups))
    assert figure is not None
    return figure


def words(figure: Figure) -> list[str]:
    """All that is written in the plots of a figure."""
    return [text.get_text() for axis in figure.axes for text in axis.texts if text.get_text()]


def cells(run: Run, name: str) -> Sequence[Group]:
    """The cells of one experiment."""
    return next(part.groups for chapter in run.chapters for part in chapter.parts if part.experiment.name == name)


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


def test_distributions_end_at_their_largest_samples(run: Run) -> None:
    """A line for each cell, on a log scale, named at its end."""
    figure = drawn(Chart("latency", "Latency"), cells(run, "connect"))
    (axis,) = figure.axes
    assert axis.get_yscale() == "log"
    assert words(figure) == ["pgshoal", "pgbouncer", "direct"]  # from below


def test_bars_of_cpu_are_stacked(run: Run) -> None:
    """Processes of the pooler, PostgreSQL and the load one after the other, their sum at the end."""
    groups = [group for group in cells(run, "scaling") if group.first.target == "pgshoal x2"]
    figure = drawn(Chart("cpu", "CPU"), groups[:1])
    bars = [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert len(bars) == 4
    assert [bar.get_x() for bar in bars[1:]] == pytest.approx([bar.get_x() + bar.get_width() for bar in bars[:-1]])
    assert sum(bar.get_width() for bar in bars) == pytest.approx(sum(groups[0].cores().values()))


def test_the_budget_is_a_line(run: Run) -> None:
    """Connections over time stand under the budget they may not pass."""
    figure = drawn(Chart("backends", "Backends"), cells(run, "burst"))
    assert "budget 10" in words(figure)
    assert any(set(line.get_ydata()) == {10} for line in figure.axes[0].lines)  # type: ignore[arg-type]


def test_outcomes_are_counted_in_words(run: Run) -> None:
    """Who failed is written, not only drawn."""
    assert words(drawn(Chart("outcomes", "Served"), cells(run, "burst"))) == [
        "direct", "pgbouncer", "pgshoal", "25 of 100", "100 of 100", "100 of 100",
    ]  # fmt: skip


def test_bars_without_a_valid_run_say_so() -> None:
    """Doubtful figures are pale, and marked in words."""
    group = cell(replace(run_of("x", PGSHOAL), figures={"tps": 5.0}, invalid=("samples: few",)))
    assert words(drawn(Chart("bars", "Rate", "tps"), [group])) == ["pgshoal (no valid run)", "5"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_drawn_from_nothing(kind: str) -> None:
    """Rows without what a chart shows make no empty chart."""
    group = cell(run_of("x", PGSHOAL))
    assert draw(Chart(kind, "Title", "tps"), [group], paint.colours([group])) is None  # type: ignore[arg-type]


def test_published_ratios_are_rings_and_dots(run: Run) -> None:
    """One rung for each ratio that was measured; plain figures, and what was not measured, stay in the table."""
    found = [one for chapter in run.chapters for one in chapter.published]
    figure = ladders.published(found)
    assert figure is not None
    assert sum(text.startswith("scaling: ") for text in words(figure)) == 4
    assert not any("clients served" in text for text in words(figure))


def test_kinds_have_hues_and_processes_have_shades() -> None:
    """Direct is grey, PgBouncer orange, pgshoal blue; more processes are stronger."""
    groups = [cell(run_of("x", replace(target, processes=n))) for target in (PGBOUNCER, PGSHOAL) for n in (8, 1, 2)]
    groups.append(cell(run_of("x", DIRECT)))
    found = paint.colours(groups)
    names = {colour: name for name, (colour, _) in paint.INKS.items()}
    assert [names[found[f"pgshoal{x}"]] for x in ("", " x2", " x8")] == ["pgshoal-0", "pgshoal-2", "pgshoal-4"]
    assert names[found["pgbouncer x8"]] == "pgbouncer-4"
    assert names[found["direct"]] == "direct-1"


def test_labels_keep_their_distance() -> None:
    """Names at the ends of lines do not overlap, keep their order and stay inside."""
    found = paint.spread([0.5, 0.5, 0.51, 0.99, 1.2], 0.1)
    assert found == sorted(found)
    assert min(b - a for a, b in itertools.pairwise(found)) >= 0.1 - 1e-9
    assert found[-1] == 1
    assert paint.spread([0.1, 0.9], 0.1) == [0.1, 0.9]


def test_a_chart_in_the_page_takes_its_inks_from_the_page(run: Run, tmp_path: Path) -> None:
    """No colour of the palette is fixed, no size, no id that another chart could have; the files are whole pictures."""
    svg = paint.save(drawn(Chart("bars", "Units", "units_per_s"), cells(run, "connect")), tmp_path, "units")
    tree = ElementTree.fromstring(svg)
    assert "width" not in tree.attrib
    assert "viewBox" in tree.attrib
    assert "var(--pgshoal-2)" in svg
    assert not any(colour in svg for colour, _ in paint.INKS.values())
    assert not re.search(r'<g id="', svg)
    assert (tmp_path / "units.png").read_bytes().startswith(b"\x89PNG")
    assert "#2b7cc4" in (tmp_path / "units.svg").read_text()


def test_inks_are_told_apart() -> None:
    """Charts in pages are recoloured by colour: no two inks may share one on light paper."""
    assert len({paper for paper, _ in paint.INKS.values()}) == len(paint.INKS)
