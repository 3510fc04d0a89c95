"""How many workers, from evidence about some numbers of them and the law that their rates follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgshoal.bench.advice.bottleneck import Evidence, Finding, Where, diagnose
from pgshoal.bench.advice.tables import loss
from pgshoal.bench.advice.usl import Fit, Interval
from pgshoal.bench.results.words import number

#: One more worker that brings less is not worth its memory and its connections.
GAIN_LEAST: Final = 0.05
#: What a worker may have to do so that it still has room for a burst.
COMFORT: Final = 0.6

REMEDIES: Final[dict[Where, str]] = {
    "load": "More workers would wait for work.",
    "PostgreSQL": "More workers would only let more clients wait inside PostgreSQL: a larger host or less work helps.",
    "machine": "Another worker would take its time from the others: more processors, or hosts of their own, help.",
    "imbalance": "Another worker would stand idle, too: `accept_balance = least` spreads new clients, and clients that"
    " stay connected for long have to connect anew.",
    "pooler": "Its cores are what limits the rate.",
    "budget": "Workers do not help: a larger default_pool_size (and max_db_connections) does, as long as PostgreSQL has"
    " processors for it.",
    "nothing": "Without figures nothing is changed.",
}


@dataclass(frozen=True)
class Gain:
    """What one more worker would bring, as a share of the present rate."""

    expected: float
    interval: Interval
    text: str


@dataclass(frozen=True)
class Advice:
    """What to do, and why."""

    workers: int
    headline: str
    finding: Finding
    reasons: tuple[str, ...]


def limit(sizes: Sequence[Evidence]) -> float:
    """The rate at which PostgreSQL's host is full, by the CPU time of a transaction; infinite when it is not known.

    What other programs on it use is theirs.
    """
    found = []
    for seen in sizes:
        used, others = seen.postgres, (seen.others or 0.0) if seen.same_host else 0.0
        if used and seen.same_host:
            used += (seen.pooler or 0.0) + (seen.load or 0.0)
        if used and seen.postgres_cores and seen.rate:
            found.append(seen.rate * (seen.postgres_cores - others) / used)
    return sorted(found)[len(found) // 2] if found else math.inf


def gain(seen: Evidence, law: Fit, most: float) -> Gain:
    """By the fitted law when several sizes were measured, else between no loss and the loss of published fleets."""
    n = seen.workers
    room = max(most / seen.rate - 1, 0.0) if seen.rate else math.inf
    if law.scales:
        expected, (low, high) = law.law.gain(n), law.interval(lambda one: one.gain(n))
        how = f"in nine of ten cases, by the fitted law with sigma {law.law.sigma:.3g} and kappa {law.law.kappa:.3g}"
    else:
        low, high = loss().gain(n), 1 / n
        expected = (low + high) / 2
        how = "from the loss of published fleets to none, as one size fits no law"
    full = f"; PostgreSQL's host is full at {number(most)}/s" if room < high else ""
    between = Interval(min(low, room), min(high, room))
    text = f"{signed(min(expected, room))} ({signed(between.low)} to {signed(between.high)} {how}{full})"
    return Gain(min(expected, room), between, text)


def advise(sizes: Sequence[Evidence], rates: Fit) -> Advice:
    """From the smallest size on, one more as long as workers are what is full, processors are left and it pays."""
    ordered = sorted(sizes, key=lambda seen: seen.workers)
    most = limit(ordered)
    here = ordered[0]
    cores = max(seen.cores or 0 for seen in ordered) or None
    for larger in ordered[1:]:
        if (cores or larger.workers) < larger.workers or not better(here, larger, rates):
            break
        here = larger
    finding, brings = diagnose(here), gain(here, rates, most)
    tried = any(seen.workers == here.workers + 1 for seen in ordered)
    more = not tried and not stops(here, rates, most, cores)
    workers = here.workers + 1 if more else min(here.workers, cores or here.workers)
    reasons = (
        f"With {counted(here.workers)}: {finding.text}.",
        compared(ordered, rates),
        f"One more worker: {brings.text}." if rates.scales or finding.where == "pooler" else "",
        why_not(here, cores) if finding.where == "pooler" and not more else REMEDIES[finding.where],
        doubted(here, ordered, finding),
        smaller(here, finding),
        f"Caution: {rates.caution}." if rates.caution and (rates.scales or finding.where == "pooler") else "",
    )
    return Advice(workers, headline(workers, ordered, here), finding, tuple(filter(None, reasons)))


def better(here: Evidence, larger: Evidence, rates: Fit) -> bool:
    """Whether a larger size that was measured is worth it; on a machine that was full only beyond all scatter."""
    match diagnose(here).where:
        case "pooler":
            return larger.rate >= here.rate * (1 + GAIN_LEAST)
        case "machine":
            return rates.interval(lambda law: law.rate(larger.workers) / law.rate(here.workers) - 1).low >= GAIN_LEAST
        case _:
            return False


def doubted(here: Evidence, sizes: Sequence[Evidence], finding: Finding) -> str:
    """What more workers did on a machine that was full, where it is not enough to be sure."""
    if finding.where != "machine" or all(seen.rate < here.rate * (1 + GAIN_LEAST) for seen in sizes):
        return ""
    return (
        "That more workers did more is within the scatter of these runs: more repeats, or an idle machine, would tell."
    )


def stops(here: Evidence, rates: Fit, most: float, cores: int | None) -> bool:
    """Whether one more worker is not to be advised."""
    if diagnose(here).where != "pooler" or (cores is not None and here.workers >= cores):
        return True
    return gain(here, rates, most).expected < GAIN_LEAST


def why_not(here: Evidence, cores: int | None) -> str:
    """Why a full pooler gets no more workers."""
    if cores is not None and here.workers >= cores:
        return f"More workers than the {cores} processors of this host would take turns on them."
    return f"Less than {GAIN_LEAST:.0%} more is not worth a worker."


def compared(sizes: Sequence[Evidence], rates: Fit) -> str:
    """What the measured sizes did, when there are several."""
    if len(sizes) < 2:
        return ""
    each = ", ".join(f"{seen.workers}: {number(seen.rate)}/s" for seen in sizes)
    return f"Measured by number of workers: {each}; the rate of a run is taken to scatter by {rates.scatter:.0%}."


def smaller(here: Evidence, finding: Finding) -> str:
    """How many workers would have enough room for the same work, where that is fewer."""
    if here.pooler is None or finding.where not in ("load", "PostgreSQL", "budget"):
        return ""
    enough = max(math.ceil(here.pooler / COMFORT), 1)
    return (
        "" if enough >= here.workers else f"The {number(here.pooler)} cores of work would fit into {counted(enough)}."
    )


def headline(workers: int, sizes: Sequence[Evidence], here: Evidence) -> str:
    """The advice in one sentence; of a single size it is about a change."""
    if len(sizes) > 1:
        return f"No change: {counted(1)} is enough." if workers == 1 else f"Run {counted(workers)}."
    if workers == here.workers:
        return f"No change: stay with {counted(workers)}."
    return f"Run {counted(workers)}, not {here.workers}, and look again then."


def counted(workers: int) -> str:
    """So many workers."""
    return "1 worker" if workers == 1 else f"{workers} workers"


def signed(share: float) -> str:
    """A gain or a loss."""
    return f"{share:+.0%}"
