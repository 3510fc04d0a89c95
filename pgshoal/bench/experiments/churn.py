"""P1: pgbench that reconnects for each transaction: rate, latency, connection time."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import SINGLES, side_by_side
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Pick, Published

RATIOS = (
    ("rate", "tps", 66.6 / 26.5, "one host"),
    ("mean latency", "latency_mean_ms", 72.2 / 182.9, "one host"),
    ("standard deviation of latency", "latency_stddev_ms", 43 / 111, "one host"),
    ("time to connect", "connect_ms", 7.5 / 19.4, "one host"),
    ("rate", "tps", 6.6 / 3.6, "another host"),
    ("time to connect", "connect_ms", 149 / 231, "another host"),
)


def cells(knobs: Knobs) -> list[Cell]:
    """`pgbench -c 20 -t 100 -S -C` with a second script, on each target."""
    clients, transactions = knobs.int("churn_clients"), knobs.int("churn_transactions")
    load = PgbenchLoad(("-S",), ("select 1;\n",), clients, transactions=transactions, reconnect=True)
    settings = {"pool_mode": "transaction", "default_pool_size": clients}
    return side_by_side("churn", SINGLES, load, settings, clients)


EXPERIMENT = Experiment(
    name="churn",
    title="pgbench that reconnects",
    question="rate, latency and connection time when each transaction has a connection of its own",
    cells=cells,
    metrics=(
        Metric("tps", "/s", higher_is_better=True, base="direct"),
        Metric("latency_mean_ms", "ms", base="direct"),
        Metric("connect_ms", "ms", base="direct"),
    ),
    knobs=("churn_clients", "churn_transactions", "scale"),
    charts=(
        Chart("bars", "Transactions", "tps"),
        Chart("bars", "Time to connect", "connect_ms"),
        Chart("latency", "Latency"),
    ),
    published=tuple(
        Published(f"{text}, pooled to direct", value, Pick(name), Pick(name, "direct"), source)
        for text, name, value, source in RATIOS
    ),
    checks=("samples", "steal", "counts", "stall", "steady", "alive"),
)
