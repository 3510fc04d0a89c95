"""P3: two nodes behind a balancer, a primary and a standby: whether every client works, also when one node stops."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import POOLERS, side_by_side
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.visitors import NodesLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Target

STANDBY = (("standby", "on"),)
TARGETS = (Target("direct", options=STANDBY), *(Target(kind, options=STANDBY, nodes=2) for kind in POOLERS))


def cells(knobs: Knobs) -> list[Cell]:
    """psql, pgbench and psycopg on `writer` and `reader`: session mode, SCRAM, verify-ca to the servers."""
    clients = knobs.int("nodes_clients")
    settings = {"pool_mode": "session", "auth_type": "scram-sha-256", "default_pool_size": 4 * clients + 20}
    return side_by_side("nodes", TARGETS, NodesLoad(clients), settings, user="bench_scram", tls="server")


EXPERIMENT = Experiment(
    name="nodes",
    title="Two nodes, a primary and a standby",
    question="does every client work through two nodes behind a balancer, also after one of them has stopped",
    cells=cells,
    metrics=(
        Metric("failed_before", "visits"),
        Metric("failed_after", "visits"),
        Metric("cut_off", "clients"),
        Metric("back_ms", "ms"),
    ),
    knobs=("nodes_clients", "scale"),
    charts=(Chart("outcomes", "Visits that worked"),),
    checks=("steal",),
)
