"""A folder's cells by chapter: the experiments behind each name of the command line, in the order of `all`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgshoal.bench import experiments
from pgshoal.bench.model import Experiment
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.combine import Group, groups
from pgshoal.bench.results.findings import bounds_met, finding
from pgshoal.bench.results.published import Beside, beside
from pgshoal.bench.results.tables import complaints
from pgshoal.bench.results.verdicts import Verdict, verdicts

ASKING = frozenset({"what", "how", "do", "does", "is", "are", "which", "from", "whether"})
Declared = Mapping[str, Sequence[Experiment]]


@dataclass(frozen=True)
class Part:
    """One experiment with its cells."""

    experiment: Experiment
    groups: Sequence[Group]

    @property
    def question(self) -> str:
        """What is asked, with its mark; what is no question stays as it is."""
        said = self.experiment.question
        return f"{said}?" if said.split(" ", 1)[0] in ASKING else said

    @property
    def finding(self) -> str:
        """What came out, in a sentence."""
        return finding(self.experiment, self.groups)

    @property
    def verdicts(self) -> list[Verdict]:
        """Its ratios between targets."""
        return verdicts(self.experiment, self.groups)


@dataclass(frozen=True)
class Chapter:
    """One name of the command line; most have one experiment."""

    name: str
    parts: Sequence[Part]

    @property
    def question(self) -> str:
        """What is asked."""
        return self.parts[0].question

    @property
    def finding(self) -> str:
        """What came out: the experiment's sentence, or of several how they kept to their bounds."""
        if len(self.parts) == 1:
            return self.parts[0].finding
        met = bounds_met((part.experiment, part.groups) for part in self.parts)
        return met or " ".join(dict.fromkeys(part.finding for part in self.parts))

    @property
    def complaints(self) -> list[str]:
        """Runs that do not count."""
        if len(self.parts) == 1:
            return complaints(self.parts[0].groups)
        return [f"{part.experiment.name}: {line}" for part in self.parts for line in complaints(part.groups)]

    @property
    def verdicts(self) -> list[Verdict]:
        """Ratios between targets where some of them have a bound; elsewhere the published ratios tell enough."""
        found = [verdict for part in self.parts for verdict in part.verdicts]
        return found if any(verdict.bound is not None for verdict in found) else []

    @property
    def title(self) -> str:
        """Of its experiment, or the name where there are several."""
        return self.parts[0].experiment.title if len(self.parts) == 1 else self.name.capitalize()

    @property
    def published(self) -> list[Beside]:
        """Published figures beside ours."""
        return [one for part in self.parts for one in beside(part.experiment, part.groups)]


@dataclass(frozen=True)
class Run:
    """A folder as it is read: its facts and its chapters."""

    folder: Path
    facts: Mapping[str, Any]
    chapters: Sequence[Chapter]


def read(folder: Path, declared: Declared | None = None) -> Run:
    """Reads a folder; ValueError where there are no rows. Experiments nobody declares any more get a plain chapter."""
    book = Book(folder)
    of: dict[str, list[Group]] = {}
    for group in groups(book):
        of.setdefault(group.first.experiment, []).append(group)
    if not of:
        raise ValueError(f"{folder} has no rows of a run")
    known = experiments.EXPERIMENTS if declared is None else declared
    found = []
    for name, some in known.items():
        parts = [Part(one, of.pop(one.name)) for one in some if one.name in of]
        found += [Chapter(name, parts)] if parts else []
    found += [Chapter(name, [Part(undeclared(name), some)]) for name, some in of.items()]
    return Run(folder, book.facts(), found)


def undeclared(name: str) -> Experiment:
    """Stands for an experiment of another version."""
    return Experiment(name, name, "", lambda knobs: (), ())
