"""The terminal while a matrix is worked off: experiment, run, time left, and a line for each run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from pgshoal.bench.model import Cell, Experiment, Row
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.findings import finding
from pgshoal.bench.results.tables import HEADLINES
from pgshoal.bench.results.words import number, title
from pgshoal.bench.run.matrix import Planned


class TimeLeft:
    """Guesses from the runs made: an experiment's own ones where there are any, the first guess before."""

    def __init__(self) -> None:
        self._guess_s = 0.0
        self._left: dict[str, int] = {}
        self._took_s: dict[str, list[float]] = {}

    def plan(self, runs: Sequence[Planned], seconds_each: float) -> None:
        """All runs to come."""
        self._guess_s = seconds_each
        for one in runs:
            self._left[one.cell.experiment] = self._left.get(one.cell.experiment, 0) + 1

    def ended(self, experiment: str, seconds: float) -> None:
        """One of them is over."""
        self._left[experiment] = max(self._left.get(experiment, 0) - 1, 0)
        self._took_s.setdefault(experiment, []).append(seconds)

    def skipped(self, experiment: str, runs: int | None = None) -> None:
        """So many of them, or all that are left, will not be made."""
        left = self._left.get(experiment, 0)
        self._left[experiment] = 0 if runs is None else max(left - runs, 0)

    @property
    def runs(self) -> int:
        """How many are left."""
        return sum(self._left.values())

    @property
    def seconds(self) -> float:
        """How long they will take."""
        return sum(
            count * (fmean(self._took_s[name]) if name in self._took_s else self._guess_s)
            for name, count in self._left.items()
        )


class Screen:
    """Implements the runner's `Tell` on a terminal; elsewhere only the lines are printed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.left = TimeLeft()
        self._begun = 0.0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting PostgreSQL", total=None, left="")

    def planned(self, runs: Sequence[Planned], seconds_each: float) -> None:
        """The bar gets its length."""
        self.left.plan(runs, seconds_each)
        self._bar.update(self._task, total=len(runs))
        self._show_left()

    def left_out(self, cell: Cell, reason: str) -> None:
        """Said once for each cell."""
        where = f"{cell.experiment}, {described(cell)}"
        self.console.print(f"left out: {where}: {reason}", style="yellow", markup=False, soft_wrap=True)

    def begins(self, one: Planned) -> None:
        """The bar says what runs now."""
        self._begun = time.monotonic()
        self._bar.update(self._task, description=f"{one.cell.experiment}: {described(one.cell)}, #{one.repeat + 1}")

    def ended(self, row: Row) -> None:
        """A line for the run."""
        self.left.ended(row.experiment, time.monotonic() - self._begun)
        self._bar.advance(self._task)
        self._show_left()
        self.console.print(line(row), style="red" if row.error else None, markup=False, highlight=False, soft_wrap=True)

    def finished(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        """What came out of an experiment, in a sentence; the tables come at the end."""
        if rows:
            self.console.print(finding(experiment, gathered(rows)), style="bold", markup=False, highlight=False)

    def failed(self, name: str, reason: str) -> None:
        """Why an experiment is not run to its end."""
        self.left.skipped(name)
        self._show_left()
        self.console.print(f"{name} was given up: {reason}", style="red", markup=False, soft_wrap=True)

    def _show_left(self) -> None:
        self._bar.update(self._task, left=f"{clock(self.left.seconds)} left" if self.left.runs else "")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def described(cell: Cell) -> str:
    """Target and variant of a cell."""
    return " ".join((cell.target.label, *(f"{name}={value}" for name, value in cell.variant.items())))


def line(row: Row) -> str:
    """One run in one line: its main figures, or why there are none."""
    variant = " ".join(f"{name}={value}" for name, value in row.variant.items())
    where = " ".join(part for part in (row.experiment, row.target, variant, f"#{row.repeat + 1}") if part)
    if row.error:
        return f"{where}: failed: {row.error}"
    shown = [f"{title(name)} {number(row.figures[name])}" for name in HEADLINES if name in row.figures]
    return f"{where}: {'; '.join(shown)}" + "".join(f"; invalid: {reason}" for reason in row.invalid)


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
