"""T: what TLS costs on each side of one process."""

from __future__ import annotations

from typing import get_args

from pgshoal.bench.experiments.contenders import POOLERS, ratio
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Target, Tls

SOURCE = "one process, one core full"
#: Short ones that alternate tell small differences where other programs come and go.
ROUNDS, ROUND_S = 3, 0.7
NONE, BOTH = {"tls": "none"}, {"tls": "both"}


def cells(knobs: Knobs) -> list[Cell]:
    """pgbench -S with no TLS, TLS to clients, to the server, and on both sides."""
    load = PgbenchLoad(("-S",), clients=knobs.int("tls_clients"), seconds=ROUND_S if knobs.quick else 0)
    settings = {"pool_mode": "transaction", "default_pool_size": 20}
    return [
        Cell("tls", Target(kind), load, {"tls": tls}, settings, tls, phase=1)
        for kind in POOLERS
        for tls in get_args(Tls)
    ]


EXPERIMENT = Experiment(
    name="tls",
    title="TLS on each side",
    question="what does TLS cost one process on the side of clients, of the server, and on both",
    cells=cells,
    metrics=(Metric("cpu_us_per_tx", "µs"), Metric("tps", "/s", higher_is_better=True), Metric("p99_ms", "ms")),
    knobs=("tls_clients", "scale"),
    charts=(
        Chart("bars", "CPU of the pooler for a transaction", "cpu_us_per_tx"),
        Chart("bars", "Transactions", "tps"),
    ),
    published=(
        ratio("rate, both sides to none", 0.65, "tps", BOTH, NONE, SOURCE),
        # A process that fills its core: what it does in a second and what a transaction costs are the same figure.
        ratio("CPU for a transaction, none to both sides", 0.65, "cpu_us_per_tx", NONE, BOTH, SOURCE),
    ),
    # A full machine costs the pooler little CPU time more, so that it may be full here.
    checks=("load-free", "postgres-free", "cached", "samples", "steal", "counts", "stall", "steady-cpu", "alive"),
    keep_up=True,
    repeats_least=ROUNDS,
)
