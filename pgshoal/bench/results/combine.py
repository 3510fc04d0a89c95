"""Runs of the same cell put together: medians and variation of their figures, percentiles of all their samples."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pgshoal.bench.model import Kind, Row, Value
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.words import of_variant

Samples = NDArray[np.float32]
PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p999_ms": 99.9}
#: Where a distribution is drawn: ever closer to 100, as each nine takes the same width on its axis.
GRID = 100 * (1 - np.logspace(0, -5, 201))
KINDS: tuple[Kind, ...] = ("direct", "address", "pgbouncer", "pgshoal")
WORDS = ("none", "client", "server", "both", "shared", "isolated")  # in this order where they are values of a variant
FLEET = re.compile(r" x\d+\b| \d+ nodes\b")


class Counts(NamedTuple):
    """How many clients, or attempts, succeeded and failed."""

    succeeded: float
    failed: float

    @property
    def all(self) -> float:
        """How many there were."""
        return self.succeeded + self.failed


@dataclass(frozen=True)
class Group:
    """All runs of one cell. `curve` holds the pooled latencies at GRID, `pooled` what is computed from all samples."""

    rows: tuple[Row, ...]
    curve: NDArray[np.float64] | None = None
    pooled: Mapping[str, float] = field(default_factory=dict)

    @property
    def first(self) -> Row:
        """One of them, for what they share: target, kind, processes, variant, budget."""
        return self.rows[0]

    @property
    def variant(self) -> str:
        """The variant in words; empty when the target alone tells the cells apart."""
        return of_variant(self.first.variant)

    @property
    def label(self) -> str:
        """Target and variant, but not what both say."""
        own = {name: value for name, value in self.first.variant.items() if not self._told(name, value)}
        return ", ".join(filter(None, (self.first.target, of_variant(own))))

    @property
    def target(self) -> str:
        """The target without what its variant says as well, for places that show both."""
        target = self.first.target
        for name, value in self.first.variant.items():
            for words in said(name, value):
                target = target.replace(words, "")
        return target

    def _told(self, name: str, value: Value) -> bool:
        return any(words in self.first.target for words in said(name, value))

    @property
    def family(self) -> str:
        """The target without its number of processes."""
        return family(self.first.target)

    @property
    def counted(self) -> tuple[Row, ...]:
        """The runs whose figures count: the valid ones; if there are none, the doubtful ones, never spoiled ones."""
        return counted(self.rows)

    @property
    def valid(self) -> int:
        """How many runs are valid."""
        return sum(not (row.invalid or row.error) for row in self.rows)

    @property
    def failed(self) -> str:
        """The error of the first run that failed; empty when none did."""
        return next((row.error for row in self.rows if row.error), "")

    def facet(self, name: str) -> Value | None:
        """A part of the variant, or what all rows have: target, kind, processes."""
        shared: Mapping[str, Value] = {
            "processes": self.first.processes,
            "target": self.first.target,
            "kind": self.first.kind,
        }
        return self.first.variant.get(name, shared.get(name))

    def values(self, figure: str) -> list[float]:
        """The figure of each counted run."""
        return [float(row.figures[figure]) for row in self.counted if figure in row.figures]

    def value(self, figure: str) -> float | None:
        """The figure over all counted runs: percentiles from all samples, else the median; None when nothing has it."""
        if figure in self.pooled:
            return self.pooled[figure]
        found = self.values(figure)
        return statistics.median(found) if found else None

    def variation(self, figure: str) -> float | None:
        """The coefficient of variation over the counted runs; None below two of them."""
        found = self.values(figure)
        mean = statistics.fmean(found) if found else 0.0
        return statistics.stdev(found) / mean if len(found) > 1 and mean else None

    def cores(self) -> dict[str, float]:
        """Processors used by each process over the load interval, means of the counted runs."""
        rows = [row for row in self.counted if row.cpu_s and row.figures.get("seconds")]
        names = dict.fromkeys(name for row in rows for name in row.cpu_s)
        return {
            name: statistics.fmean(row.cpu_s.get(name, 0.0) / row.figures["seconds"] for row in rows) for name in names
        }

    def outcomes(self) -> Counts | None:
        """Medians over the counted runs, by the load's own count, else by its clients; None where none are counted."""
        yes, no = self.value("succeeded"), self.value("failed")
        if yes is not None:
            return Counts(yes, no or 0.0)
        counts = [(sum(bool(c["succeeded"]) for c in row.clients), len(row.clients)) for row in self.counted]
        counts = [(good, of) for good, of in counts if of]
        if not counts:
            return None
        return Counts(
            statistics.median(good for good, _ in counts), statistics.median(of - good for good, of in counts)
        )


def said(name: str, value: Value) -> tuple[str, ...]:
    """How the label of a target may say a part of a variant: `2 nodes`, `peers=off`, `isolated=on`."""
    return f" {value} {name}", f" {name}={value}", f" {value}=on"


def groups(book: Book) -> list[Group]:
    """The cells of a folder with all their runs and what their samples say, in the order of tables."""
    return [with_samples(book, group) for group in gathered(book.rows())]


def gathered(rows: Iterable[Row]) -> list[Group]:
    """The cells that these rows are runs of: by experiment, variant and target."""
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    found = [Group(tuple(sorted(runs, key=lambda row: row.repeat))) for runs in by_key.values()]
    experiments = list(dict.fromkeys(group.first.experiment for group in found))
    return sorted(found, key=lambda group: (experiments.index(group.first.experiment), *place(group.first)))


def by_variant(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Cells of the same variant together."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.variant, []).append(group)
    return found


def with_samples(book: Book, group: Group) -> Group:
    """One cell; its samples are read once and let go, as they may be many millions."""
    samples = book.samples(group.counted)
    if not len(samples):
        return group
    samples.sort()
    pooled = {name: float(np.percentile(samples, at)) for name, at in PERCENTILES.items()}
    pooled |= {"max_ms": float(samples[-1]), "samples": float(len(samples))}
    return replace(group, curve=np.percentile(samples, reachable(len(samples))), pooled=pooled)


def reachable(samples: int) -> NDArray[np.float64]:
    """The part of GRID that so many samples can tell: at least one must lie beyond."""
    return GRID[100 * (1 - 1 / samples) >= GRID]


def counted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """See Group.counted. Of doubtful runs those that lie apart come last: a slow run is not averaged with others."""
    whole = tuple(row for row in rows if not row.spoiled)
    return tuple(row for row in whole if not row.invalid) or tuple(row for row in whole if not row.apart) or whole


def family(target: str) -> str:
    """A target's label without its number of processes and nodes: fleets of all sizes are one line of a chart."""
    return FLEET.sub("", target)


def place(row: Row) -> tuple[Any, ...]:
    """Sorts rows of one experiment: by the variant, then direct before poolers, few processes before many."""
    variant = tuple((name, *rank(value)) for name, value in row.variant.items())
    return variant, KINDS.index(row.kind), family(row.target), row.processes


def rank(value: Value) -> tuple[int, float, str]:
    """Numbers by size, known words in their order, others by the alphabet."""
    if isinstance(value, str):
        return (1, float(WORDS.index(value)), "") if value in WORDS else (2, 0.0, value)
    return 0, float(value), ""
