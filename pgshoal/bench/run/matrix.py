"""The matrix: an experiment's cells times its repeats, in an order drawn from a recorded seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, Experiment


@dataclass(frozen=True)
class Planned:
    """One run to be made; `order` counts through the experiment, whatever a resumed run leaves out."""

    cell: Cell
    repeat: int
    order: int

    @property
    def mark(self) -> tuple[str, int]:
        """What the book knows a finished run by."""
        return self.cell.key, self.repeat


def plan(experiment: Experiment, knobs: Knobs, seed: int) -> list[Planned]:
    """All runs of an experiment in their order; ValueError when two cells cannot be told apart.

    Each repeat is a block of its own inside a phase, so that what changes slowly on the machine meets all cells alike,
    and an interrupted matrix has nearly as many runs of one cell as of the others.
    """
    kinds = frozenset(knobs.texts("targets"))
    cells = [cell for cell in experiment.cells(knobs) if cell.target.kind in kinds or cell.target.kind == "address"]
    if len({cell.key for cell in cells}) != len(cells):
        raise ValueError(f"{experiment.name}: two of its cells have the same key")
    repeats = min(knobs.int("repeats"), experiment.repeats_most or knobs.int("repeats"))
    drawn = [
        (cell, repeat)
        for phase in sorted({cell.phase for cell in cells})
        for repeat in range(repeats)
        for cell in shuffled([c for c in cells if c.phase == phase], f"{seed}/{experiment.name}/{phase}/{repeat}")
    ]
    return [Planned(cell, repeat, order) for order, (cell, repeat) in enumerate(drawn)]


def shuffled(cells: Sequence[Cell], seed: str) -> list[Cell]:
    """The cells in an order that depends on their keys and the seed alone."""
    out = sorted(cells, key=lambda cell: cell.key)
    random.Random(seed).shuffle(out)
    return out


def open_runs(planned: Sequence[Planned], done: Collection[tuple[str, int]]) -> list[Planned]:
    """What a resumed run has still to make."""
    return [one for one in planned if one.mark not in done]
