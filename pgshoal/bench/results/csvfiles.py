"""CSV files by the names that the published laptop harness gives them, for tools that read those."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pgshoal.bench.results.book import Book
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.tables import shown

Line = Sequence[object]


def write(run: Run) -> list[Path]:
    """Writes run_metadata.csv, and of the others those that an experiment of this run names."""
    book = Book(run.folder)
    written = [save(run.folder / "run_metadata.csv", ("key", "value"), metadata(run))]
    for chapter in run.chapters:
        for part in chapter.parts:
            for name in part.experiment.files:
                if name in FILES:
                    headings, lines = FILES[name]
                    written.append(save(run.folder / name, headings, lines(book, part.groups)))
    return written


def save(path: Path, headings: Sequence[str], lines: Iterable[Line]) -> Path:
    """One file."""
    with path.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(lines)
    return path


def latencies(book: Book, groups: Sequence[Group]) -> Iterator[Line]:
    """Every sample of every counted run."""
    for group in groups:
        for row in group.counted:
            yield from ((case(group), row.repeat, at, f"{ms:.4f}") for at, ms in enumerate(book.samples([row])))


def outcomes(book: Book, groups: Sequence[Group]) -> Iterator[Line]:
    """Every client of every run, with its error."""
    for group in groups:
        for row in group.rows:
            for one in row.clients:
                yield (
                    case(group),
                    row.repeat,
                    one["number"],
                    int(bool(one["succeeded"])),
                    f"{one['milliseconds']:.3f}",
                    one.get("error", ""),
                )


def backends(book: Book, groups: Sequence[Group]) -> Iterator[Line]:
    """Every sample of connection counts; the memory is that of the whole run."""
    for group in groups:
        for row in group.counted:
            memory = row.figures.get("postgres_rss_mb", "")
            series = (row.series.get(name, ()) for name in ("at_s", "backends", "backends_active"))
            for counts in zip_longest(*series, fillvalue=""):
                yield case(group), row.repeat, *counts, memory


def case(group: Group) -> str:
    """What the harness calls a case: the target, with its variant where there are several."""
    return group.label


FILES: Mapping[str, tuple[Sequence[str], Callable[[Book, Sequence[Group]], Iterator[Line]]]] = {
    "exp_a_latencies.csv": (("case", "repeat", "sample", "latency_ms"), latencies),
    "exp_b_outcomes.csv": (("case", "repeat", "client", "succeeded", "milliseconds", "error"), outcomes),
    "exp_c_backends.csv": (
        ("case", "repeat", "at_s", "backends", "backends_active", "postgres_rss_mb"),
        backends,
    ),
}


def metadata(run: Run) -> Iterator[Line]:
    """The facts of the run, then the headline figures as `experiment.target.variant.figure`."""
    yield from flat(run.facts)
    for chapter in run.chapters:
        for part in chapter.parts:
            for group in part.groups:
                for figure in shown(part.experiment, part.groups):
                    value = group.value(figure)
                    if value is not None:
                        place = filter(None, (part.experiment.name, group.first.target, group.variant, figure))
                        yield ".".join(place), f"{value:.6g}"


def flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Facts in facts, by names with dots."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, json.dumps(value) if isinstance(value, list) else value
