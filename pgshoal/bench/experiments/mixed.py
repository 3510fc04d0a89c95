"""X: whether exports beside an API hurt it, and whether a process of their own helps."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import POOLERS
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.exports import MixedLoad
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published, Target

LAYOUTS = {"shared": (), "isolated": (("isolated", "on"),)}
ISOLATED, SHARED = {"exports": "isolated"}, {"exports": "shared"}
SOURCE = "8,000 requests/s, four exports, four processes"


def cells(knobs: Knobs) -> list[Cell]:
    """All processes serve both, or one serves the exports alone."""
    api = PgbenchLoad(("-S",), clients=knobs.int("api_clients"), rate=knobs.int("api_rate"))
    budget = knobs.int("budget")
    settings = {"pool_mode": "transaction", "default_pool_size": budget}
    return [
        Cell(
            "mixed",
            Target(kind, knobs.int("mixed_processes"), options),
            MixedLoad(api, knobs.int("exports"), knobs.int("export_mb"), layout == "isolated"),
            {"exports": layout},
            settings,
            budget=budget,
        )
        for kind in POOLERS
        for layout, options in LAYOUTS.items()
    ]


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
        Published(
            "exports, isolated to shared",
            582 / 992,
            Pick("throughput_mib_s", "", ISOLATED),
            Pick("throughput_mib_s", "", SHARED),
            SOURCE,
        ),
        Published(
            "p99 of the API, isolated to shared (no gain)",
            1.0,
            Pick("p99_ms", "", ISOLATED),
            Pick("p99_ms", "", SHARED),
            SOURCE,
        ),
    ),
    checks=("machine-free", "budget", "samples", "steal", "steady", "alive"),
)
