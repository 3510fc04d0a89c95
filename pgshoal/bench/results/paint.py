"""Colours and furniture that all charts share: one hue for each kind of target, labels at the ends of lines."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pgshoal.bench.results.combine import Group, family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Each ink on light and on dark paper; charts are drawn with the light one, the report's style knows both.
INKS = {
    "paper": ("#fefefe", "#14181d"),
    "ink": ("#1d232b", "#e7eaee"),
    "soft": ("#5c6673", "#a3adb9"),
    "grid": ("#dde1e6", "#343b45"),
    "direct-0": ("#9aa1ab", "#808893"),
    "direct-1": ("#767e8a", "#a4acb6"),
    "direct-2": ("#535b66", "#c9ced6"),
    "address-0": ("#8fc7b1", "#3d7f68"),
    "address-1": ("#3f9f7d", "#58b892"),
    "address-2": ("#1f6f54", "#98dcc1"),
    "pgbouncer-0": ("#f4bd84", "#8d5a22"),
    "pgbouncer-1": ("#ec9a44", "#bd7426"),
    "pgbouncer-2": ("#dd7a14", "#ea9138"),
    "pgbouncer-3": ("#b35c08", "#f5b067"),
    "pgbouncer-4": ("#854304", "#fbd0a2"),
    "pgshoal-0": ("#9cc6ea", "#2b5a86"),
    "pgshoal-1": ("#62a3db", "#3a79b4"),
    "pgshoal-2": ("#2b7cc4", "#4f9ce0"),
    "pgshoal-3": ("#175a9c", "#84bdf0"),
    "pgshoal-4": ("#0b3a70", "#bddcf9"),
    "postgres": ("#7d6bb0", "#a797d9"),
    "load": ("#c9ced4", "#4c545f"),
    "failed": ("#c8414b", "#ef6b74"),
}
WIDTH_IN = 5.0  # narrow, so that its words are of reading size on a phone and two stand side by side on a desk
LABEL_POINTS = 11.0
PALE = 0.4  # what rests on no valid run
STEPS = ((0.8, (1, 1.5, 2, 3, 4, 5, 7)), (2.2, (1, 2, 5)), (3.2, (1, 3)), (math.inf, (1,)))  # by decades
Colours = Mapping[str, str]
Dash = str | tuple[int, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.5, 1.5)))


def light(name: str) -> str:
    """An ink's colour on light paper."""
    return INKS[name][0]


def shades(names: Iterable[str], kind: str) -> dict[str, str]:
    """One colour for each name of one kind, the later the stronger; a single name takes the middle."""
    ramp = [light(ink) for ink in INKS if ink.startswith(f"{kind}-")]
    known = list(dict.fromkeys(names))
    if len(known) == 1:
        return {known[0]: ramp[len(ramp) // 2]}
    return {name: ramp[round(at * (len(ramp) - 1) / (len(known) - 1))] for at, name in enumerate(known)}


def colours(groups: Sequence[Group], by_family: bool = False) -> dict[str, str]:
    """The colour of each target, or of each family of targets; few processes are pale, many are strong.

    Targets that only their variants tell apart are of one colour, also by the name they have beside their variant.
    """
    found: dict[str, str] = {}
    for kind in dict.fromkeys(group.first.kind for group in groups):
        own = [group for group in groups if group.first.kind == kind]
        if by_family:
            found |= shades(sorted(group.family for group in own), kind)
            continue
        rows = sorted({(family(group.target), group.first.processes, group.target) for group in own})
        found |= shades((target for _, _, target in rows), kind)
        found |= {group.first.target: found[group.target] for group in own}
    return found


def strength(*groups: Group) -> float:
    """How opaque something is drawn: what rests on a cell without a valid run is pale."""
    return 1.0 if all(group.valid for group in groups) else PALE


def dash(group: Group, groups: Sequence[Group]) -> Dash:
    """Families of one kind differ in their dashes, as their colours are of one hue."""
    families = list(dict.fromkeys(family(other.target) for other in groups if other.first.kind == group.first.kind))
    return DASHES[families.index(family(group.target)) % len(DASHES)]


def canvas(
    title: str, panels: int = 1, height_in: float = 3.0, heights: Sequence[float] = ()
) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels under each other; its title is flush left."""
    import matplotlib as mpl

    mpl.use("Agg")  # no display is needed, nor one tried
    from matplotlib.figure import Figure as NewFigure

    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "pgshoal", "font.size": 9, "font.family": "DejaVu Sans"}
    )
    figure = NewFigure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots(panels, 1, squeeze=False, height_ratios=list(heights) or None)[:, 0]
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold", color=light("ink"))
    for axis in axes:
        axis.set_facecolor("none")
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.spines["bottom"].set_color(light("soft"))
        axis.tick_params(colors=light("soft"), length=0)
        axis.grid(axis="y", color=light("grid"), linewidth=0.8)
        axis.set_axisbelow(True)
    return figure, list(axes)


def headline(axis: Axes, text: str) -> None:
    """A panel's own title, which is the variant it shows."""
    axis.set_title(text, loc="left", fontsize=9, color=light("soft"))


def short(value: float, _: object = None) -> str:
    """A number for an axis: 45K, 1.2M."""
    for size, sign in ((1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def steps_of_log(low: float, high: float) -> tuple[list[float], list[str]]:
    """As many steps of each decade as there is room for; plain numbers."""
    decades = math.log10(high / low)
    steps = next(steps for most, steps in STEPS if decades < most)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    return ticks, [f"{tick:,g}" for tick in ticks]


@dataclass(frozen=True)
class End:
    """What stands right of a line: words beside a short piece of it, at its last value."""

    y: float
    text: str
    colour: str
    dash: Dash = "-"
    strength: float = 1.0


def label_ends(axis: Axes, ends: Sequence[End], height_in: float) -> None:
    """Names the lines at their ends, each as near to its y as the others let it; limits must stand."""
    to_axes = axis.transData + axis.transAxes.inverted()
    edge = axis.get_xlim()[1]
    places = sorted(((float(to_axes.transform((edge, end.y))[1]), at) for at, end in enumerate(ends)))
    gap = LABEL_POINTS / (height_in * 72)
    for (_, at), y in zip(places, spread([place for place, _ in places], gap), strict=True):
        end = ends[at]
        (piece,) = axis.plot([1.015, 1.06], [y, y], transform=axis.transAxes, clip_on=False, linewidth=2)
        piece.set(color=end.colour, linestyle=end.dash, alpha=end.strength)
        words = axis.annotate(end.text, (1.07, y), xycoords="axes fraction", annotation_clip=False)
        words.set(va="center", fontsize=8.5, color=light("ink"))


def beside_bar(axis: Axes, x: float, y: float, text: str, ink: str = "ink") -> None:
    """Words right of the end of a bar."""
    axis.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=8.5, color=light(ink))


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved apart to keep a gap, inside 0 to 1 as long as they fit."""
    found = list(wanted)
    for at in range(1, len(found)):
        found[at] = max(found[at], found[at - 1] + gap)
    for at in range(len(found) - 1, -1, -1):
        found[at] = min(found[at], 1 - (len(found) - 1 - at) * gap)
    return found


def save(figure: Figure, folder: Path, name: str) -> str:
    """Writes NAME.svg and NAME.png on white paper; the SVG as it stands in the report, on any paper."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=160, facecolor="white")
    figure.set_layout_engine("none")  # everything has its place by now: to find it takes longer than to draw
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    paper = re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)
    (folder / f"{name}.svg").write_text(paper)
    return inline(svg, figure.get_suptitle())


def inline(svg: str, title: str) -> str:
    """An SVG to stand inside a page: as wide as there is room, inks by name, without ids that nothing uses."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    for name, (paper, _) in INKS.items():
        svg = svg.replace(paper, f"var(--{name})")
    return svg
