"""What processors, processes and PostgreSQL had counted at one moment, and the figures between two of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pgshoal.bench.measure import process
from pgshoal.bench.measure.machine import Times, cores


@dataclass(frozen=True)
class Parties:
    """Who takes part in a run: the pooler's processes by the names of rows, PostgreSQL's first one, load generators."""

    pooler: Mapping[str, int]
    postmaster: int | None  # None: on another machine
    generators: Iterable[int]  # beside our own process

    def of_pooler(self) -> Sequence[int]:
        """The pooler's processes as they were when the run began."""
        return list(self.pooler.values())

    def of_postgres(self) -> Sequence[int]:
        """The postmaster and all its children at this moment: backends and auxiliary processes."""
        return process.family(self.postmaster) if self.postmaster is not None else []

    def of_load(self) -> Sequence[int]:
        """Our own process, and what we were told of."""
        return [os.getpid(), *process.family(*self.generators)]

    def births(self) -> dict[int, int | None]:
        """When the pooler's processes and the postmaster were started; None for one that has ended."""
        pids = [*self.pooler.values(), *([] if self.postmaster is None else [self.postmaster])]
        return {pid: process.birth(pid) for pid in pids}


def named(roots: Mapping[str, int]) -> dict[str, int]:
    """The processes of poolers: `pooler/0`, `pooler/1`, … serve clients, a `pooler/supervisor` has children that do."""
    serving: list[int] = []
    supervisors: list[int] = []
    for root in roots.values():
        workers = process.children(root)
        serving += workers or [root]
        supervisors += [root] if workers else []
    return {f"pooler/{number}": pid for number, pid in enumerate(serving)} | {
        f"pooler/supervisor{number or ''}": pid for number, pid in enumerate(supervisors)
    }


@dataclass(frozen=True)
class Reading:
    """One end of the interval."""

    at_s: float
    cpu_ns: Mapping[str, int]  # by the names of rows
    switches: Mapping[str, tuple[int, int]]
    machine: Times

    @classmethod
    def of(cls, parties: Parties, *, closing: bool = False) -> Reading:
        """Reads the clock last at the beginning of the interval and first at its end, and the pooler next to it.

        So what reading takes is outside, and what the pooler spends is that of the transactions the load counts.
        """
        steps: dict[str, Callable[[], Any]] = {
            "switches": lambda: {name: process.switches(pid) for name, pid in parties.pooler.items()},
            "machine": Times.now,
            "shared_ns": lambda: dict(shared_ns(parties)),
            "pooler_ns": lambda: process.cpu_of(parties.of_pooler()),
            "at_s": time.monotonic,
        }
        read = {name: steps[name]() for name in (reversed(steps) if closing else steps)}
        pooler_ns = {name: read["pooler_ns"][pid] for name, pid in parties.pooler.items() if pid in read["pooler_ns"]}
        return cls(read["at_s"], {**read["shared_ns"], **pooler_ns}, read["switches"], read["machine"])

    def cpu_s_since(self, before: Reading) -> dict[str, float]:
        """CPU seconds by name, of those that were there at both ends."""
        return {name: (now - before.cpu_ns[name]) / 1e9 for name, now in self.cpu_ns.items() if name in before.cpu_ns}

    def figures_since(self, before: Reading) -> dict[str, float]:
        """By the names of rows; what could not be read is absent."""
        seconds = self.at_s - before.at_s
        spent = self.cpu_s_since(before)
        found: dict[str, float] = {"seconds": seconds, "machine_cores": cores()}
        found |= (shares := self.machine.shares_since(before.machine))
        found |= {f"{name}_cores": spent[name] / seconds for name in ("postgres", "load") if name in spent}
        if shares and "postgres" in spent:
            busy = (1 - sum(shares.values())) * (os.cpu_count() or 1)
            found["other_cores"] = max(busy - sum(spent.values()) / seconds, 0.0)
        if self.switches:
            found["pooler_cores"] = pooler_s(spent) / seconds
            changes = [
                [now - then for now, then in zip(self.switches[name], before.switches[name], strict=True)]
                for name in spent
                if name in self.switches
            ]
            found["voluntary_switches"] = sum(one[0] for one in changes)
            found["involuntary_switches"] = sum(one[1] for one in changes)
        return found


def shared_ns(parties: Parties) -> Iterator[tuple[str, int]]:
    """CPU time of those whose processes come and go."""
    with suppress(ProcessLookupError):
        yield "load", process.cpu_with_reaped_ns(os.getpid(), parties.of_load)
    if parties.postmaster is not None:
        with suppress(ProcessLookupError):
            yield "postgres", process.cpu_with_reaped_ns(parties.postmaster, parties.of_postgres)


def pooler_s(cpu_s: Mapping[str, float]) -> float:
    """CPU seconds of all processes of the pooler."""
    return sum(spent for name, spent in cpu_s.items() if name.startswith("pooler/"))
