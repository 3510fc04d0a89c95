"""Targets between runs: closed after each, or kept up where rounds shall alternate quickly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, Experiment
from pgshoal.bench.stand import Stand
from pgshoal.bench.targets.opened import Opened, opened

LOG_TAIL: Final = 1000


class Standing:
    """The targets of one stage."""

    def __init__(self, stand: Stand, knobs: Knobs, experiment: Experiment) -> None:
        self.stand, self.knobs, self.experiment = stand, knobs, experiment
        self._kept: dict[str, tuple[Opened, ExitStack]] = {}
        self._ending = ""
        self._postmaster: int | None = None

    def prepare(self) -> None:
        """Before each run: a drained server with the settings of the experiment; not while poolers are kept up.

        Where the server has ended, what stood in front of it goes too, so that the next runs have a new one.
        """
        if self._kept and self.stand.postmaster_pid == self._postmaster:
            return
        self._close_all()
        server = self.experiment.server.items()
        self.stand.prepare({name: value.format_map(self.knobs.values) for name, value in server})
        self._postmaster = self.stand.postmaster_pid

    @contextmanager
    def target(self, cell: Cell) -> Iterator[Opened]:
        """The cell's target, started; it stays so if the experiment wants that and it did not fail."""
        self._ending = ""
        name = place(cell)
        if name not in self._kept:
            stack = ExitStack()
            self._kept[name] = stack.enter_context(opened(self.stand, cell, self.knobs)), stack
        one, stack = self._kept[name]
        try:
            yield one
        except BaseException:
            state = "runs" if one.running else "has ended"
            self._ending = f"; {cell.target.label} {state}, its log: {one.log_text()[-LOG_TAIL:]}"
            self._close(name)
            raise
        if not self.experiment.keep_up or not one.running:
            self._close(name)

    def ending(self, error: BaseException) -> str:
        """An error of the last run, with what its target's log says."""
        return f"{str(error) or type(error).__name__}{self._ending}"

    def _close(self, name: str) -> None:
        _, stack = self._kept.pop(name)
        stack.close()

    def _close_all(self) -> None:
        with ExitStack() as every:
            for _, stack in self._kept.values():
                every.callback(stack.close)
        self._kept.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_all()


def place(cell: Cell) -> str:
    """Alike for cells that one started target can serve."""
    settings = ",".join(f"{name}={value}" for name, value in sorted(cell.settings.items()))
    return f"{cell.target.label}|{settings}|{cell.tls}|{cell.user}"
