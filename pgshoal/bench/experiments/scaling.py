"""S1 and S2: what more processes bring at the same total budget, in two publications."""

from __future__ import annotations

from pgshoal.bench.experiments.contenders import STRICT, between, fleets, ratio
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.pgbench import LOOKUP, PgbenchLoad
from pgshoal.bench.model import Cell, Chart, Experiment, Metric, Tls

S1 = "c-class hosts in one zone, TLS on both sides, 128 server connections in all"
S2 = "a host of 16 vCPU, PostgreSQL on another"
MANY = 64  # S1 is about more clients than this, where the knob names such; S2 about few, up to four times as many
ONE_1024, ONE_256 = ({"processes": 1, "clients": clients} for clients in (1024, 256))
METRICS = (
    Metric("tps", "/s", higher_is_better=True),
    Metric("p99_ms", "ms"),
    *(Metric(name, "") for name in ("pooler_cores", "postgres_cores", "backends_max")),
)
CHARTS = (Chart("scaling", "Transactions by processes", "tps", "processes"), Chart("cpu", "CPU by process"))


def lookups(knobs: Knobs) -> list[Cell]:
    """Prepared point lookups by primary key, TLS on both sides."""
    wanted = knobs.ints("scaling_clients")
    many = [count for count in wanted if count > MANY] or [max(wanted)]
    loads = (PgbenchLoad(("-M", "prepared"), (LOOKUP,), clients, tables="events") for clients in many)
    tls: Tls = "both" if knobs.flag("scaling_tls") else "none"
    return [cell for load in loads for cell in fleets("scaling", load, knobs, tls)]


def selects(knobs: Knobs) -> list[Cell]:
    """pgbench -S, from few clients to as many as one process still answers well; a quick run has only the fewest."""
    few = [count for count in knobs.ints("scaling_clients") if count <= 4 * MANY]
    loads = (PgbenchLoad(clients=clients) for clients in (few[:1] if knobs.quick else few))
    return [cell for load in loads for cell in fleets("scaling-select", load, knobs) if cell.phase]


LOOKUPS = Experiment(
    name="scaling",
    title="Processes at one budget: prepared lookups",
    question="what do more processes bring when the server connections in all stay the same",
    cells=lookups,
    metrics=METRICS,
    knobs=("scaling_clients", "scaling_tls", "rows"),
    charts=(*CHARTS, Chart("latency", "Latency")),
    published=(
        *(
            between(f"{n} processes to one, 256 clients", r, (n, 256), (1, 256), S1)
            for n, r in ((2, 1.79), (4, 3.4), (8, 4.65))
        ),
        between("8 processes, 1,024 clients to 256", 208_621 / 209_779, (8, 1024), (8, 256), S1),
        ratio("p99 of one process, 1,024 clients to 256", 33.12 / 8.19, "p99_ms", ONE_1024, ONE_256, S1),
    ),
    checks=STRICT,
    server={"max_connections": "1200"},
)

SELECTS = Experiment(
    name="scaling-select",
    title="Processes at one budget: pgbench -S",
    question="from how many clients on do more processes pay",
    cells=selects,
    metrics=METRICS,
    knobs=("scaling_clients", "scale"),
    charts=CHARTS,
    published=(
        between("one process, 256 clients to 64", 77 / 87, (1, 256), (1, 64), S2),
        between("16 processes to one, 256 clients", 336 / 77, (16, 256), (1, 256), S2),
        between("16 processes to one, 8 clients", 6450 / 8910, (16, 8), (1, 8), S2),
    ),
    checks=STRICT,
    server={"max_connections": "1200"},
)
EXPERIMENTS = (LOOKUPS, SELECTS)
