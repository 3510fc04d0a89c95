"""The charts an experiment declares, drawn from its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pgshoal.bench.model import Chart
from pgshoal.bench.results import curves, ladders
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.paint import Colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Mapping[str, Callable[[Chart, Sequence[Group], Colours], Figure | None]] = {
    "scaling": curves.lines,
    "lines": curves.lines,
    "latency": curves.latency,
    "backends": curves.backends,
    "bars": ladders.bars,
    "cpu": ladders.cpu,
    "outcomes": ladders.outcomes,
}


def draw(chart: Chart, groups: Sequence[Group], colours: Colours) -> Figure | None:
    """One chart, with a colour for each target; None when these cells have nothing to draw in it."""
    return KINDS[chart.kind](chart, groups, colours)
