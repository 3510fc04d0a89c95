"""`pgshoal bench plan`: throughput on a larger machine, from CPU time per transaction and a scaling law."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from pgshoal.bench.advice.sizes import Ladder, cpu_s, ladders
from pgshoal.bench.advice.tables import checks, loss
from pgshoal.bench.advice.usl import Fit, Interval, fit
from pgshoal.bench.advice.verdict import signed
from pgshoal.bench.knobs import resolve
from pgshoal.bench.results import tables, terminal
from pgshoal.bench.results.book import ROWS, Book
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.results.words import number


@dataclass(frozen=True)
class Measured:
    """What a projection rests on. CPU seconds are of one transaction; None is not known."""

    text: str
    law: Fit  # of workers that have a core each to themselves
    doubt: str
    postgres_s: float | None
    load_s: float | None


@dataclass(frozen=True)
class Projection:
    """One number of workers on the larger machines."""

    workers: int
    rate: float
    interval: Interval
    limit: str
    postgres: float | None  # processors
    load: float | None

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        between = f"{number(self.interval.low)} to {number(self.interval.high)}"
        return (str(self.workers), self.limit, number(self.rate), between, number(self.postgres), number(self.load))


HEADINGS = ("workers", "limit", "transactions/s", "nine of ten", "PostgreSQL, cores", "load, cores")


def main(cores: int, pg_cores: int, folder: Path | None) -> int:
    """Prints the projection and how the same method does on the published tables; returns the exit status."""
    out = Console(highlight=False, soft_wrap=True)
    try:
        folder = folder or newest(Path(resolve({}, os.environ, quick=False).text("results")))
        measured = None if folder is None else read(folder)
    except (OSError, ValueError) as error:
        print(f"pgshoal bench plan: {error}", file=sys.stderr)
        return 1
    if measured is None:
        out.print("No run to project from: `pgshoal bench scaling` makes one. The method on the published tables:")
    else:
        show(out, measured, cores, pg_cores)
    out.print(terminal.of_table("The same method on the published tables", check_table()))
    out.print("\n".join(REMARKS))
    return 0


def newest(results: Path) -> Path | None:
    """The last folder of runs that a projection can be made from."""
    for found in sorted(results.glob(f"*/{ROWS}"), reverse=True):
        with suppress(ValueError):
            read(found.parent)
            return found.parent
    return None


def read(folder: Path) -> Measured:
    """The law and the CPU times of a folder's runs; ValueError where they do not tell them."""
    if not (folder / ROWS).exists():
        raise ValueError(f"{folder} holds no {ROWS}: a folder of `pgshoal bench` is wanted")
    for ladder in ladders(gathered(Book(folder).rows())):
        if capacities := ladder.capacities():
            spent = {name: middle(ladder, name) for name in ("postgres_cores", "load_cores")}
            return Measured(f"{folder}: {ladder.text}", lossy(fit(capacities)), ladder.doubt, *spent.values())
    raise ValueError(
        f"{folder} holds no runs of a pooler whose CPU time was measured: `pgshoal bench scaling` makes them"
    )


def lossy(law: Fit) -> Fit:
    """A law of one size with the loss of the published fleet in it, and draws with and without that loss."""
    if law.scales:
        return law
    draws = (one if at % 2 else replace(loss(), one=one.one) for at, one in enumerate(law.draws))
    return replace(law, law=replace(loss(), one=law.law.one), draws=tuple(draws))


def middle(ladder: Ladder, figure: str) -> float | None:
    """The median CPU time of a transaction over all sizes."""
    found = [one for group in ladder.groups for one in cpu_s(group, figure)]
    return statistics.median(found) if found else None


def project(measured: Measured, cores: int, pg_cores: int) -> Iterator[Projection]:
    """Each doubling of workers up to one a processor."""
    most = pg_cores / measured.postgres_s if measured.postgres_s else math.inf
    for workers in [*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores]:
        free = measured.law.law.rate(workers)
        low, high = measured.law.interval(lambda law, n=workers: law.rate(n))  # type: ignore[misc]
        rate = min(free, most)
        yield Projection(
            workers,
            rate,
            Interval(min(low, most), min(high, most)),
            "PostgreSQL" if most < free else "pooler",
            rate * measured.postgres_s if measured.postgres_s else None,
            rate * measured.load_s if measured.load_s else None,
        )


def show(out: Console, measured: Measured, cores: int, pg_cores: int) -> None:
    """The projection with what it rests on."""
    found = list(project(measured, cores, pg_cores))
    title = f"Projected: a pooler's host of {cores} processors, PostgreSQL on {pg_cores}"
    content = tables.Table(HEADINGS, tuple(one.cells() for one in found), texts=2)
    out.print(terminal.of_table(title, content))
    out.print("\n".join(assumptions(measured, found, pg_cores)))
    out.print()


def assumptions(measured: Measured, found: Sequence[Projection], pg_cores: int) -> Iterator[str]:
    """What has to hold for the projection to hold."""
    law = measured.law.law
    yield f"Measured in {measured.text}."
    pooler = f"{1e6 / law.one:.1f} µs of the pooler with one worker"
    others = ((measured.postgres_s, "PostgreSQL"), (measured.load_s, "the load"))
    known = [pooler, *(f"{seconds * 1e6:.1f} µs of {name}" for seconds, name in others if seconds)]
    yield f"CPU time of a transaction: {', '.join(known)}."
    yield f"Law of the workers: sigma {law.sigma:.3g}, kappa {law.kappa:.3g}."
    if not measured.law.scales:
        yield "That loss is the published one (S1), and the interval reaches from it to none."
    if measured.law.caution:
        yield f"Caution: {measured.law.caution}."
    if measured.doubt:
        yield f"Caution: {measured.doubt}."
    if measured.postgres_s is None:
        yield "PostgreSQL's CPU time was not measured: its host is taken to be large enough."
    elif any(one.limit == "PostgreSQL" for one in found):
        yield f"PostgreSQL's {pg_cores} processors are full at {number(pg_cores / measured.postgres_s)} transactions/s."
    yield from ASSUMED


def check_table() -> tables.Table:
    """Projected and published rates beside each other."""
    headings = ("table", "projected from", "limit", "processes", "clients", "projected", "published", "error")
    lines = tuple(
        (
            check.table.name,
            check.source,
            check.limit,
            str(check.published.processes),
            str(check.published.clients),
            number(check.projected),
            number(check.published.rate),
            signed(check.error),
        )
        for check in checks()
    )
    return tables.Table(headings, lines, texts=3)


ASSUMED = (
    "Assumed: processors like those measured, each a whole core; hosts of their own for pooler, PostgreSQL and load;",
    "enough clients to fill every worker and a budget that keeps PostgreSQL busy; a PostgreSQL that scales to its",
    "processors; the same queries, from memory; a network that is not full. Where one does not hold, it will be less.",
)
REMARKS = (
    "S1: what one process did, and the part of PostgreSQL's host that was used; from two sizes also what the second",
    "lost. S2 publishes no CPU of PostgreSQL, and 16 vCPU are fewer cores: one process with the loss of S1 is far too",
    "high. By clients each of 16 processes does what one alone does with a 16th of the clients: near where they",
    "keep it busy, far off with 8 or fewer each, where latency and not CPU is the limit.",
)
