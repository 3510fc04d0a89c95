"""The charts an experiment declares, drawn from its cells."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pgshoal.bench.model import Chart, Row
from pgshoal.bench.results import paint
from pgshoal.bench.results.combine import GRID, Group
from pgshoal.bench.results.words import number, of_variant, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_IN = 0.4  # height of one bar with its words above it
PARTS_OF_POOLER = 5
MANY = 20  # values of x that span more than this are drawn on a log scale


def draw(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """One chart; None when these cells have nothing to draw in it."""
    return KINDS[chart.kind](chart, groups)


def lines(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """A figure over processes, or over a part of the variant; `scaling` adds what each line would be at its best."""
    x = chart.x or "processes"
    shown = [g for g in groups if g.value(chart.figure) is not None and isinstance(g.facet(x), int | float)]
    flat = [g for g in shown if x == "processes" and g.first.kind == "direct"]
    series = in_series([g for g in shown if g not in flat], x)
    if not series:
        return None
    figure, (axis,) = paint.canvas(chart.title, height_in=3.3)
    colours, ends = paint.colours(shown, by_family=True), []
    several = len({told for _, told in series}) > 1
    for (family, told), members in series.items():
        colour = colours[family]
        at = [float(g.facet(x) or 0) for g in members]
        values = [g.value(chart.figure) or 0.0 for g in members]
        dash = paint.dash(members[0], shown)
        axis.plot(at, values, color=colour, linestyle=dash, linewidth=2, marker="o", markersize=5)
        for where, group in zip(at, members, strict=True):
            whisker(axis, where, group.values(chart.figure), colour)
        ends.append((values[-1], f"{family}\n{told}" if several else family, colour))
    for group in flat:
        axis.axhline(
            value := group.value(chart.figure) or 0.0, color=colours[group.family], linewidth=1.5, linestyle="--"
        )
        ends.append((value, " ".join(filter(None, ("direct", group.variant))), colours[group.family]))
    axis.set_ylim(0, 1.12 * max([y for y, _, _ in ends] + [v for g in shown for v in g.values(chart.figure)]))
    if chart.kind == "scaling":
        ideal(axis, chart.figure, x, list(series.values()))
    ticks_of_x(axis, sorted({float(g.facet(x) or 0) for g in shown if g not in flat}), x)
    axis.yaxis.set_major_formatter(paint.short)
    paint.headline(axis, title(chart.figure))
    paint.label_ends(axis, ends, 2.4)
    return figure


def in_series(groups: Sequence[Group], x: str) -> dict[tuple[str, str], list[Group]]:
    """Cells that differ in x alone, in its order."""
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.family, rest(group, x)), []).append(group)
    return {key: sorted(some, key=lambda group: float(group.facet(x) or 0)) for key, some in found.items()}


def rest(group: Group, x: str) -> str:
    """The variant without x, in words."""
    return of_variant({name: value for name, value in group.first.variant.items() if name != x})


def whisker(axis: Axes, x: float, values: Sequence[float], colour: str) -> None:
    """From the lowest to the highest run."""
    if len(values) > 1:
        axis.vlines(x, min(values), max(values), color=colour, linewidth=1, alpha=0.7)


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


def ticks_of_x(axis: Axes, values: Sequence[float], x: str) -> None:
    """Ticks where something was measured, and nowhere else."""
    if values[0] > 0 and values[-1] / values[0] > MANY:
        axis.set_xscale("log")
    axis.set_xticks(values, [paint.short(value) for value in values])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(x.replace("_", " "), color=paint.light("soft"))


def latency(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """The distributions of all samples: each further nine of the percentile takes the same width."""
    shown = [group for group in groups if group.curve is not None and len(group.curve) > 1]
    if not shown:
        return None
    panels = by_variant(shown)
    figure, axes = paint.canvas(chart.title, len(panels), 0.5 + 2.5 * len(panels))
    for axis, (variant, members) in zip(axes, panels.items(), strict=True):
        colours, ends = paint.colours(shown), []
        most = max(len(group.curve) for group in members if group.curve is not None)
        for group in members:
            curve = np.maximum(np.asarray(group.curve), 1e-3)
            colour = colours[group.first.target]
            axis.plot(nines(GRID[: len(curve)]), curve, color=colour, linewidth=1.8, linestyle=paint.dash(group, shown))
            ends.append((float(curve[-1]), group.first.target, colour))
        axis.set_yscale("log")
        axis.set_xlim(0, nines(GRID[most - 1 : most])[0])
        ticks = [at for at in (0, 50, 90, 99, 99.9, 99.99, 99.999) if at <= GRID[most - 1]]
        axis.set_xticks(nines(np.array(ticks)), [f"p{at:g}" if at else "min" for at in ticks])
        ticks_of_log(axis)
        axis.grid(axis="x", color=paint.light("grid"), linewidth=0.6)
        paint.headline(axis, f"{variant}: latency, ms, log scale" if variant else "latency, ms, log scale")
        paint.label_ends(axis, ends, 2.0)
    return figure


def nines(percentiles: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """Where percentiles stand on an axis of nines: 90 at 1, 99 at 2, 99.9 at 3."""
    return -np.log10(1 - percentiles / 100)


def ticks_of_log(axis: Axes) -> None:
    """1, 2 and 5 of each decade where that is few, else the decades; plain numbers."""
    low, high = axis.get_ylim()
    decades = np.log10(high / low)
    steps = (1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.2 else (1,)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    axis.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axis.set_yticks([], minor=True)


def by_variant(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Cells of the same variant together; one panel each."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.variant, []).append(group)
    return found


def ladder(heading: str, groups: Sequence[Group]) -> tuple[Figure, Axes, list[float]]:
    """A chart of one bar for each cell, words above it, under a line for each variant; the heights of the bars."""
    panels = by_variant(groups)
    named = len(panels) > 1 or any(panels)
    rungs = len(groups) + (0.75 * len(panels) if named else 0)
    figure, (axis,) = paint.canvas(heading, height_in=0.7 + ROW_IN * rungs)
    at, y = [], 0.0
    for variant, members in panels.items():
        if named:
            axis.text(0, y, variant, fontsize=9, fontweight="bold", color=paint.light("soft"), va="center")
            y += 0.75
        for group in members:
            mark = "" if group.valid else "  (no valid run)"
            axis.text(0, y, group.first.target + mark, fontsize=8.5, color=paint.light("ink"), va="center")
            at.append(y + 0.42)
            y += 1
    axis.set_ylim(y - 0.1, -0.5)
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    axis.set_xticks([])
    return figure, axis, at


def bars(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """One bar for each cell, with a dot for each run where there are several."""
    shown = [group for group in groups if group.value(chart.figure) is not None]
    if not shown:
        return None
    figure, axis, at = ladder(f"{chart.title}: {title(chart.figure)}", shown)
    colours = paint.colours(shown)
    most = max(max(group.values(chart.figure), default=0) for group in shown) or 1.0
    for y, group in zip(at, shown, strict=True):
        value, runs = group.value(chart.figure) or 0.0, group.values(chart.figure)
        axis.barh(y, value, height=0.36, color=colours[group.first.target], alpha=1 if group.valid else 0.4)
        if len(runs) > 1:
            axis.scatter(runs, [y] * len(runs), s=7, color=paint.light("ink"), linewidths=0, zorder=3)
        axis.text(
            max([value, *runs]) + most * 0.015, y, number(value), va="center", fontsize=8.5, color=paint.light("ink")
        )
    axis.set_xlim(0, most * 1.14)
    return figure


def cpu(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """Cores in use by each process of the pooler, by PostgreSQL and by the load generator, on top of each other."""
    shown = [group for group in groups if group.cores()]
    if not shown:
        return None
    figure, axis, at = ladder(f"{chart.title}: cores in use", shown)
    totals = []
    for y, group in zip(at, shown, strict=True):
        left, parts = 0.0, list(group.cores().items())
        for cores, colour in painted(group, parts):
            axis.barh(y, cores, left=left, height=0.36, color=colour, edgecolor="white", linewidth=0.4)
            left += cores
        axis.text(left, y, f"  {number(left)}", va="center", fontsize=8.5, color=paint.light("ink"))
        totals.append(left)
    axis.set_xlim(0, (max(totals) or 1.0) * 1.14)
    legend(axis, shown)
    return figure


def painted(group: Group, parts: Sequence[tuple[str, float]]) -> Iterator[tuple[float, str]]:
    """The parts of a bar with their colours: the pooler's processes first, in the shades of its kind."""
    pooler = [part for part in parts if part[0] not in ("postgres", "load")]
    shade = paint.shades((name for name, _ in pooler), group.first.kind) if pooler else {}
    yield from ((cores, shade[name]) for name, cores in pooler)
    yield from ((cores, paint.light(name)) for name, cores in parts if name in ("postgres", "load"))


def legend(axis: Axes, groups: Sequence[Group]) -> None:
    """Names the colours once, below the bars."""
    entries = [
        ("pooler", paint.light(f"{kind}-2"))
        for kind in dict.fromkeys(g.first.kind for g in groups if g.first.kind != "direct")
    ]
    entries += [("PostgreSQL", paint.light("postgres")), ("load generator", paint.light("load"))]
    text = axis.annotate("", (0, 0), xycoords="axes fraction", xytext=(0, -8), textcoords="offset points", fontsize=8.5)
    for name, colour in entries:
        text = axis.annotate(
            "■", (1, 0), xycoords=text, va="bottom", xytext=(8, 0), textcoords="offset points", fontsize=9, color=colour
        )
        text = axis.annotate(
            name,
            (1, 0),
            xycoords=text,
            va="bottom",
            xytext=(2, 0),
            textcoords="offset points",
            fontsize=8.5,
            color=paint.light("soft"),
        )


def backends(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """Client backends that PostgreSQL saw over the interval, every counted run, with the budget as a line."""
    shown = [group for group in groups if any(row.series.get("backends") for row in group.counted)]
    if not shown:
        return None
    panels = by_variant(shown)
    figure, axes = paint.canvas(chart.title, len(panels), 0.6 + 2.1 * len(panels))
    colours = paint.colours(shown)
    for axis, (variant, members) in zip(axes, panels.items(), strict=True):
        ends, top = [], 0.0
        for group in members:
            colour = colours[group.first.target]
            for at, counts in series_of(group.counted):
                axis.step(
                    at,
                    counts,
                    where="post",
                    color=colour,
                    linewidth=1.5,
                    alpha=0.85,
                    linestyle=paint.dash(group, shown),
                )
                top = max(top, *counts)
            ends.append(
                (statistics.median(series[1][-1] for series in series_of(group.counted)), group.first.target, colour)
            )
        for budget in sorted({group.first.budget for group in members if group.first.budget}):
            axis.axhline(budget, color=paint.light("failed"), linewidth=1, linestyle="--")
            ends.append((float(budget), f"budget {budget}", paint.light("failed")))
            top = max(top, float(budget))
        axis.set_ylim(0, top * 1.12 or 1)
        axis.set_xlim(left=0)
        paint.headline(axis, f"{variant}: backends over seconds" if variant else "backends over seconds")
        paint.label_ends(axis, ends, 1.6)
    return figure


def series_of(rows: Sequence[Row]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Times and counts of each row that has them."""
    return [(row.series["at_s"], row.series["backends"]) for row in rows if row.series.get("backends")]


def outcomes(chart: Chart, groups: Sequence[Group]) -> Figure | None:
    """Of all clients, or attempts: how many succeeded, how many failed."""
    shown = [(group, pair) for group in groups if (pair := group.outcomes()) and pair.all]
    if not shown:
        return None
    figure, axis, at = ladder(chart.title, [group for group, _ in shown])
    colours = paint.colours([group for group, _ in shown])
    for y, (group, (good, bad)) in zip(at, shown, strict=True):
        share = good / (good + bad)
        axis.barh(y, share, height=0.36, color=colours[group.first.target])
        axis.barh(
            y,
            1 - share,
            left=share,
            height=0.36,
            color="none",
            edgecolor=paint.light("failed"),
            hatch="/////",
            linewidth=0.8,
        )
        words = f"  {number(good)} of {number(good + bad)}"
        axis.text(1, y, words, va="center", fontsize=8.5, color=paint.light("failed" if bad else "ink"))
    axis.set_xlim(0, 1.22)
    return figure


KINDS: Mapping[str, Callable[[Chart, Sequence[Group]], Figure | None]] = {
    "scaling": lines,
    "lines": lines,
    "bars": bars,
    "latency": latency,
    "cpu": cpu,
    "backends": backends,
    "outcomes": outcomes,
}
