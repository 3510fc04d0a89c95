"""The matrix: an experiment's cells times its repeats, in an order drawn from a recorded seed."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, Experiment, Target


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


@dataclass(frozen=True)
class Stage:
    """Runs of one experiment and one phase; `last` when no later stage has runs of this experiment."""

    experiment: Experiment
    runs: tuple[Planned, ...]
    last: bool


def plan(experiment: Experiment, knobs: Knobs, seed: int) -> list[Planned]:
    """All runs of an experiment in their order; ValueError when two cells cannot be told apart.

    Each repeat is a block of its own inside a phase, so that what changes slowly on the machine meets all cells alike,
    and an interrupted matrix has nearly as many runs of one cell as of the others.
    """
    cells = wanted(experiment.cells(knobs), knobs)
    if len({cell.key for cell in cells}) != len(cells):
        raise ValueError(f"{experiment.name}: two of its cells have the same key")
    least = 1 if "repeats" in knobs.given else experiment.repeats_least
    asked = max(knobs.int("repeats"), least)
    repeats = min(asked, experiment.repeats_most or asked)
    drawn = [
        (cell, repeat)
        for phase in sorted({cell.phase for cell in cells})
        for repeat in range(repeats)
        for cell in shuffled([c for c in cells if c.phase == phase], f"{seed}/{experiment.name}/{phase}/{repeat}")
    ]
    return [Planned(cell, repeat, order) for order, (cell, repeat) in enumerate(drawn)]


def wanted(cells: Sequence[Cell], knobs: Knobs) -> list[Cell]:
    """The cells of the targets asked for, and for each pooler by address those that a plain pgshoal would have."""
    names = knobs.texts("targets")
    addresses = [name for name in names if ":" in name]
    if knobs.int("pooler_port"):
        addresses.append(f"{knobs.text('pooler_host')}:{knobs.int('pooler_port')}")
    out = [cell for cell in cells if cell.target.kind in (*names, "address")]
    for address in dict.fromkeys(addresses):
        stranger = Target("address", address=address)
        out += [replace(cell, target=stranger, settings={}, budget=None) for cell in cells if is_plain(cell)]
    return list({cell.key: cell for cell in out}.values()) if addresses else out


def is_plain(cell: Cell) -> bool:
    """Whether a pooler of which nothing is known can take the place of this cell's."""
    target = cell.target
    return (target.kind, target.processes, target.nodes, cell.tls) == ("pgshoal", 1, 1, "none")


def shuffled(cells: Sequence[Cell], seed: str) -> list[Cell]:
    """The cells in an order that depends on their keys and the seed alone."""
    out = sorted(cells, key=lambda cell: cell.key)
    random.Random(seed).shuffle(out)
    return out


def open_runs(planned: Sequence[Planned], done: Collection[tuple[str, int]]) -> list[Planned]:
    """What a resumed run has still to make."""
    return [one for one in planned if one.mark not in done]


def stages(plans: Sequence[tuple[Experiment, Sequence[Planned]]]) -> list[Stage]:
    """The order of all of it: neighbours that want the same server go through their phases together.

    So the direct runs of several experiments all come before their pooled ones.
    """
    out: list[Stage] = []
    for _, together in groupby(plans, key=lambda pair: dict(pair[0].server)):
        mixed = list(_by_phase(list(together)))
        for at, (experiment, runs) in enumerate(mixed):
            last = all(other.name != experiment.name for other, _ in mixed[at + 1 :])
            out.append(Stage(experiment, runs, last))
    return out


def _by_phase(
    plans: Sequence[tuple[Experiment, Sequence[Planned]]],
) -> Iterator[tuple[Experiment, tuple[Planned, ...]]]:
    for phase in sorted({one.cell.phase for _, runs in plans for one in runs}):
        for experiment, runs in plans:
            if mine := tuple(one for one in runs if one.cell.phase == phase):
                yield experiment, mine
