"""The published scaling tables as figures, and what a projection from their smallest sizes says about the largest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pgshoal.bench.advice.usl import Law, fit


@dataclass(frozen=True)
class Point:
    """One published size. `postgres` is the share of PostgreSQL's host that was used, where it was published."""

    processes: int
    clients: int
    rate: float
    postgres: float | None = None


@dataclass(frozen=True)
class Table:
    """One publication."""

    name: str
    text: str
    points: tuple[Point, ...]

    def at(self, processes: int, clients: int) -> Point:
        """One of its sizes; KeyError where there is none."""
        found = [one for one in self.points if (one.processes, one.clients) == (processes, clients)]
        if not found:
            raise KeyError((processes, clients))
        return found[0]


S1: Final = Table(
    "S1",
    "c-class hosts in one zone, prepared lookups, TLS on both sides",
    (
        Point(1, 256, 45_000, 0.22),
        Point(2, 256, 81_000, 0.44),
        Point(4, 256, 153_000, 0.87),
        Point(8, 256, 209_779, 0.97),
    ),
)
S2: Final = Table(
    "S2",
    "a host of 16 vCPU, PostgreSQL on another, pgbench -S",
    (
        Point(1, 8, 8_910),
        Point(1, 64, 87_000),
        Point(1, 256, 77_000),
        Point(16, 8, 6_450),
        Point(16, 128, 320_000),
        Point(16, 256, 336_000),
    ),
)


@dataclass(frozen=True)
class Check:
    """A published rate and the one projected from smaller sizes of the same table."""

    table: Table
    source: str
    published: Point
    projected: float
    limit: str  # what ends the projected rate

    @property
    def error(self) -> float:
        """How far the projection is off, relative to the published rate."""
        return self.projected / self.published.rate - 1


def checks() -> Iterator[Check]:
    """Every published size above those that the projection was given."""
    yield from by_processor(S1, (1,))
    yield from by_processor(S1, (1, 2))
    yield from by_loss(S2)
    yield from by_clients(S2)


def by_processor(table: Table, given: Sequence[int], clients: int = 256) -> Iterator[Check]:
    """Full workers scale by the law of the sizes given, until PostgreSQL's host is full."""
    known = [table.at(count, clients) for count in given]
    law = fit({one.processes: (one.rate,) for one in known}).law
    full = [one.rate / one.postgres for one in known if one.postgres]
    most = sum(full) / len(full) if full else float("inf")
    source = f"{' and '.join(map(str, given))} process{'es' if len(given) > 1 else ''}"
    for point in table.points:
        if point.clients == clients and point.processes > max(given):
            free = law.rate(point.processes)
            yield Check(table, source, point, min(free, most), "PostgreSQL" if most < free else "pooler")


def by_loss(table: Table, clients: int = 256) -> Iterator[Check]:
    """One process of this table, and from the other one what more of them lose."""
    one = table.at(1, clients)
    law = replace(loss(), one=one.rate)
    for point in table.points:
        if point.clients == clients and point.processes > 1:
            yield Check(table, "1 process, S1's loss", point, law.rate(point.processes), "pooler")


@cache
def loss() -> Law:
    """The law of the published fleet as far as PostgreSQL had room: where only one size is known, it stands in."""
    return fit({one.processes: (one.rate,) for one in S1.points if (one.postgres or 0) < 0.9}).law


def by_clients(table: Table) -> Iterator[Check]:
    """Each process of a fleet does what one alone does with its part of the clients, between the sizes given."""
    alone = sorted((one.clients, one.rate) for one in table.points if one.processes == 1)
    for point in table.points:
        if point.processes > 1:
            part = point.clients / point.processes
            yield Check(table, "1 process", point, point.processes * alone_with(part, alone), "clients")


def alone_with(clients: float, alone: Sequence[tuple[int, float]]) -> float:
    """The rate of one process with so many clients: a power law between two sizes, in proportion below the least."""
    if clients <= alone[0][0]:
        return alone[0][1] * clients / alone[0][0]
    for (few, low), (many, high) in itertools.pairwise(alone):
        if clients <= many:
            share = math.log(clients / few) / math.log(many / few)
            return float(low * (high / low) ** share)
    return alone[-1][1]
