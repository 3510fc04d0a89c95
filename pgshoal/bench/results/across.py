"""Several runs side by side: what differs between their machines and sizes, and the ratios of their medians."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgshoal.bench.results.chapters import Part, Run
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.csvfiles import flat
from pgshoal.bench.results.page import worded
from pgshoal.bench.results.tables import Table, shown
from pgshoal.bench.results.words import number, ratio

COMPARED = ("kit", "quick", "seed", "machine", "versions", "knobs")
DEVIATIONS, LEAST_APART = 2, 0.05  # of the spread of repeats; of the figure
NO_MATTER = ("knobs.results", "seed", "knobs.seed")


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same everywhere."""

    name: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {' / '.join(value or 'nothing' for value in self.values)}"


def differences(runs: Sequence[Run]) -> list[Difference]:
    """Facts of machine, versions and sizes in which the runs differ: their figures then differ for that reason, too."""
    every = [dict(flat({name: run.facts[name] for name in COMPARED if name in run.facts})) for run in runs]
    names = dict.fromkeys(name for facts in every for name in facts if name not in NO_MATTER)
    found = (Difference(name, tuple(worded(facts.get(name)) for facts in every)) for name in names)
    return [difference for difference in found if len(set(difference.values)) > 1]


def names(runs: Sequence[Run]) -> list[str]:
    """What the runs are called: their folders' names, with a letter where two are alike."""
    plain = [run.folder.resolve().name for run in runs]
    return [name if plain.count(name) == 1 else f"{chr(ord('A') + at)} {name}" for at, name in enumerate(plain)]


def tables(runs: Sequence[Run]) -> Iterator[tuple[str, Table]]:
    """For each experiment of which two runs have the same cells: the medians of each, and their ratios to the first."""
    known: dict[str, list[Part | None]] = {}
    for at, run in enumerate(runs):
        for chapter in run.chapters:
            for part in chapter.parts:
                known.setdefault(part.experiment.name, [None] * len(runs))[at] = part
    for parts in known.values():
        there = [part for part in parts if part]
        if len(there) > 1 and (table := side_by_side(parts, there[0], names(runs))).lines:
            yield there[0].experiment.title, table


def side_by_side(parts: Sequence[Part | None], first: Part, called: Sequence[str]) -> Table:
    """One line for each figure of each cell that two runs have."""
    cells: dict[str, list[Group | None]] = {}
    for at, part in enumerate(parts):
        for group in part.groups if part else ():
            cells.setdefault(group.first.key, [None] * len(parts))[at] = group
    figures = shown(first.experiment, [group for part in parts if part for group in part.groups])
    lines: list[tuple[str, ...]] = []
    doubtful, notable = set(), set()
    for some in cells.values():
        there = [group for group in some if group]
        for figure, title in figures.items():
            values = [group.value(figure) if group else None for group in some]
            if sum(value is not None for value in values) < 2:
                continue
            if not all(group.valid for group in there):
                doubtful.add(len(lines))
            elif beyond_noise(figure, some):
                notable.add(len(lines))
            ratios = [ratio(value / values[0] if value is not None and values[0] else None) for value in values[1:]]
            lines.append((there[0].label, title, *map(number, values), *ratios))
    ratios_of = [f"{name} / {called[0]}" if len(called) > 2 else "ratio" for name in called[1:]]
    return Table(("target", "figure", *called, *ratios_of), tuple(lines), frozenset(doubtful), 2, frozenset(notable))


def beyond_noise(figure: str, groups: Sequence[Group | None]) -> bool:
    """Whether any run differs from the first by more than repeats of either do; never told from single runs."""
    first, *others = groups
    for other in others:
        value, base = (group.value(figure) if group else None for group in (other, first))
        noise, own = (group.variation(figure) if group else None for group in (other, first))
        if value and base and noise is not None and own is not None:
            apart = abs(math.log(value / base)) if value / base > 0 else math.inf
            if apart > max(DEVIATIONS * math.hypot(noise, own), LEAST_APART):
                return True
    return False
