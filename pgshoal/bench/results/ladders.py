"""Charts of bars: one rung for each cell, its words above it, so that they are readable on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pgshoal.bench.model import Chart
from pgshoal.bench.results import paint
from pgshoal.bench.results.combine import Group, by_variant
from pgshoal.bench.results.published import Beside
from pgshoal.bench.results.words import number, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RUNG_IN = 0.4
HEADING_RUNGS = 0.75
BAR = 0.36
AXIS_RUNGS = 1.5  # heading and numbers of an axis
WORDS_SHARE = 0.2  # of the width, right of bars and dots
LEGEND_MOST = 3  # words of a legend that have room beside each other
NAMES = {"pgbouncer": "PgBouncer", "pgshoal": "pgshoal", "address": "pooler"}


def empty(heading: str, rungs: float, below: float) -> tuple[Figure, Axes]:
    """A figure for so many rungs, the first on top, without axes; with room below for as much as so many would take."""
    figure, (axis,) = paint.canvas(heading, height_in=0.6 + RUNG_IN * (rungs + below))
    axis.set_ylim(rungs - 0.15, -0.5)
    axis.set_yticks([])
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.spines["bottom"].set_visible(False)
    return figure, axis


def ladder(heading: str, groups: Sequence[Group], below: float = 0) -> tuple[Figure, Axes, list[float]]:
    """One rung for each cell, under a line for each variant; the heights of the bars."""
    panels = by_variant(groups)
    headed = len(panels) > 1 or any(panels)
    figure, axis = empty(heading, len(groups) + (HEADING_RUNGS * len(panels) if headed else 0), below)
    at, y = [], 0.0
    for variant, members in panels.items():
        if headed:
            axis.text(0, y + 0.15, variant, fontsize=9, fontweight="bold", color=paint.light("soft"), va="center")
            y += HEADING_RUNGS
        for group in members:
            mark = "" if group.valid else " (no valid run)"
            axis.text(0, y, group.target + mark, fontsize=8.5, color=paint.light("ink"), va="center")
            at.append(y + 0.42)
            y += 1
    return figure, axis, at


def headline(chart: Chart) -> str:
    """Title and figure; the figure alone where the title says no more."""
    words = title(chart.figure)
    return words[:1].upper() + words[1:] if words.startswith(chart.title.lower()) else f"{chart.title}: {words}"


def bars(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """One bar for each cell, with a dot for each run where there are several."""
    shown = [group for group in groups if group.value(chart.figure) is not None]
    if not shown:
        return None
    figure, axis, at = ladder(headline(chart), shown)
    most = max(max([group.value(chart.figure) or 0.0, *group.values(chart.figure)]) for group in shown) or 1.0
    for y, group in zip(at, shown, strict=True):
        value, runs = group.value(chart.figure) or 0.0, group.values(chart.figure)
        axis.barh(y, value, height=BAR, color=colours[group.target], alpha=paint.strength(group))
        if len(runs) > 1:
            axis.scatter(runs, [y] * len(runs), s=7, color=paint.light("ink"), linewidths=0, zorder=3)
        paint.beside_bar(axis, max([value, *runs]), y, number(value))
    axis.set_xlim(0, most * 1.16)
    return figure


def cpu(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """Cores in use by each process of the pooler, by PostgreSQL and by the load generator, one after the other."""
    shown = [group for group in groups if group.cores()]
    if not shown:
        return None
    figure, axis, at = ladder(f"{chart.title}: cores in use", shown, below=1)
    most = max(sum(group.cores().values()) for group in shown) or 1.0
    for y, group in zip(at, shown, strict=True):
        left = 0.0
        for cores, colour in painted(group):
            axis.barh(y, cores, left=left, height=BAR, color=colour, alpha=paint.strength(group))
            left += cores
            axis.plot([left, left], [y - BAR / 2, y + BAR / 2], color=paint.light("paper"), linewidth=0.8)
        paint.beside_bar(axis, left, y, number(left))
    axis.set_xlim(0, most * 1.16)
    kinds = dict.fromkeys(group.first.kind for group in shown if group.first.kind != "direct")
    legend(
        axis,
        [(f"{NAMES[kind]}, by process", f"{kind}-2") for kind in kinds]
        + [("PostgreSQL", "postgres"), ("load", "load")],
    )
    return figure


def painted(group: Group) -> Iterator[tuple[float, str]]:
    """The parts of a bar with their colours: the pooler's processes first, in the shades of its kind."""
    parts = group.cores()
    pooler = [name for name in parts if name not in ("postgres", "load")]
    shades = paint.shades(pooler, group.first.kind) if pooler else {}
    yield from ((parts[name], shades[name]) for name in pooler)
    yield from ((parts[name], paint.light(name)) for name in ("postgres", "load") if name in parts)


def legend(axis: Axes, entries: Sequence[tuple[str, str]]) -> None:
    """Names the colours once, in a line below the bars, or in two; entries are words and inks."""
    from matplotlib.lines import Line2D

    columns = len(entries) if len(entries) <= LEGEND_MOST else (len(entries) + 1) // 2
    handles = [
        Line2D([], [], marker="s", linestyle="", color=paint.light(ink), markersize=6, label=words)
        for words, ink in entries
    ]
    axis.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.01, 0), ncols=columns, frameon=False, fontsize=8.5,
        labelcolor=paint.light("soft"), handletextpad=0.2, columnspacing=1.2, borderaxespad=0,
    )  # fmt: skip


def outcomes(chart: Chart, groups: Sequence[Group], colours: paint.Colours) -> Figure | None:
    """Of all clients, or attempts: how many succeeded, how many failed."""
    shown = [(group, pair) for group in groups if (pair := group.outcomes()) and pair.all]
    if not shown:
        return None
    figure, axis, at = ladder(chart.title, [group for group, _ in shown])
    red = paint.light("failed")
    for y, (group, pair) in zip(at, shown, strict=True):
        share = pair.succeeded / pair.all
        axis.barh(y, share, height=BAR, color=colours[group.target], alpha=paint.strength(group))
        if pair.failed:
            axis.barh(y, 1 - share, left=share, height=BAR, color="none", edgecolor=red, hatch="/////", linewidth=0.8)
        words = f"{number(pair.succeeded)} of {number(pair.all)}"
        paint.beside_bar(axis, 1, y, words, "failed" if pair.failed else "ink")
    axis.set_xlim(0, 1.28)
    return figure


def published(found: Sequence[Beside]) -> Figure | None:
    """What was published as rings and ours as dots, on log scales: ratios, and figures that are none."""
    shown = [one for one in found if one.here is not None and one.published.value > 0]
    if not shown:
        return None
    ratios, plain = ([one for one in shown if bool(one.published.bottom) is ratio] for ratio in (True, False))
    panels = [(heading, some) for heading, some in (("ratios", ratios), ("figures", plain)) if some]
    heights = [len(some) + AXIS_RUNGS for _, some in panels]
    height = 0.6 + RUNG_IN * sum(heights)
    figure, axes = paint.canvas("Published (ring) and here (dot)", len(panels), height, heights)
    sources: dict[str, set[str]] = {}
    for one in shown:
        sources.setdefault(one.experiment, set()).add(one.published.source)
    for axis, (heading, some) in zip(axes, panels, strict=True):
        paint.headline(axis, f"{heading}, log scale")
        scale(axis, [value for one in some for value in (one.published.value, one.here or 0.0)])
        axis.set_ylim(len(some) - 0.15, -0.5)
        for at, one in enumerate(some):
            source = f" ({one.published.source})" if len(sources[one.experiment]) > 1 else ""
            pair(axis, at, f"{one.experiment}: {one.words}{source}", one)
    return figure


def scale(axis: Axes, values: Sequence[float]) -> None:
    """A log scale that holds these values and 1, with room for words on its right; zero stands at its left end."""
    known = [value for value in values if value > 0]
    low, high = min(*known, 1.0) / 1.2, max(*known, 1.0) * 1.2
    high *= (high / low) ** WORDS_SHARE
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.set_xticks(*paint.steps_of_log(low, high))
    axis.set_xticks([], minor=True)
    axis.set_yticks([])
    axis.grid(axis="x", color=paint.light("grid"), linewidth=0.8)
    axis.axvline(1, color=paint.light("soft"), linewidth=0.8)


def pair(axis: Axes, rung: int, words: str, one: Beside) -> None:
    """Words, and under them ring and dot."""
    y, (low, _) = rung + 0.42, axis.get_xlim()
    here, there, soft = max(one.here or 0.0, low), one.published.value, paint.light("soft")
    text = axis.text(low, rung, words, fontsize=8.5, color=paint.light("ink"), va="center", zorder=4)
    text.set_bbox({"facecolor": paint.light("paper"), "edgecolor": "none", "pad": 1})
    axis.plot([here, there], [y, y], color=soft, linewidth=1, zorder=2)
    axis.plot([there], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor=soft, zorder=3)
    alpha = 1 if one.valid else paint.PALE
    axis.plot([here], [y], "o", markersize=6, color=paint.light(f"{one.kind}-2"), alpha=alpha, zorder=4)
    paint.beside_bar(axis, max(here, there), y, f"{number(there)} / {number(one.here)}", "soft")
