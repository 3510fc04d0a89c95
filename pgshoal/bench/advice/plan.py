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
from pgshoal.bench.advice.usl import SCATTER_LEAST, SHARE, Fit, Interval, fit
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
    doubt: str  # empty where all runs count
    postgres_s: tuple[float, ...]  # of each run
    load_s: tuple[float, ...]
    rank: int = 0  # 2: several numbers of workers by valid runs; 1: several

    @property
    def postgres(self) -> float | None:
        """The median of PostgreSQL's."""
        return statistics.median(self.postgres_s) if self.postgres_s else None

    @property
    def load(self) -> float | None:
        """The median of the load's."""
        return statistics.median(self.load_s) if self.load_s else None

    @property
    def scatter(self) -> float | None:
        """How far PostgreSQL's lies apart from run to run, relative; None when one run, or none, tells it."""
        if len(self.postgres_s) < 2:
            return None
        return max(statistics.stdev(self.postgres_s) / statistics.fmean(self.postgres_s), SCATTER_LEAST)

    def most(self, pg_cores: int) -> Interval:
        """The rates between which PostgreSQL's processors are full in nine of ten cases."""
        if not self.postgres:
            return Interval(math.inf, math.inf)
        apart = math.exp(NINE_OF_TEN * (self.scatter or 0.0))
        return Interval(pg_cores / self.postgres / apart, pg_cores / self.postgres * apart)


@dataclass(frozen=True)
class Projection:
    """One number of workers on the larger machines."""

    workers: int
    rate: float
    interval: Interval | None  # None: not known
    limit: str
    postgres: float | None  # processors
    load: float | None

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        known = self.interval
        between = f"{number(known.low)} to {number(known.high)}" if known else "not known"
        return (str(self.workers), self.limit, number(self.rate), between, number(self.postgres), number(self.load))


#: So many standard deviations to both sides hold nine of ten cases.
NINE_OF_TEN = statistics.NormalDist().inv_cdf((1 + SHARE) / 2)
HEADINGS = ("workers", "limit", "transactions/s", "nine of ten", "PostgreSQL, cores", "load, cores")


def main(cores: int, pg_cores: int, folder: Path | None) -> int:
    """Prints the projection and how the same method does on the published tables; returns the exit status."""
    out = terminal.patient(highlight=False, soft_wrap=True)
    try:
        results = Path(resolve({}, os.environ, quick=False).text("results"))
    except ValueError as error:
        print(f"pgshoal bench plan: {error}", file=sys.stderr)
        return 2
    try:
        measured = read(folder) if folder else newest(results)
    except (OSError, ValueError) as error:
        print(f"pgshoal bench plan: {error}", file=sys.stderr)
        return 1
    if measured is None:
        out.print("No run to project from: `pgshoal bench scaling` makes one. The method on the published tables:")
    else:
        if folder is None:
            out.print(TAKEN[measured.rank])
        show(out, measured, cores, pg_cores)
    out.print(terminal.of_table("The same method on the published tables", check_table()))
    out.print("\n".join(REMARKS))
    return 0


def newest(results: Path) -> Measured | None:
    """The last folder that tells how workers scale by runs that count; without one the last that tells most."""
    best: Measured | None = None
    for found in sorted(results.glob(f"*/{ROWS}"), reverse=True):
        with suppress(ValueError):
            measured = read(found.parent)
            if best is None or measured.rank > best.rank:
                best = measured
    return best


def read(folder: Path) -> Measured:
    """The law and the CPU times of a folder's runs; ValueError where they do not tell them."""
    if not (folder / ROWS).exists():
        raise ValueError(f"{folder} holds no {ROWS}: a folder of `pgshoal bench` is wanted")
    for ladder in ladders(gathered(Book(folder).rows())):
        if capacities := ladder.capacities():
            postgres, load = (spent(ladder, name) for name in ("postgres_cores", "load_cores"))
            rank = 0 if len(capacities) < 2 else 1 + ladder.valid
            text = f"{folder}: {ladder.text}"
            return Measured(text, lossy(fit(capacities)), ladder.doubt, postgres, load, rank)
    raise ValueError(
        f"{folder} holds no runs of a pooler whose CPU time was measured: `pgshoal bench scaling` makes them"
    )


def lossy(law: Fit) -> Fit:
    """A law of one size with the loss of the published fleet in it, and draws with and without that loss."""
    if law.scales:
        return law
    draws = (one if at % 2 else replace(loss(), one=one.one) for at, one in enumerate(law.draws))
    return replace(law, law=replace(loss(), one=law.law.one), draws=tuple(draws))


def spent(ladder: Ladder, figure: str) -> tuple[float, ...]:
    """The CPU time of a transaction in each run of all sizes."""
    return tuple(one for group in ladder.groups for one in cpu_s(group, figure))


def project(measured: Measured, cores: int, pg_cores: int) -> Iterator[Projection]:
    """Each doubling of workers up to one a processor."""
    most, least = pg_cores / measured.postgres if measured.postgres else math.inf, measured.most(pg_cores)
    for workers in [*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores]:
        free = measured.law.law.rate(workers)
        low, high = measured.law.interval(lambda law, n=workers: law.rate(n))  # type: ignore[misc]
        rate, full = min(free, most), most < free
        between = Interval(min(low, least.low), min(high, least.high))
        yield Projection(
            workers,
            rate,
            None if full and measured.scatter is None else between,
            "PostgreSQL" if full else "pooler",
            rate * measured.postgres if measured.postgres else None,
            rate * measured.load if measured.load else None,
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
    others = ((measured.postgres, "PostgreSQL"), (measured.load, "the load"))
    known = [pooler, *(f"{seconds * 1e6:.1f} µs of {name}" for seconds, name in others if seconds)]
    yield f"CPU time of a transaction: {', '.join(known)}."
    yield f"Law of the workers: sigma {law.sigma:.3g}, kappa {law.kappa:.3g}."
    if not measured.law.scales:
        yield "That loss is the published one (S1), and the interval reaches from it to none."
    if measured.law.caution:
        yield f"Caution: {measured.law.caution}."
    if measured.doubt:
        yield f"Caution: {measured.doubt}."
    yield from of_postgres(measured, found, pg_cores)
    yield from ASSUMED


def of_postgres(measured: Measured, found: Sequence[Projection], pg_cores: int) -> Iterator[str]:
    """What PostgreSQL allows, and how sure that is."""
    if measured.postgres is None:
        yield "PostgreSQL's CPU time was not measured: its host is taken to be large enough."
        return
    if any(one.limit == "PostgreSQL" for one in found):
        yield f"PostgreSQL's {pg_cores} processors are full at {number(pg_cores / measured.postgres)} transactions/s."
    runs = len(measured.postgres_s)
    if measured.scatter is None:
        yield "How PostgreSQL's CPU time of a transaction scatters is not known: one run tells it."
    else:
        yield f"PostgreSQL's CPU time of a transaction is taken to scatter by {measured.scatter:.0%}, from {runs} runs."


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


#: Which folder is taken where none is named, by its rank.
TAKEN = (
    "No folder was named, and none has several numbers of workers: the newest with one is taken.",
    "No folder was named, and none has several numbers of workers by valid runs alone: the newest with several is it.",
    "No folder was named: the newest with several numbers of workers by valid runs is taken.",
)
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
