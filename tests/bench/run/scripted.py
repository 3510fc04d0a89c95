"""A bench without servers: loads that do what a test says, on a stand, targets and meters that only take notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.measure.meter import Measured
from pgshoal.bench.model import Cell, Experiment, Outcome, Row, Scene, Target
from pgshoal.bench.run import facts, runner, single, standing
from pgshoal.bench.run.matrix import Planned

DIRECT, POOLED = Target("direct"), Target("pgshoal")


def knobs(**options: str) -> Knobs:
    """The quick knobs with a seed."""
    return resolve({"seed": "7", **options}, {}, quick=True)


@dataclass(frozen=True)
class ScriptedLoad:
    """Calls what the test gave; by default 100 transactions a second."""

    act: Callable[[Scene], Outcome] = lambda scene: Outcome({"tps": 100.0}, 300)
    generators: int = 1

    def run(self, scene: Scene) -> Outcome:
        """Does it."""
        return self.act(scene)


def cell(experiment: str, target: Target, load: ScriptedLoad | None = None, **more: Any) -> Cell:
    """A cell with a load of the test's."""
    return Cell(experiment, target, load or ScriptedLoad(), **more)


def experiment(name: str, *cells: Cell, **more: Any) -> Experiment:
    """An experiment of these cells."""
    return Experiment(name, name, "what is it?", lambda knobs: cells, (), **more)


@dataclass
class Notes:
    """What happened, in its order."""

    seen: list[str] = field(default_factory=list)
    #: By the settings asked for: the error that preparing the server ends in.
    broken: dict[str, Exception] = field(default_factory=dict)


class ScriptedStand:
    """A server that is prepared by a note."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.postmaster_pid: int | None = 1

    def prepare(self, settings: Mapping[str, str]) -> None:
        """Notes the settings."""
        text = ",".join(f"{name}={value}" for name, value in settings.items())
        self.notes.seen.append(f"prepare {text}".strip())
        self.postmaster_pid = 1
        if text in self.notes.broken:
            raise self.notes.broken[text]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.notes.seen.append("stand closed")


class ScriptedTarget:
    """A target that runs until a load says otherwise."""

    def __init__(self) -> None:
        self.running = True

    def log_text(self) -> str:
        """Something to quote."""
        return "a line of its log"


class ScriptedMeter:
    """Measures nothing."""

    def __init__(self, stand: object, target: object) -> None:
        self.running = False

    def begin(self) -> None:
        """Is on."""
        self.running = True

    def end(self) -> None:
        """Is off."""
        self.running = False

    def measured(self, outcome: Outcome) -> Measured:
        """What a row must have."""
        assert not self.running
        return Measured({"transactions": float(outcome.transactions)}, {"load": 1.0}, {})


class Listener:
    """Implements `Tell` by notes."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def planned(self, runs: Sequence[Planned], seconds_each: float) -> None:
        """How many."""
        self.notes.seen.append(f"planned {len(runs)}")

    def left_out(self, cell: Cell, reason: str) -> None:
        """Which, and why."""
        self.notes.seen.append(f"left out {cell.target.label}: {reason}")

    def begins(self, one: Planned) -> None:
        """Which."""
        self.notes.seen.append(f"run {one.cell.experiment} {one.cell.target.label} {one.repeat}")

    def ended(self, row: Row) -> None:
        """Only what is not plain."""
        if row.error:
            self.notes.seen.append(f"error {row.target}")

    def finished(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        """How many rows."""
        self.notes.seen.append(f"finished {experiment.name} {len(rows)}")

    def failed(self, name: str, reason: str) -> None:
        """Which, and why."""
        self.notes.seen.append(f"given up {name}: {reason}")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The runner on a scripted stand."""
    made = Notes()

    @contextmanager
    def opened(stand: object, cell: Cell, knobs: Knobs) -> Iterator[ScriptedTarget]:
        made.seen.append(f"open {cell.target.label}")
        yield ScriptedTarget()
        made.seen.append(f"close {cell.target.label}")

    monkeypatch.setattr(runner, "Stand", lambda knobs: ScriptedStand(made))
    monkeypatch.setattr(standing, "opened", opened)
    monkeypatch.setattr(single, "Meter", ScriptedMeter)
    monkeypatch.setattr(facts, "versions", lambda stand, knobs, cells: {"server": "none"})
    return made


def work(notes: Notes, folder: Path, *experiments: Experiment, resume: bool = False, **options: str) -> runner.Ended:
    """Runs experiments by the runner."""
    ended = runner.Ended()
    declared = {one.name: (one,) for one in experiments}
    runner.run(declared, knobs(**options), folder, resume, Listener(notes), ended)
    return ended
