"""A: what a new connection for each query costs, direct and pooled."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import LAPTOP_KNOBS, LAPTOP_SERVER, laptop
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.sessions import ConnectLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published

SOURCE = "a laptop, PostgreSQL 16, 5,000 units over 15 threads"


def cells(knobs: Knobs) -> list[Cell]:
    """The same units of work against each target."""
    return laptop("connect", ConnectLoad(knobs.int("units"), knobs.int("a_concurrency")), knobs)


EXPERIMENT = Experiment(
    name="connect",
    title="A new connection for each query",
    question="what does a new connection for each query cost, direct and pooled",
    cells=cells,
    metrics=(
        Metric("units_per_s", "/s", higher_is_better=True, base="direct"),
        Metric("p99_ms", "ms", base="direct"),
        Metric("failed", "units"),
    ),
    knobs=("units", "a_concurrency", *LAPTOP_KNOBS),
    charts=(Chart("bars", "Units of work", "units_per_s"), Chart("latency", "From connect to close")),
    published=(
        Published("units/s, pooled to direct", 3289 / 1590, Pick("units_per_s"), Pick("units_per_s", "direct"), SOURCE),
        Published("p99, pooled to direct", 9.37 / 17.01, Pick("p99_ms"), Pick("p99_ms", "direct"), SOURCE),
    ),
    checks=("load-free", "budget", "samples", "steal", "counts", "steady", "alive"),
    server=LAPTOP_SERVER,
    files=("exp_a_latencies.csv",),
)
