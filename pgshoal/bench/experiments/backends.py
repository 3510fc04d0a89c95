"""D: how many backends twenty clients keep, and what memory that is."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import LAPTOP_KNOBS, LAPTOP_SERVER, laptop
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.sessions import HoldLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published

SOURCE = "a laptop, PostgreSQL 16, 20 clients, default_pool_size 10"


def cells(knobs: Knobs) -> list[Cell]:
    """The same clients on each target."""
    return laptop("backends", HoldLoad(knobs.int("c_hold")), knobs)


EXPERIMENT = Experiment(
    name="backends",
    title="Backends of clients that stay",
    question="how many backends do twenty clients keep, and what memory is that",
    cells=cells,
    metrics=(
        Metric("backends_max", "", base="direct"),
        Metric("postgres_rss_mb", "MB", base="direct"),
        Metric("units_per_s", "/s", higher_is_better=True),
    ),
    knobs=("c_hold", *LAPTOP_KNOBS),
    charts=(Chart("backends", "Backends over time"), Chart("bars", "Backends at most", "backends_max")),
    published=(
        Published("backends, pooled to direct", 0.5, Pick("backends_max"), Pick("backends_max", "direct"), SOURCE),
    ),
    checks=("budget", "samples", "steal", "alive"),
    server=LAPTOP_SERVER,
    files=("exp_c_backends.csv",),
)
