"""C: how many cancels arrive with one process, with several, and with several that know each other."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import DIRECT, phase
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.cancels import CancelLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published, Target

SOURCE = "100 attempts"


def cells(knobs: Knobs) -> list[Cell]:
    """The same cancels against each target; workers of pgshoal know each other always."""
    load = CancelLoad(knobs.int("cancel_attempts"))
    several = knobs.int("cancel_processes")
    fleets = [
        (Target("pgshoal", several), "on"),
        *((Target("pgbouncer", several, (("peers", peers),)), peers) for peers in ("off", "on")),
    ]
    singles = [(target, "none") for target in (DIRECT, Target("pgshoal"), Target("pgbouncer"))]
    settings = {"pool_mode": "transaction", "default_pool_size": 40}
    return [
        Cell("cancel", target, load, {"peers": peers}, settings, phase=phase(target))
        for target, peers in (*singles, *fleets)
    ]


EXPERIMENT = Experiment(
    name="cancel",
    title="Cancels",
    question="how many cancels reach their query: one process, several, several with peering",
    cells=cells,
    metrics=(Metric("share", "", higher_is_better=True), Metric("cancel_ms", "ms"), Metric("max_ms", "ms")),
    knobs=("cancel_attempts", "cancel_processes"),
    charts=(Chart("outcomes", "Cancels that arrived"), Chart("latency", "From the cancel to the error")),
    published=(
        Published("share, several without peering", 0.23, Pick("share", "pgbouncer", {"peers": "off"}), source=SOURCE),
        Published("share, several with peering", 1.0, Pick("share", "pgbouncer", {"peers": "on"}), source=SOURCE),
        Published("share, several workers of pgshoal", 1.0, Pick("share", "pgshoal", {"peers": "on"}), source=SOURCE),
    ),
    checks=("alive",),
)
