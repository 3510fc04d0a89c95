"""B: how many of a hundred clients at once are served."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import LAPTOP_KNOBS, LAPTOP_SERVER, laptop
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.sessions import BurstLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published

SOURCE = "a laptop, PostgreSQL 16 with max_connections 25, 100 clients"


def cells(knobs: Knobs) -> list[Cell]:
    """The same burst on each target."""
    return laptop("burst", BurstLoad(knobs.int("b_concurrency"), knobs.int("b_hold_ms")), knobs)


EXPERIMENT = Experiment(
    name="burst",
    title="A hundred clients at once",
    question="how many of a hundred clients that connect at the same moment are served",
    cells=cells,
    metrics=(
        Metric("succeeded", "clients", higher_is_better=True, base="direct"),
        Metric("failed", "clients"),
        Metric("max_ms", "ms"),
    ),
    knobs=("b_concurrency", "b_hold_ms", *LAPTOP_KNOBS),
    charts=(Chart("outcomes", "Clients served and lost"), Chart("latency", "From connect to close, those served")),
    published=(
        Published("clients served, direct", 25, Pick("succeeded", "direct"), source=SOURCE),
        Published("clients served, pooled to direct", 4.0, Pick("succeeded"), Pick("succeeded", "direct"), SOURCE),
    ),
    checks=("budget", "steal", "alive"),
    server=LAPTOP_SERVER,
    files=("exp_b_outcomes.csv",),
)
