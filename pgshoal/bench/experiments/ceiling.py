"""P2: a thousand clients on a server that allows a hundred; one node, and two behind a balancer."""

from __future__ import annotations

from dataclasses import replace

from pgshoal.bench.experiments.contenders import DIRECT, POOLERS, ratio, side_by_side
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Target

TARGETS = (DIRECT, *(Target(kind, nodes=nodes) for kind in POOLERS for nodes in (1, 2)))


def cells(knobs: Knobs) -> list[Cell]:
    """`pgbench -c 1000 -T 60` on each target."""
    load = PgbenchLoad((), clients=knobs.int("ceiling_clients"), seconds=knobs.float("ceiling_seconds"))
    budget = knobs.int("ceiling_pool_size")
    settings = {"pool_mode": "transaction", "default_pool_size": budget, "max_client_conn": load.clients + 200}
    return [
        replace(cell, variant={"nodes": cell.target.nodes})
        for cell in side_by_side("ceiling", TARGETS, load, settings, budget)
    ]


EXPERIMENT = Experiment(
    name="ceiling",
    title="A thousand clients, a hundred connections",
    question="does a load finish that asks for far more connections than PostgreSQL allows",
    cells=cells,
    metrics=(
        Metric("tps", "/s", higher_is_better=True),
        Metric("failed", "clients", base="direct"),
        Metric("p99_ms", "ms"),
    ),
    knobs=("ceiling_clients", "ceiling_seconds", "ceiling_max_connections", "ceiling_pool_size", "scale"),
    charts=(
        Chart("outcomes", "Clients served and lost"),
        Chart("bars", "Transactions", "tps"),
        Chart("backends", "Backends over time"),
    ),
    published=(ratio("rate, two nodes to one", 400 / 462, "tps", {"nodes": 2}, {"nodes": 1}, "another host"),),
    checks=("budget", "steal", "counts", "stall", "steady", "alive"),
    server={"max_connections": "{ceiling_max_connections}"},
)
