"""Charts of lines: a figure over processes, distributions of latency, connections over time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pgshoal.bench.model import Chart, Row
from pgshoal.bench.results import paint
from pgshoal.bench.results.combine import GRID, Group, by_variant
from pgshoal.bench.results.words import of_variant, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_MS = 1e-3  # pgbench counts microseconds: a log scale has no place for zero
MANY = 20  # values of x that span more than this are drawn on a log scale


def lines(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """A figure over processes, or over a part of the variant; `scaling` adds what each line would be at its best."""
    x = chart.x or "processes"
    shown = [g for g in groups if g.value(chart.figure) is not None and isinstance(g.facet(x), int | float)]
    flat = [g for g in shown if x == "processes" and g.first.kind == "direct"]
    panels: dict[str, list[Group]] = {}
    for group in shown:
        panels.setdefault(rest(group, x), []).append(group)
    panels = {told: some for told, some in panels.items() if any(group not in flat for group in some)}
    if not panels:
        return None
    figure, axes = paint.canvas(chart.title, len(panels), 0.6 + 2.5 * len(panels))
    for axis, (told, members) in zip(axes, panels.items(), strict=True):
        panel(axis, chart, x, shown, [g for g in members if g not in flat], [g for g in members if g in flat])
        words = title(chart.figure)
        paint.headline(axis, f"{told}: {words}" if told else words)
    axes[-1].set_xlabel(x.replace("_", " "), color=paint.light("soft"))
    return figure


def panel(
    axis: Axes, chart: Chart, x: str, every: Sequence[Group], risen: Sequence[Group], flat: Sequence[Group]
) -> None:
    """The lines of one panel: one for each family over x, and level ones for what has no x of its own."""
    colours, ends = paint.colours(every, by_family=True), []
    series = in_series(risen, x)
    for family, members in series.items():
        colour, dash = colours[family], paint.dash(members[0], every)
        at = [float(g.facet(x) or 0) for g in members]
        values = [g.value(chart.figure) or 0.0 for g in members]
        for sure, first, last in stretches(members):
            part = slice(first, last + 1)
            strength = 1 if sure else paint.PALE
            axis.plot(at[part], values[part], color=colour, linestyle=dash, linewidth=2, alpha=strength)
        for where, value, group in zip(at, values, members, strict=True):
            (point,) = axis.plot([where], [value], "o", color=colour, markersize=5, alpha=paint.strength(group))
            point.set_markerfacecolor(colour if group.valid else "none")
            whisker(axis, where, group.values(chart.figure), colour, 0.7 * paint.strength(group))
        ends.append(paint.End(values[-1], family, colour, dash, paint.strength(members[-1])))
    for group in flat:
        value, colour, strength = group.value(chart.figure) or 0.0, colours[group.family], paint.strength(group)
        axis.axhline(value, color=colour, linewidth=1.5, linestyle="--", alpha=strength)
        ends.append(paint.End(value, group.family, colour, "--", strength))
    axis.set_ylim(0, 1.12 * max([end.y for end in ends] + [v for g in risen for v in g.values(chart.figure)]) or 1)
    if chart.kind == "scaling":
        ideal(axis, chart.figure, x, list(series.values()))
    ticks_of_x(axis, sorted({float(g.facet(x) or 0) for g in risen}))
    axis.yaxis.set_major_formatter(paint.short)
    paint.label_ends(axis, ends, 2.1)


def stretches(members: Sequence[Group]) -> Iterator[tuple[bool, int, int]]:
    """The line between neighbours, as far as it is of one strength: whether both ends have valid runs, and its ends."""
    sure = [bool(one.valid and other.valid) for one, other in pairwise(members)]
    first = 0
    for value, some in groupby(sure):
        last = first + len(list(some))
        yield value, first, last
        first = last


def in_series(groups: Sequence[Group], x: str) -> dict[str, list[Group]]:
    """The cells of each family, in the order of x."""
    found: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda group: float(group.facet(x) or 0)):
        found.setdefault(group.family, []).append(group)
    return found


def rest(group: Group, x: str) -> str:
    """The variant without x, in words."""
    return of_variant({name: value for name, value in group.first.variant.items() if name != x})


def whisker(axis: Axes, x: float, values: Sequence[float], colour: str, strength: float) -> None:
    """From the lowest to the highest run."""
    if len(values) > 1:
        axis.vlines(x, min(values), max(values), color=colour, linewidth=1, alpha=strength)


def ideal(axis: Axes, figure: str, x: str, series: Sequence[Sequence[Group]]) -> None:
    """Dotted lines from the first point of each series through as much again for as much more."""
    top = axis.get_ylim()[1]
    reach = top
    for members in series:
        first, last = float(members[0].facet(x) or 0), float(members[-1].facet(x) or 0)
        if not first or first == last:
            continue
        each = (members[0].value(figure) or 0.0) / first
        reach = max(reach, min(each * last, 1.6 * top))
        axis.plot([first, last], [each * first, each * last], color=paint.light("soft"), linewidth=1, linestyle=":")
        end = min(last, 0.94 * 1.6 * top / each)
        axis.annotate(
            "ideal", (end, each * end), xytext=(-4, 0), textcoords="offset points", ha="right", va="bottom",
            fontsize=8, color=paint.light("soft"),
        )  # fmt: skip
    axis.set_ylim(0, reach * 1.05)


def ticks_of_x(axis: Axes, values: Sequence[float]) -> None:
    """Ticks where something was measured, and nowhere else."""
    if values[0] > 0 and values[-1] / values[0] > MANY:
        axis.set_xscale("log")
    axis.set_xticks(values, [paint.short(value) for value in values])
    axis.set_xticks([], minor=True)


def latency(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """The distributions of all samples: each further nine of the percentile takes the same width.

    Panels have the same scales, so that they can be compared.
    """
    shown = [group for group in groups if group.curve is not None and len(group.curve) > 1]
    if not shown:
        return None
    panels = by_variant(shown)
    figure, axes = paint.canvas(chart.title, len(panels), 0.5 + 2.5 * len(panels))
    low, high = 0.9 * lowest(shown), 1.1 * max(float(g.curve[-1]) for g in shown if g.curve is not None)
    ticks_y = paint.steps_of_log(low, high)
    most = max(len(group.curve) for group in shown if group.curve is not None)
    for axis, (variant, members) in zip(axes, panels.items(), strict=True):
        ends = []
        for group in members:
            curve = np.maximum(np.asarray(group.curve), LEAST_MS)
            colour, dash, strength = colours[group.target], paint.dash(group, shown), paint.strength(group)
            (line,) = axis.plot(nines(GRID[: len(curve)]), curve, color=colour, linewidth=1.8, linestyle=dash)
            line.set_alpha(strength)
            ends.append(paint.End(float(curve[-1]), group.target, colour, dash, strength))
        axis.set_yscale("log")
        axis.set_ylim(low, high)
        axis.set_yticks(*ticks_y)
        axis.set_yticks([], minor=True)
        axis.set_xlim(0, nines(GRID[most - 1 : most])[0])
        ticks = [at for at in (50, 90, 99, 99.9, 99.99, 99.999) if at <= GRID[most - 1]]
        axis.set_xticks(nines(np.array(ticks)), [f"p{at:g}" for at in ticks])
        axis.grid(axis="x", color=paint.light("grid"), linewidth=0.6)
        paint.headline(axis, f"{variant}: latency, ms, log scale" if variant else "latency, ms, log scale")
        paint.label_ends(axis, ends, 2.0)
    return figure


def lowest(groups: Sequence[Group]) -> float:
    """Where the axis begins: the quickest tenth is left out, as it would take most of a log scale."""
    at = int(np.searchsorted(GRID, 10.0))
    return min(
        max(float(group.curve[min(at, len(group.curve) - 1)]), LEAST_MS) for group in groups if group.curve is not None
    )


def nines(percentiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where percentiles stand on an axis of nines: 90 at 1, 99 at 2, 99.9 at 3."""
    return -np.log10(1 - percentiles / 100)


def backends(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """Client backends that PostgreSQL saw over the interval, every counted run, with the budget as a line."""
    shown = [group for group in groups if series_of(group.counted)]
    if not shown:
        return None
    panels = by_variant(shown)
    figure, axes = paint.canvas(chart.title, len(panels), 0.6 + 2.1 * len(panels))
    for axis, (variant, members) in zip(axes, panels.items(), strict=True):
        ends, top = [], 0.0
        for group in members:
            colour, dash, runs = colours[group.target], paint.dash(group, shown), series_of(group.counted)
            strength = paint.strength(group)
            for at, counts in runs:
                axis.step(at, counts, where="post", color=colour, linewidth=1.5, alpha=0.85 * strength, linestyle=dash)
                top = max(top, *counts)
            last = statistics.median(counts[-1] for _, counts in runs)
            ends.append(paint.End(last, group.target, colour, dash, strength))
        for budget in sorted({group.first.budget for group in members if group.first.budget}):
            axis.axhline(budget, color=paint.light("failed"), linewidth=1, linestyle="--")
            ends.append(paint.End(float(budget), f"budget {budget}", paint.light("failed"), "--"))
            top = max(top, float(budget))
        axis.set_ylim(0, top * 1.12 or 1)
        axis.set_xlim(left=0)
        paint.headline(axis, f"{variant}: backends over seconds" if variant else "backends over seconds")
        paint.label_ends(axis, ends, 1.6)
    return figure


def series_of(rows: Sequence[Row]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Times and counts of each row that has them."""
    return [(row.series["at_s"], row.series["backends"]) for row in rows if row.series.get("backends")]
