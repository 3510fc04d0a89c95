"""What a reader must know of a run beside its rows: run.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgshoal import __version__
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.measure import machine
from pgshoal.bench.model import Cell, NotHere
from pgshoal.bench.stand import Stand
from pgshoal.bench.targets.poolers import bouncer

#: Starting, connecting and stopping, beside warm-up, interval and cool-down.
AROUND_S = 2.0


def about(stand: Stand, knobs: Knobs, names: Sequence[str], cells: Iterable[Cell], started: str) -> dict[str, Any]:
    """All of it, as plain values; without secrets, as the knobs leave theirs out."""
    every = list(cells)
    return {
        "started": started,
        "seed": knobs.int("seed"),
        "quick": knobs.quick,
        "kit": f"pgshoal {__version__}",
        "experiments": list(names),
        "machine": machine.facts(),
        "versions": versions(stand, knobs, every),
        "knobs": knobs.as_dict(),
        "digests": {cell.key: machine.digest(configuration(cell)) for cell in every},
    }


def versions(stand: Stand, knobs: Knobs, cells: Iterable[Cell]) -> Mapping[str, str]:
    """Of the programs that take part, and of the server as it says itself."""
    programs: dict[str, Path] = {"pgbench": stand.programs["pgbench"]}
    if any(cell.target.kind == "pgbouncer" for cell in cells):
        try:
            programs["pgbouncer"] = bouncer(knobs)
        except NotHere:
            programs.pop("pgbouncer", None)  # its cells are left out, with the reason
    return {"server": stand.sql("show server_version"), **machine.versions(programs)}


def configuration(cell: Cell) -> str:
    """What a target is started with, in one text."""
    target = cell.target
    settings = {name: str(value) for name, value in cell.settings.items()}
    return json.dumps([target.label, settings, cell.tls, cell.user], sort_keys=True)


def guess_s(knobs: Knobs) -> float:
    """How long a run takes before one was made."""
    return sum(map(knobs.float, ("warmup", "seconds", "cooldown"))) + AROUND_S
