"""Where the bottleneck is, from what each part of a pooled system uses of what it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pgshoal.bench.results.words import number

Where = Literal["load", "PostgreSQL", "machine", "imbalance", "pooler", "budget", "nothing"]

FULL: Final = 0.85  # of one core: a worker that uses more has queues
HOST_FULL: Final = 0.90
IDLE_LEAST: Final = 0.05
UNEVEN: Final = 0.6  # the mean worker, relative to the busiest one
WAITING_LEAST: Final = 0.5  # clients, on average


@dataclass(frozen=True)
class Evidence:
    """A pooler at work. Cores are processors used, or those that there are; None is not known."""

    workers: int
    rate: float  # transactions a second
    by_worker: tuple[float, ...] = ()  # processors that each worker used
    cores: int | None = None  # of the pooler's host
    postgres: float | None = None  # processors that PostgreSQL used
    postgres_cores: int | None = None  # of its host
    load: float | None = None  # with the others, where these are not known
    others: float | None = None  # programs that have no part in it
    idle: float | None = None  # share of the pooler's host
    same_host: bool = False  # PostgreSQL is on the pooler's
    waiting: float | None = None  # clients that wait for a server, on average
    servers: float | None = None  # server connections at most
    budget: int | None = None  # server connections allowed
    limit: str = ""  # what allows no more
    clients: int | None = None
    load_full: str = ""  # why the load generator was the limit

    @property
    def busiest(self) -> float | None:
        """What the worker with most to do used."""
        return max(self.by_worker, default=None)

    @property
    def pooler(self) -> float | None:
        """What all workers used."""
        return sum(self.by_worker) if self.by_worker else None


@dataclass(frozen=True)
class Finding:
    """The bottleneck, and the figures that say so as a sentence."""

    where: Where
    text: str


def diagnose(seen: Evidence) -> Finding:
    """The first part that has nothing left, in the order in which one hides the next; `nothing` when all have room."""
    looks = (load, postgres, machine, imbalance, pooler, budget)
    return next((found for look in looks if (found := look(seen))), None) or rest(seen)


def load(seen: Evidence) -> Finding | None:
    """A generator without room says nothing about what it loads."""
    return Finding("load", f"the load generator had no room: {seen.load_full}") if seen.load_full else None


def postgres(seen: Evidence) -> Finding | None:
    """PostgreSQL fills its host, alone or with others on it that are not the pooler."""
    if seen.postgres is None or seen.postgres_cores is None or seen.postgres < HOST_FULL * seen.postgres_cores:
        return None
    used = f"PostgreSQL used {number(seen.postgres)} of {seen.postgres_cores} processors"
    return Finding("PostgreSQL", f"{used}, {workers_of(seen)}")


def machine(seen: Evidence) -> Finding | None:
    """Pooler, PostgreSQL and load on one machine take each other's processors."""
    if seen.idle is None or seen.idle >= IDLE_LEAST:
        return None
    load_name = "load and others" if seen.others is None else "the load"
    parts = (
        *(("the pooler", seen.pooler), ("PostgreSQL", seen.postgres)),
        *((load_name, seen.load), ("other programs", seen.others)),
    )
    shares = ", ".join(f"{name} {number(value)}" for name, value in parts if value is not None)
    text = f"the machine was {seen.idle:.1%} idle; of its {seen.cores or '?'} processors they had: {shares}"
    return Finding("machine", text)


def imbalance(seen: Evidence) -> Finding | None:
    """One worker is full while others have room."""
    if seen.busiest is None or seen.busiest < FULL or seen.workers < 2:
        return None
    mean = sum(seen.by_worker) / len(seen.by_worker)
    if mean > UNEVEN * seen.busiest:
        return None
    each = ", ".join(f"{used:.0%}" for used in sorted(seen.by_worker, reverse=True))
    return Finding("imbalance", f"the busiest worker used {seen.busiest:.0%} of a core, the mean {mean:.0%} ({each})")


def pooler(seen: Evidence) -> Finding | None:
    """Workers fill their cores while PostgreSQL has room."""
    if seen.busiest is None or seen.busiest < FULL:
        return None
    return Finding("pooler", f"{workers_of(seen)}, {postgres_of(seen)}")


def budget(seen: Evidence) -> Finding | None:
    """Clients wait for server connections while processors are free."""
    if seen.budget is None or seen.servers is None or seen.servers < seen.budget:
        return None
    whose = f" of {seen.limit}" if seen.limit else ""
    held = f"all {seen.budget} server connections{whose} were in use while processors were free ({workers_of(seen)}"
    if seen.waiting is not None:
        enough = seen.waiting >= WAITING_LEAST
        text = f"{held}), and {number(seen.waiting)} clients waited for one on average"
    else:
        enough, text = (seen.clients or 0) > seen.budget, f"{held}), with {seen.clients} clients"
    return Finding("budget", text) if enough else None


def rest(seen: Evidence) -> Finding:
    """Nothing is full: what comes is served."""
    parts: tuple[tuple[bool, Callable[[Evidence], str]], ...] = (
        (seen.busiest is not None, workers_of),
        (seen.postgres is not None, postgres_of),
    )
    known = [words(seen) for there, words in parts if there]
    if not known:
        return Finding("nothing", "the CPU time of neither pooler nor PostgreSQL is known")
    return Finding("load", f"nothing is full: {', '.join(known)}; the load asks for no more")


def workers_of(seen: Evidence) -> str:
    """What the workers used, in words."""
    if seen.busiest is None:
        return "what the workers used is not known"
    if seen.workers == 1:
        return f"the worker used {seen.busiest:.0%} of a core"
    return f"the busiest of {seen.workers} workers used {seen.busiest:.0%} of a core"


def postgres_of(seen: Evidence) -> str:
    """What PostgreSQL used, in words."""
    if seen.postgres is None:
        return "what PostgreSQL used is not known as it runs elsewhere"
    return f"PostgreSQL {number(seen.postgres)} of {seen.postgres_cores or '?'} processors"
