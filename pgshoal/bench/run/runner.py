"""Works off a matrix: prepares PostgreSQL, opens the target, runs the load, checks, and keeps one row a run."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import psycopg

from pgshoal.bench.experiments.engines import unusable
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.measure.validity import examine, unmade
from pgshoal.bench.model import Cell, Experiment, NotHere, Row
from pgshoal.bench.results.book import Book
from pgshoal.bench.run import facts, single
from pgshoal.bench.run.matrix import Planned, Stage, open_runs, plan, stages
from pgshoal.bench.run.standing import Standing
from pgshoal.bench.stand import Stand

#: What ends a run, or the rest of an experiment, but not the others.
FAILURES: Final = (RuntimeError, OSError, ValueError, subprocess.SubprocessError, psycopg.Error)


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
        """All runs of an experiment are made and checked, or as many as there will be."""

    def failed(self, name: str, reason: str) -> None:
        """An experiment, or the rest of it, was given up."""


@dataclass
class Ended:
    """What a call has brought: all rows of the folder, and what went wrong or was left out."""

    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # by the cell's key
    failed: dict[str, str] = field(default_factory=dict)  # by the experiment's name

    @property
    def all_well(self) -> bool:
        """Whether nothing failed and no server was lost; what cannot be run here is no failure, nor lost clients."""
        return not self.failed and not any(row.error or row.lost for row in self.rows)


def run(
    declared: Mapping[str, Sequence[Experiment]], knobs: Knobs, folder: Path, resume: bool, tell: Tell, ended: Ended
) -> None:
    """Makes all runs that the folder does not hold yet; KeyboardInterrupt leaves the rows made so far in it.

    ValueError when the knobs leave nothing to run. `declared` are the experiments by the names of the command line;
    `ended` is filled as it goes.
    """
    book, started = Book(folder), single.now()
    done = book.done() if resume else set()
    with Stand(knobs) as stand:
        work = Work(stand, book, knobs, tell, ended)
        todo = work.planned([one for some in declared.values() for one in some], done)
        if not work.cells and not ended.failed:
            raise ValueError("nothing is left to run: --targets, --only or another knob rules everything out")
        about = facts.about(stand, knobs, tuple(declared), work.cells.values(), started)
        book.begin(about)
        tell.planned([one for stage in todo for one in stage.runs], facts.guess_s(knobs))
        try:
            for stage in todo:
                work.make(stage)
        finally:
            work.settle()
            book.begin({**about, "left_out": ended.left_out, "failed": ended.failed})


class Work:
    """One call of `run`, on a stand that stands."""

    def __init__(self, stand: Stand, book: Book, knobs: Knobs, tell: Tell, ended: Ended) -> None:
        self.stand, self.book, self.knobs, self.tell, self.ended = stand, book, knobs, tell, ended
        self.cells: dict[str, Cell] = {}  # by key: all that are wanted
        self._unsettled: dict[str, Experiment] = {}

    def planned(self, experiments: Sequence[Experiment], done: set[tuple[str, int]]) -> list[Stage]:
        """The stages to be made, without what is done and what cannot be done here."""
        plans: list[tuple[Experiment, list[Planned]]] = []
        for experiment in experiments:
            try:
                every = plan(experiment, self.knobs, self.knobs.int("seed"))
            except FAILURES as error:
                self._give_up(experiment, error)
                continue
            self._unsettled[experiment.name] = experiment
            for cell in {one.cell.key: one.cell for one in every}.values():
                self.cells[cell.key] = cell
                if reason := unusable(dict(cell.target.options).get("engine", "auto")):
                    self._leave_out(cell, reason)
            here = [one for one in every if one.cell.key not in self.ended.left_out]
            plans.append((experiment, open_runs(here, done)))
        return stages(plans)

    def make(self, stage: Stage) -> None:
        """All runs of a stage; one that fails is a row, a server that cannot be prepared ends the experiment."""
        if stage.experiment.name not in self.ended.failed:
            try:
                self._make_all(stage)
            except FAILURES as error:
                self._give_up(stage.experiment, error)
        if stage.last:
            self._settle_one(self._unsettled.pop(stage.experiment.name))

    def _make_all(self, stage: Stage) -> None:
        with Standing(self.stand, self.knobs, stage.experiment) as standing:
            for one in stage.runs:
                if one.cell.key not in self.ended.left_out:
                    standing.prepare()
                    self._make_one(stage.experiment, one, standing)

    def _make_one(self, experiment: Experiment, one: Planned, standing: Standing) -> None:
        self.tell.begins(one)
        try:
            row, latencies = single.make(one, standing, self.knobs)
        except NotHere as reason:
            self._leave_out(one.cell, str(reason))
            return
        except FAILURES as error:
            row, latencies = single.failed(one, standing.ending(error)), None
        row = examined(row, (), one.cell, experiment)
        self.tell.ended(self.book.add(row, latencies))

    def settle(self) -> None:
        """Checks what an interrupt has left unchecked, and takes the rows out of the book."""
        for experiment in self._unsettled.values():
            self._settle_one(experiment)
        self.ended.rows = self.book.rows()

    def _settle_one(self, experiment: Experiment) -> None:
        """The checks once more, now that each row has its peers."""
        rows = self.book.rows()
        mine = [row for row in rows if row.experiment == experiment.name]
        for row in mine:
            if cell := self.cells.get(row.key):
                rows[rows.index(row)] = examined(row, mine, cell, experiment)
        self.book.replace(rows)
        self.tell.finished(experiment, [row for row in rows if row.experiment == experiment.name])

    def _leave_out(self, cell: Cell, reason: str) -> None:
        self.ended.left_out[cell.key] = reason
        self.tell.left_out(cell, reason)

    def _give_up(self, experiment: Experiment, error: BaseException) -> None:
        self.ended.failed[experiment.name] = str(error)
        self.tell.failed(experiment.name, str(error))


def examined(row: Row, peers: Sequence[Row], cell: Cell, experiment: Experiment) -> Row:
    """The row with what the experiment's checks say of it, and which of them could not be made."""
    names = experiment.checks
    return replace(row, invalid=examine(row, peers, cell, names), unchecked=unmade(row, cell, names))
