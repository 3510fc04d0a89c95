"""Our ratios against PgBouncer, measured in the same run, with the bounds we set ourselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgshoal.bench.experiments import fleet
from pgshoal.bench.experiments.cases import KB, MOMENTS, RELAYED, case
from pgshoal.bench.experiments.engines import named
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.memory import CopyLoad, IdleLoad, MemoryLoad
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Experiment, Load, Metric, Target

PGBOUNCER: Final = Target("pgbouncer")
BASE: Final = PGBOUNCER.label
BOUND_MB: Final = 16.0


def engine(name: str) -> Target:
    """One process of ours on one engine."""
    return Target("pgshoal", options=(("engine", name),))


def contenders(knobs: Knobs) -> Sequence[Target]:
    """PgBouncer and each engine asked for."""
    return (PGBOUNCER, *map(engine, named(knobs.texts("engines"))))


def bounds(**by_engine: float) -> Mapping[str, float]:
    """Bounds by the label of the target."""
    return {engine(name).label: bound for name, bound in by_engine.items()}


def same(bound: float) -> Mapping[str, float]:
    """One bound for all engines."""
    return bounds(uring=bound, epoll=bound, python=bound)


def pgbench(*arguments: str, clients: int, reconnect: bool = False) -> Callable[[Knobs], Load]:
    """pgbench -S for the time of the comparison."""

    def load(knobs: Knobs) -> Load:
        seconds = min(knobs.float("compare_seconds"), 5) if reconnect else knobs.float("compare_seconds")
        wanted = ("-S", *arguments)
        return PgbenchLoad(wanted, clients=clients, threads=min(clients, 2), seconds=seconds, reconnect=reconnect)

    return load


def select_only(mode: str, clients: int) -> Experiment:
    """pgbench -S with that many persistent clients."""
    uring = {16: {"uring": 0.80}, 256: {"uring": 0.65}}.get(clients, {})
    metrics = [Metric("cpu_us_per_tx", "µs/tx", bounds(**uring, epoll=1.00, python=2.0), base=BASE)]
    if clients == 1:
        metrics.append(Metric("latency_mean_ms", "ms", bounds(uring=1.05, epoll=1.05), base=BASE))
    title = f"pgbench -S -M {mode}, {clients} client{'s' if clients > 1 else ''}"
    load = pgbench("-M", mode, clients=clients)
    quick = (mode, clients) in (("simple", 1), ("simple", 16))
    return case(f"{mode}-{clients}", title, contenders, load, metrics, quick=quick, checks=RELAYED)


def churn(name: str, title: str, user: str, auth_type: str) -> Experiment:
    """A new connection for each transaction; short, as each leaves a socket in TIME_WAIT."""
    metric = Metric("cpu_us_per_tx", "µs/conn", bounds(uring=1.2, epoll=1.2), base=BASE)
    load = pgbench(clients=8, reconnect=True)
    settings = {"auth_type": auth_type}
    quick = auth_type == "trust"
    return case(name, title, contenders, load, [metric], settings=settings, user=user, quick=quick, checks=RELAYED)


SINGLES: tuple[Experiment, ...] = (
    *(select_only(mode, clients) for mode in ("simple", "prepared") for clients in (1, 16, 64, 256)),
    case(
        "tls",
        "pgbench -S, 16 clients, TLS on both sides",
        contenders,
        pgbench(clients=16),
        [Metric("cpu_us_per_tx", "µs/tx", bounds(uring=0.85, epoll=0.85), base=BASE)],
        tls="both",
        quick=True,
        checks=RELAYED,
    ),
    churn("churn-trust", "pgbench -S -C, trust", "postgres", "trust"),
    churn("churn-scram", "pgbench -S -C, SCRAM", "bench_scram", "scram-sha-256"),
    case(
        "copy",
        "COPY out by one client",
        contenders,
        lambda knobs: CopyLoad(knobs.int("copy_mb")),
        [
            Metric("throughput_mib_s", "MiB/s", bounds(uring=1.0, epoll=1.0), higher_is_better=True, base=BASE),
            Metric("cpu_us_per_mib", "µs/MiB", base=BASE),
        ],
        quick=True,
        checks=("steal", "alive", "steady"),
    ),
    case(
        "idle",
        "idle clients",
        contenders,
        lambda knobs: IdleLoad(knobs.int("idle_clients")),
        [Metric("bytes_per_client", "bytes", same(2.0 * KB), absolute=True, base=BASE)],
        quick=True,
        repeats_most=1,
        checks=MOMENTS,
    ),
    case(
        "memory",
        "memory under pressure",
        contenders,
        lambda knobs: MemoryLoad(),
        [
            Metric(name, "MB", same(BOUND_MB), absolute=True, base=BASE)
            for name in ("unread_mb", "deaf_mb", "row_peak_mb", "row_after_mb")
        ],
        repeats_most=1,
        checks=MOMENTS,
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (*SINGLES, *fleet.EXPERIMENTS)
