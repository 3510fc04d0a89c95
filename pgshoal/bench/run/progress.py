"""The terminal while a matrix is worked off: experiment, run, time left, and a line for each run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from pgshoal.bench.model import Cell, Experiment, Row
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.findings import finding
from pgshoal.bench.results.tables import HEADLINES, first_line
from pgshoal.bench.results.words import number, title
from pgshoal.bench.run.matrix import Planned


class TimeLeft:
    """Guesses from the runs made: an experiment's own ones where there are any, the first guess before."""

    def __init__(self) -> None:
        self._guess_s = 0.0
        self._left: Counter[tuple[str, str]] = Counter()  # by experiment and the cell's key
        self._took_s: dict[str, list[float]] = {}

    def plan(self, runs: Sequence[Planned], seconds_each: float) -> None:
        """All runs to come."""
        self._guess_s = seconds_each
        self._left.update((one.cell.experiment, one.cell.key) for one in runs)

    def ended(self, experiment: str, key: str, seconds: float) -> None:
        """One of them is over."""
        self._left[experiment, key] -= 1
        self._took_s.setdefault(experiment, []).append(seconds)

    def skip(self, experiment: str, key: str = "") -> None:
        """What is left of a cell, or of an experiment, will not be made."""
        for one in self._left:
            if one[0] == experiment and key in ("", one[1]):
                self._left[one] = 0

    @property
    def runs(self) -> int:
        """How many are left."""
        return self._left.total()

    @property
    def seconds(self) -> float:
        """How long they will take."""
        return sum(count * self._each_s(experiment) for (experiment, _), count in self._left.items())

    def _each_s(self, experiment: str) -> float:
        return fmean(self._took_s.get(experiment, [self._guess_s]))


class Screen:
    """Implements the runner's `Tell` on a terminal; elsewhere only the lines are printed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.left = TimeLeft()
        self._begun, self._whole = 0.0, 0
        self._left_out: Counter[str] = Counter()  # cells by reason
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
        self._whole = len(runs)
        self._show_left()

    def left_out(self, cell: Cell, reason: str) -> None:
        """The first cell of each reason is named; how many more there are is said in the end."""
        self.left.skip(cell.experiment, cell.key)
        self._left_out[reason] += 1
        if self._left_out[reason] > 1:
            return
        where = f"{cell.experiment}, {described(cell)}"
        self.console.print(f"left out: {where}: {reason}", style="yellow", markup=False, soft_wrap=True)

    def begins(self, one: Planned) -> None:
        """The bar says what runs now."""
        self._begun = time.monotonic()
        self._bar.update(self._task, description=f"{one.cell.experiment}: {described(one.cell)}, #{one.repeat + 1}")

    def ended(self, row: Row) -> None:
        """A line for the run."""
        self.left.ended(row.experiment, row.key, time.monotonic() - self._begun)
        self._show_left()
        self.console.print(line(row), style="red" if row.error else None, markup=False, highlight=False, soft_wrap=True)

    def finished(self, experiment: Experiment, rows: Sequence[Row]) -> None:
        """What came out of an experiment, in a sentence; the tables come at the end."""
        if rows:
            said = finding(experiment, gathered(rows))
            self.console.print(said, style="bold", markup=False, highlight=False, soft_wrap=True)

    def failed(self, name: str, reason: str) -> None:
        """Why an experiment is not run to its end."""
        self.left.skip(name)
        self._show_left()
        self.console.print(f"{name} was given up: {reason}", style="red", markup=False, soft_wrap=True)

    def _show_left(self) -> None:
        words = f"{clock(self.left.seconds)} left" if self.left.runs else ""
        self._bar.update(self._task, total=self._whole, completed=self._whole - self.left.runs, left=words)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        for reason, count in self._left_out.items():
            if count > 1:
                text = f"left out for the same reason: {count - 1} more cell{'s' if count > 2 else ''}: {reason}"
                self.console.print(text, style="yellow", markup=False, soft_wrap=True)


def described(cell: Cell) -> str:
    """Target and variant of a cell."""
    return " ".join((cell.target.label, *(f"{name}={value}" for name, value in cell.variant.items())))


def line(row: Row) -> str:
    """One run in one line: its main figures, or why there are none."""
    variant = " ".join(f"{name}={value}" for name, value in row.variant.items())
    where = " ".join(part for part in (row.experiment, row.target, variant, f"#{row.repeat + 1}") if part)
    if row.error:
        return f"{where}: failed: {first_line(row.error)}"
    shown = [f"{title(name)} {number(row.figures[name])}" for name in HEADLINES if name in row.figures]
    doubts = [f"; invalid: {reason}" for reason in row.invalid] + [f"; not checked: {one}" for one in row.unchecked]
    return f"{where}: {'; '.join(shown)}{''.join(doubts)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
