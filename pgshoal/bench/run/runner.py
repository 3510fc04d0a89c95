"""Works off a matrix: prepares PostgreSQL, opens the target, runs the load, checks, and keeps one row a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, Experiment, Row
from pgshoal.bench.run.matrix import Planned


class Tell(Protocol):
    """Who hears how it goes."""

    def planned(self, runs: Sequence[Planned], seconds_each: float) -> None:
        """All that is to be made, and a first guess of how long one takes."""

    def left_out(self, cell: Cell, reason: str) -> None:
        """A cell cannot be run here."""

    def begins(self, one: Planned) -> None:
        """A run is about to start."""

    def ended(self, row: Row) -> None:
        """A run was made, or failed."""

    def finished(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        """All runs of an experiment are made and checked."""

    def failed(self, name: str, reason: str) -> None:
        """An experiment, or the rest of it, was given up."""


@dataclass
class Ended:
    """What a call has brought: all rows of the folder, and what went wrong or was left out."""

    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # by the cell's key
    failed: dict[str, str] = field(default_factory=dict)  # by the experiment's name


def run(experiments: Sequence[Experiment], knobs: Knobs, folder: Path, resume: bool, tell: Tell) -> Ended:
    """Makes all runs that the folder does not hold yet; KeyboardInterrupt leaves the rows made so far in it."""
    raise NotImplementedError
