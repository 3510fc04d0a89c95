"""A folder as a run on a laptop would have left it, made by code: known medians, an invalid run, a failed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgshoal.bench.model import Chart, Experiment, Metric, Pick, Published, Row, Target, Value
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.combine import Group

Samples = NDArray[np.float32]
DIRECT, PGBOUNCER, PGSHOAL = Target("direct"), Target("pgbouncer"), Target("pgshoal")
FACTS: Mapping[str, object] = {
    "started": "2026-11-30T20:00:00+01:00",
    "seed": 7,
    "quick": True,
    "kit": "pgshoal 0.1.0",
    "experiments": ["burst", "connect", "scaling", "compare"],
    "machine": {
        "cpu": "A processor, 2.4 GHz",
        "cores": 2,
        "kernel": "6.18.44",
        "memory MB": 7976,
        "governor": "unknown",
    },
    "versions": {"server": "15.19", "pgbouncer": "PgBouncer 1.26.1", "pgbench": "pgbench 15.19", "psycopg": "3.3.9"},
    "knobs": {"seconds": 5.0, "repeats": 3, "budget": 20, "processes": [1, 2, 4], "pg_password": "hidden"},
    "digests": {"burst|direct|": "1f2e3d"},
}


def run_of(experiment: str, target: Target, repeat: int = 0, order: int = 0, **variant: Value) -> Row:
    """A row without figures."""
    words = ",".join(f"{name}={value}" for name, value in variant.items())
    key = f"{experiment}|{target.label}|{words}"
    started = "2026-11-30T20:00:00+01:00"
    return Row(experiment, key, target.label, target.kind, target.processes, variant, repeat, order, started)


def cell(*rows: Row) -> Group:
    """These rows as one cell."""
    return Group(rows)


@dataclass
class Planter:
    """Adds rows to a book, each with the next order."""

    book: Book
    order: int = 0

    def add(self, row: Row, samples: Samples | None = None) -> None:
        """One row."""
        self.book.add(replace(row, order=self.order), samples)
        self.order += 1


def plant(folder: Path, speed: float = 1.0, names: Sequence[str] = ("connect", "burst", "scaling", "compare")) -> Book:
    """The folder with these chapters; with another speed the rates of `scaling` are so many times as high."""
    book = Book(folder)
    book.begin({**FACTS, "machine": {**dict(FACTS["machine"]), "cores": round(2 * speed)}})  # type: ignore[call-overload]
    planter = Planter(book)
    random = np.random.default_rng(7)
    rows = {"connect": connect(random), "burst": burst(random), "scaling": scaling(random, speed), "compare": compare()}
    for name in names:
        for row, samples in rows[name]:
            planter.add(row, samples)
    return book


def latencies(random: np.random.Generator, count: int, middle_ms: float, width: float = 0.35) -> Samples:
    """Samples as they come: most near the middle, a long tail above."""
    samples = random.lognormal(np.log(middle_ms), width, count)
    samples[:: max(count // 200, 1)] *= 3
    return samples.astype(np.float32)


def distribution(samples: Samples) -> dict[str, float]:
    """The figures that a run's samples give."""
    p50, p99 = np.percentile(samples, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "latency_mean_ms": float(samples.mean())}


def connect(random: np.random.Generator) -> Iterator[tuple[Row, Samples]]:
    """Connections for each query: pooled is twice as quick."""
    for target, rate in ((DIRECT, 1590.0), (PGBOUNCER, 3050.0), (PGSHOAL, 3289.0)):
        for repeat in range(3):
            samples = latencies(random, 800, 15e3 / rate)
            figures = {"units_per_s": rate * (1 + 0.01 * (repeat - 1)), **distribution(samples)}
            figures |= {"succeeded": 800.0, "failed": 0.0, "seconds": 800 / rate}
            yield replace(run_of("connect", target, repeat), figures=figures), samples


def burst(random: np.random.Generator) -> Iterator[tuple[Row, None]]:
    """A hundred clients at once: direct serves 25."""
    error = 'connection to server at "127.0.0.1", port 5432 failed: FATAL:  sorry, too many clients already'
    for target, served in ((DIRECT, 25), (PGBOUNCER, 100), (PGSHOAL, 100)):
        clients = [
            {
                "number": number,
                "succeeded": number < served,
                "milliseconds": float(random.uniform(50, 300)),
                "error": "" if number < served else error,
            }
            for number in range(100)
        ]
        most = 25 if target is DIRECT else 10
        at = [0.02 * step for step in range(25)]
        counts = [float(min(most, 2 * step)) for step in range(22)] + [most * 0.6, most * 0.3, 0.0]
        row = run_of("burst", target)
        yield (
            replace(
                row,
                figures={
                    "succeeded": float(served),
                    "failed": 100.0 - served,
                    "backends_max": float(most),
                    "seconds": 0.5,
                },
                series={"at_s": at, "backends": counts},
                clients=clients,
                budget=None if target is DIRECT else 10,
            ),
            None,
        )


def scaling(random: np.random.Generator, speed: float) -> Iterator[tuple[Row, Samples | None]]:
    """Fleets of one, two and four under two crowds; one wild run is marked, all runs of one cell are."""
    gains = {1: 1.0, 2: 1.79, 4: 2.4}
    for clients in (16, 256):
        for kind, base in (("pgbouncer", 21_000.0), ("pgshoal", 29_000.0)):
            for processes, gain in gains.items():
                target = replace(PGBOUNCER if kind == "pgbouncer" else PGSHOAL, processes=processes)
                for repeat in range(3):
                    wild = (kind, processes, clients, repeat) == ("pgshoal", 2, 256, 1)
                    rate = base * speed * gain * (1 + 0.012 * (repeat - 1)) * (0.4 if wild else 1)
                    yield fleet(random, target, clients, repeat, rate, wild)
        for repeat in range(3):
            row, samples = fleet(random, DIRECT, clients, repeat, 38_000.0 * speed, False)
            yield replace(row, cpu_s={"postgres": 7.1, "load": 2.2}, budget=None), samples


def fleet(
    random: np.random.Generator, target: Target, clients: int, repeat: int, rate: float, wild: bool
) -> tuple[Row, Samples]:
    """One run of a fleet."""
    samples = latencies(random, 2000, clients / rate * 1000)
    cpu = {f"pooler/{number}": 5.0 * 0.9 / (1 + 0.25 * number) for number in range(target.processes)}
    cpu_s = {**cpu, "postgres": rate / 38_000 * 5, "load": rate / 38_000 * 2.2}
    figures = {
        "tps": rate,
        "seconds": 5.0,
        "cpu_us_per_tx": sum(cpu.values()) / 5 / rate * 1e6,
        **distribution(samples),
    }
    invalid = ("steady: tps 20,764 is 60% from the median 51,910 (limit 25%)",) if wild else ()
    if target.processes == 4 and clients == 256 and target.kind == "pgbouncer":
        invalid = ("machine-free: the machine was 1.2% idle (limit 5%)",)
    at = [0.1 * step for step in range(50)]
    counts = [float(min(20, 12 + step)) for step in range(50)]
    row = run_of("scaling", target, repeat, clients=clients)
    series = {"at_s": at, "backends": counts}
    return replace(row, figures=figures, cpu_s=cpu_s, series=series, invalid=invalid, budget=20), samples


def compare() -> Iterator[tuple[Row, None]]:
    """Two cases against PgBouncer: one bound met, one missed, one engine that fell over."""
    uring, epoll = (replace(PGSHOAL, options=(("engine", name),)) for name in ("uring", "epoll"))
    for target, cost in ((PGBOUNCER, 30.0), (uring, 15.5), (epoll, 33.0)):
        for repeat in range(3):
            figures = {"cpu_us_per_tx": cost + repeat - 1, "tps": 1e5 / cost, "seconds": 5.0}
            yield replace(run_of("compare-simple-16", target, repeat), figures=figures), None
    yield replace(run_of("compare-tls", PGBOUNCER), figures={"cpu_us_per_tx": 50.0, "tps": 9000.0}), None
    yield replace(run_of("compare-tls", uring), error="it fell over\nits log: nothing"), None


def declarations() -> Mapping[str, Sequence[Experiment]]:
    """What the rows were made of."""
    return {
        "connect": (CONNECT,),
        "burst": (BURST,),
        "scaling": (SCALING,),
        "compare": tuple(
            Experiment(
                f"compare-{name}",
                title,
                "our ratios against PgBouncer",
                lambda knobs: (),
                (
                    Metric(
                        "cpu_us_per_tx",
                        "µs/tx",
                        {"pgshoal engine=uring": 0.8, "pgshoal engine=epoll": 1.0},
                        base="pgbouncer",
                    ),
                ),
                charts=(Chart("bars", title, "cpu_us_per_tx"),),
            )
            for name, title in (("simple-16", "pgbench -S, 16 clients"), ("tls", "TLS on both sides"))
        ),
    }


CONNECT = Experiment(
    "connect",
    "A connection for each query",
    "what does a new connection for each query cost, direct and pooled",
    lambda knobs: (),
    (Metric("units_per_s", "units/s", higher_is_better=True), Metric("p50_ms", "ms"), Metric("p99_ms", "ms")),
    charts=(Chart("bars", "Units of work", "units_per_s"), Chart("latency", "Latency of a unit of work")),
    published=(
        Published("pooled / direct, units/s", 2.07, Pick("units_per_s"), Pick("units_per_s", "direct"), "A"),
        Published("pooled / direct, p99", 0.55, Pick("p99_ms"), Pick("p99_ms", "direct"), "A"),
    ),
    files=("exp_a_latencies.csv",),
)
BURST = Experiment(
    "burst",
    "A hundred clients at once",
    "how many of 100 clients at once are served",
    lambda knobs: (),
    (Metric("succeeded", "clients", higher_is_better=True), Metric("failed", "clients"), Metric("backends_max", "")),
    charts=(Chart("outcomes", "Clients that were served"), Chart("backends", "Backends during the burst")),
    published=(Published("clients served, direct", 25, Pick("succeeded", "direct"), source="B"),),
    files=("exp_b_outcomes.csv", "exp_c_backends.csv"),
)
SCALING = Experiment(
    "scaling",
    "Processes at the same total budget",
    "what do more processes bring at the same total budget",
    lambda knobs: (),
    (Metric("tps", "/s", higher_is_better=True), Metric("p99_ms", "ms"), Metric("cpu_us_per_tx", "µs/tx")),
    charts=(
        Chart("scaling", "Throughput by processes", "tps", "processes"),
        Chart("latency", "Latency"),
        Chart("cpu", "CPU by process"),
        Chart("backends", "Server connections"),
    ),
    published=(
        *(
            Published(
                f"{processes} processes / one, 256 clients",
                gain,
                Pick("tps", where={"processes": processes, "clients": 256}),
                Pick("tps", where={"processes": 1, "clients": 256}),
                "S1",
            )
            for processes, gain in ((2, 1.79), (4, 3.40), (8, 4.65))
        ),
    ),
)
