"""What tests of charts look at: figures drawn from cells, and the words in them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from pgshoal.bench.model import Chart
from pgshoal.bench.results import paint
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.charts import draw
from pgshoal.bench.results.combine import Group


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
