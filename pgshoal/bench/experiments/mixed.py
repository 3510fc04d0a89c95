"""X: whether exports beside an API hurt it, and whether a process of their own helps."""

from __future__ import annotations

from itertools import product

from pgshoal.bench.experiments.contenders import POOLERS, ratio
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.exports import MixedLoad
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Target

LAYOUTS = {"shared": (), "isolated": (("isolated", "on"),)}
ISOLATED, SHARED = {"exports": "isolated"}, {"exports": "shared"}
SOURCE = "8,000 requests/s, four exports, four processes"


def cells(knobs: Knobs) -> list[Cell]:
    """All processes serve both, or one serves the exports alone."""
    api = PgbenchLoad(("-S",), clients=knobs.int("api_clients"), rate=knobs.int("api_rate"))
    budget = knobs.int("budget")
    settings = {"pool_mode": "transaction", "default_pool_size": budget}
    found = []
    for kind, (layout, options) in product(POOLERS, LAYOUTS.items()):
        load = MixedLoad(api, knobs.int("exports"), knobs.int("export_mb"), layout == "isolated")
        target = Target(kind, knobs.int("mixed_processes"), options)
        found.append(Cell("mixed", target, load, {"exports": layout}, settings, phase=1, budget=budget))
    return found


EXPERIMENT = Experiment(
    name="mixed",
    title="Exports beside an API",
    question="do exports beside an API hurt it, and does a process of their own help",
    cells=cells,
    metrics=(
        Metric("p99_ms", "ms"),
        Metric("api_rate", "/s", higher_is_better=True),
        Metric("throughput_mib_s", "MiB/s", higher_is_better=True),
    ),
    knobs=("api_rate", "api_clients", "exports", "export_mb", "mixed_processes", "scale"),
    charts=(
        Chart("bars", "Exports", "throughput_mib_s"),
        Chart("latency", "Latency of the API, from the scheduled start"),
        Chart("cpu", "CPU by process"),
    ),
    published=(
        ratio("exports, isolated to shared", 582 / 992, "throughput_mib_s", ISOLATED, SHARED, SOURCE),
        ratio("p99 of the API, isolated to shared (no gain)", 1.0, "p99_ms", ISOLATED, SHARED, SOURCE),
    ),
    checks=("machine-free", "budget", "samples", "steal", "counts", "stall", "steady", "alive"),
)
