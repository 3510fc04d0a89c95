"""The table of an experiment, for every place that shows it: medians, variation, valid runs of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

from pgshoal.bench.model import Experiment
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.words import listed, number, percent, title

#: Figures worth a column, and a word while a matrix runs, where an experiment names none.
HEADLINES = (
    "tps",
    "units_per_s",
    "throughput_mib_s",
    "succeeded",
    "failed",
    "latency_mean_ms",
    "connect_ms",
    "cancel_ms",
    "p50_ms",
    "p99_ms",
    "cpu_us_per_tx",
    "backends_max",
)


@dataclass(frozen=True)
class Table:
    """Headings, and lines of words; the first `texts` columns are words, the others numbers.

    `doubtful` are the lines that rest on no valid run, `notable` those that a reader should not miss.
    """

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    doubtful: frozenset[int] = frozenset()
    texts: int = 1
    notable: frozenset[int] = frozenset()


def medians(experiment: Experiment, groups: Sequence[Group]) -> Table:
    """One line for each cell."""
    figures = shown(experiment, groups)
    varied = any(group.variant for group in groups)
    headings = ["target", *(["variant"] if varied else []), *figures.values(), "CV", "valid runs"]
    lines = []
    for group in groups:
        line = [group.target, *([group.variant] if varied else [])]
        line += [number(group.value(figure)) for figure in figures]
        leading = next((figure for figure in figures if group.values(figure)), "")
        line += [percent(group.variation(leading)), f"{group.valid} of {len(group.rows)}"]
        lines.append(tuple(line))
    doubtful = frozenset(at for at, group in enumerate(groups) if not group.valid)
    return Table(tuple(headings), tuple(lines), doubtful, 1 + varied)


def shown(experiment: Experiment, groups: Sequence[Group]) -> Mapping[str, str]:
    """The figures that get a column, with their headings: what the experiment names, as far as any cell has it."""
    named = {metric.name: title(metric.name, metric.unit) for metric in experiment.metrics}
    wanted = named or {name: title(name) for name in HEADLINES}
    return {name: text for name, text in wanted.items() if any(group.value(name) is not None for group in groups)}


def complaints(groups: Sequence[Group]) -> list[str]:
    """What is wrong with runs that do not count; those with the same words share a line."""
    found: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        for row in group.rows:
            for reason in [first_line(row.error)] if row.error else row.invalid:
                found.setdefault(reason, {}).setdefault(group.label, []).append(str(row.repeat + 1))
    return [f"{'; '.join(starmap(which, cells.items()))}: {reason}" for reason, cells in found.items()]


def which(label: str, runs: list[str]) -> str:
    """Some runs of a cell."""
    return f"{label}, {'run' if len(runs) == 1 else 'runs'} {listed(runs)}"


def first_line(text: str) -> str:
    """An error's first line, not longer than a line should be."""
    line = text.strip().splitlines()[0] if text.strip() else "failed"
    return line if len(line) <= 300 else line[:297] + "..."
