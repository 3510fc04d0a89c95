"""The cases of `compare` about fleets: ours in several shapes, beside one worker and beside as many PgBouncers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgshoal.bench.experiments.cases import MOMENTS, RELAYED, case
from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.memory import WorkersLoad
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.load.stranded import StrandedLoad
from pgshoal.bench.model import Experiment, Load, Metric, Target

PROCESSES: Final = 4  # bounds are of fleets of this size
ONE: Final = Target("pgshoal")
LEAST, PACK, KERNEL = (Target("pgshoal", PROCESSES, (("accept", how),)) for how in ("least", "pack", "kernel"))
ELASTIC = Target("pgshoal", PROCESSES, (("accept", "kernel"), ("budget", "elastic")))
STATIC = Target("pgshoal", PROCESSES, (("accept", "kernel"), ("budget", "static")))
PGBOUNCERS: Final = Target("pgbouncer", PROCESSES)


def of(*targets: Target) -> Callable[[Knobs], Sequence[Target]]:
    """These, whatever the knobs say."""
    return lambda knobs: targets


def select_only(clients: int, reconnect: bool = False) -> Callable[[Knobs], Load]:
    """pgbench -S for the time of the comparison; new connections at most five seconds, as each leaves a TIME_WAIT."""

    def load(knobs: Knobs) -> Load:
        seconds = min(knobs.float("compare_seconds"), 5) if reconnect else knobs.float("compare_seconds")
        return PgbenchLoad(("-S",), clients=clients, threads=min(clients, 2), seconds=seconds, reconnect=reconnect)

    return load


def low_load(clients: int) -> Experiment:
    """A fleet must not be slower than one process while one would do."""
    bounds = {LEAST.label: 0.95, PACK.label: 0.95}
    metrics = [
        Metric("tps", "tx/s", bounds, higher_is_better=True, base=ONE.label),
        Metric("cpu_us_per_tx", "µs/tx", base=ONE.label),
    ]
    title = f"4 workers against one, pgbench -S, {clients} client{'s' if clients > 1 else ''}"
    targets = of(ONE, LEAST, PACK, KERNEL)
    return case(f"fleet-{clients}", title, targets, select_only(clients), metrics, checks=RELAYED)


def of_four(name: str, clients: int, servers: str, settings: Mapping[str, object]) -> Experiment:
    """What four processes cost beside one, and beside four PgBouncers."""
    metrics = [
        Metric("cpu_us_per_tx", "µs/tx", {LEAST.label: 1.15}, base=ONE.label),
        Metric("cpu_us_per_tx", "µs/tx", {LEAST.label: 1.0}, base=PGBOUNCERS.label),
        Metric("tps", "tx/s", higher_is_better=True, base=PGBOUNCERS.label),
    ]
    title = f"fleets of four, pgbench -S, {clients} clients, {servers}"
    targets = of(ONE, PGBOUNCERS, LEAST, PACK, KERNEL)
    return case(name, title, targets, select_only(clients), metrics, settings=settings, checks=RELAYED)


EXPERIMENTS: tuple[Experiment, ...] = (
    *(low_load(clients) for clients in (1, 4, 8)),
    of_four("fleet-256", 256, "20 servers", {}),
    of_four("fleet-120", 120, "a server for each", {"default_pool_size": 160}),
    case(
        "fleet-churn",
        "fleets of four, pgbench -S -C, trust, 8 clients",
        of(KERNEL, LEAST, PACK, ONE, PGBOUNCERS),
        select_only(8, reconnect=True),
        [
            Metric("cpu_us_per_tx", "µs/conn", {LEAST.label: 1.1}, base=KERNEL.label),
            Metric("cpu_us_per_tx", "µs/conn", base=PGBOUNCERS.label),
        ],
        checks=RELAYED,
    ),
    case(
        "fleet-stranded",
        "32 clients on two of four workers, default_pool_size 8, 5 ms per query",
        of(STATIC, ELASTIC),
        lambda knobs: StrandedLoad(),
        [
            Metric("tps", "tx/s", {ELASTIC.label: 1.5}, higher_is_better=True, base=STATIC.label),
            Metric("p99_ms", "ms", {ELASTIC.label: 0.8}, base=STATIC.label),
        ],
        settings={"default_pool_size": 8},
        checks=("samples", "alive", "steady"),
    ),
    case(
        "workers",
        "an idle worker",
        of(ONE, LEAST),
        lambda knobs: WorkersLoad(),
        [
            Metric("worker_mb", "MB", {LEAST.label: 40.0}, absolute=True, base=ONE.label),
            Metric("worker_private_mb", "MB", absolute=True, base=ONE.label),
            Metric("supervisor_mb", "MB", absolute=True, base=ONE.label),
        ],
        repeats_most=1,
        checks=MOMENTS,
    ),
)
