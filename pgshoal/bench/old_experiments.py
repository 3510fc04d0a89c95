"""The experiments as declarations: what to run, what to measure, and the ratio to PgBouncer we owe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["pgbench", "copy", "idle", "memory", "stranded", "workers"]
KB, MB = 1024, 1 << 20


@dataclass(frozen=True)
class Metric:
    """One figure; `targets` holds the bound per contender, on the ratio to the base or, if absolute, on the value."""

    name: str
    unit: str
    targets: Mapping[str, float] = field(default_factory=dict)
    higher_is_better: bool = False
    absolute: bool = False
    base: str = ""  # the contender to compare with; empty is PgBouncer

    def met(self, engine: str, ratio: float, value: float) -> bool | None:
        """Whether the target is met; None when there is none."""
        bound = self.targets.get(engine)
        if bound is None:
            return None
        judged = value if self.absolute else ratio
        return judged >= bound if self.higher_is_better else judged <= bound


@dataclass(frozen=True)
class Experiment:
    """One comparison; `arguments` go to pgbench, `settings` into every pooler's [pgbouncer] section."""

    name: str
    title: str
    kind: Kind
    metrics: tuple[Metric, ...]
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    user: str = "postgres"
    tls: bool = False
    quick: bool = False
    longest_s: int = 3600
    fleets: tuple[str, ...] = ()  # contenders named in fleets.py, instead of PgBouncer and the engines


def select_only(mode: str, clients: int) -> Experiment:
    """pgbench -S with that many persistent clients."""
    uring = {16: {"uring": 0.80}, 256: {"uring": 0.65}}.get(clients, {})
    metrics: tuple[Metric, ...] = (Metric("cpu", "µs/tx", {**uring, "epoll": 1.00, "python": 2.0}),)
    if clients == 1:
        metrics += (Metric("latency", "ms", {"uring": 1.05, "epoll": 1.05}),)
    arguments = ("-S", "-M", mode, "-c", str(clients), "-j", str(min(clients, 2)))
    title = f"pgbench -S -M {mode}, {clients} client{'s' if clients > 1 else ''}"
    return Experiment(f"{mode}-{clients}", title, "pgbench", metrics, arguments, quick=clients in (16, 256))


def churn(name: str, title: str, user: str, settings: Mapping[str, object]) -> Experiment:
    """A new connection for each transaction; short, as each leaves a socket in TIME_WAIT."""
    metric = Metric("cpu", "µs/conn", {"uring": 1.2, "epoll": 1.2})
    arguments = ("-S", "-C", "-c", "8", "-j", "2")
    return Experiment(name, title, "pgbench", (metric,), arguments, settings, user, quick=True, longest_s=5)


BOUND = {"uring": 16.0, "epoll": 16.0, "python": 16.0}

SINGLES: tuple[Experiment, ...] = (
    *(select_only(mode, clients) for mode in ("simple", "prepared") for clients in (1, 16, 64, 256)),
    Experiment(
        "tls",
        "pgbench -S, 16 clients, TLS on both sides",
        "pgbench",
        (Metric("cpu", "µs/tx", {"uring": 0.85, "epoll": 0.85}),),
        ("-S", "-c", "16", "-j", "2"),
        tls=True,
        quick=True,
    ),
    churn("churn-trust", "pgbench -S -C, trust", "postgres", {"auth_type": "trust"}),
    churn("churn-scram", "pgbench -S -C, SCRAM", "bench_scram", {"auth_type": "scram-sha-256"}),
    Experiment(
        "copy",
        "COPY out of 150 MB",
        "copy",
        (
            Metric("throughput", "MB/s", {"uring": 1.0, "epoll": 1.0}, higher_is_better=True),
            Metric("cpu", "µs/MB"),
        ),
        quick=True,
    ),
    Experiment(
        "idle",
        "idle clients",
        "idle",
        (Metric("memory", "bytes/client", dict.fromkeys(BOUND, 2.0 * KB), absolute=True),),
        quick=True,
    ),
    Experiment(
        "memory",
        "memory under pressure",
        "memory",
        (
            Metric("unread result of 2 GB", "MB", BOUND, absolute=True),
            Metric("COPY nobody reads", "MB", BOUND, absolute=True),
            Metric("row of 200 MB, at peak", "MB", BOUND, absolute=True),
            Metric("row of 200 MB, afterwards", "MB", BOUND, absolute=True),
        ),
        quick=True,
    ),
)


SHAPES = ("1 worker", "least", "pack", "kernel")


def low_load(clients: int) -> Experiment:
    """A fleet must not be slower than one process while one would do."""
    wanted = {"least": 0.95, "pack": 0.95}
    metrics = (
        Metric("tps", "tx/s", wanted, higher_is_better=True, base="1 worker"),
        Metric("cpu", "µs/tx", base="1 worker"),
    )
    arguments = ("-S", "-c", str(clients), "-j", str(min(clients, 2)))
    title = f"4 workers against one, pgbench -S, {clients} client{'s' if clients > 1 else ''}"
    return Experiment(f"fleet-{clients}", title, "pgbench", metrics, arguments, fleets=SHAPES)


def of_four(
    name: str,
    clients: int,
    servers: str,
    settings: Mapping[str, object],
    to_one: Mapping[str, float],
    to_pgbouncers: Mapping[str, float],
) -> Experiment:
    """What four processes cost beside one, and beside four PgBouncers."""
    metrics = (
        Metric("cpu", "µs/tx", to_one, base="1 worker"),
        Metric("cpu", "µs/tx", to_pgbouncers, base="4 PgBouncers"),
        Metric("tps", "tx/s", higher_is_better=True, base="4 PgBouncers"),
    )
    title = f"fleets of four, pgbench -S, {clients} clients, {servers}"
    arguments = ("-S", "-c", str(clients), "-j", "2")
    fleets = ("1 worker", "4 PgBouncers", "least", "pack", "kernel")
    return Experiment(name, title, "pgbench", metrics, arguments, settings, fleets=fleets)


FLEETS: tuple[Experiment, ...] = (
    *(low_load(clients) for clients in (1, 4, 8)),
    of_four("fleet-256", 256, "20 servers", {}, {"least": 1.15}, {"least": 1.0}),
    of_four("fleet-120", 120, "a server for each", {"default_pool_size": 160}, {"least": 1.15}, {"least": 1.0}),
    Experiment(
        "fleet-churn",
        "fleets of four, pgbench -S -C, trust, 8 clients",
        "pgbench",
        (Metric("cpu", "µs/conn", {"least": 1.1}, base="kernel"), Metric("cpu", "µs/conn", base="4 PgBouncers")),
        ("-S", "-C", "-c", "8", "-j", "2"),
        longest_s=5,
        fleets=("kernel", "least", "pack", "1 worker", "4 PgBouncers"),
    ),
    Experiment(
        "fleet-stranded",
        "32 clients on two of four workers, default_pool_size 8, 5 ms per query",
        "stranded",
        (
            Metric("throughput", "tx/s", {"elastic": 1.5}, higher_is_better=True, base="static"),
            Metric("p99", "ms", {"elastic": 0.8}, base="static"),
        ),
        settings={"default_pool_size": 8},
        fleets=("static", "elastic"),
    ),
    Experiment(
        "workers",
        "an idle worker",
        "workers",
        (
            Metric("largest", "MB", {"least": 40.0}, absolute=True, base="1 worker"),
            Metric("private", "MB", absolute=True, base="1 worker"),
            Metric("supervisor", "MB", absolute=True, base="1 worker"),
        ),
        quick=True,
        fleets=("1 worker", "least"),
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (*SINGLES, *FLEETS)


def chosen(only: tuple[str, ...], quick: bool) -> tuple[Experiment, ...]:
    """The experiments named, or whose name starts so; all of them (or the quick ones) when nothing is named."""
    if only:
        exact = {e.name for e in EXPERIMENTS}.intersection(only)
        begins = tuple(name for name in only if name not in exact)
        found = tuple(e for e in EXPERIMENTS if e.name in exact or (begins and e.name.startswith(begins)))
        if not found:
            raise ValueError(f"no experiment {', '.join(only)}; there are {', '.join(e.name for e in EXPERIMENTS)}")
        return found
    return tuple(e for e in EXPERIMENTS if e.quick or not quick)
