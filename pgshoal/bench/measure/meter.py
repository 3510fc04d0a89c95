"""Measures one run: processors at both ends of the load interval, connections inside it, commits around it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgshoal.bench.model import Outcome
    from pgshoal.bench.stand import Stand
    from pgshoal.bench.targets.opened import Opened


@dataclass(frozen=True)
class Measured:
    """What goes into a row: figures by the names of docs/topics/bench.md, CPU seconds by process, samples over time."""

    figures: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Meter:
    """For one run. What cannot be had is absent; nothing here raises because PostgreSQL or the pooler has ended."""

    def __init__(self, stand: Stand, opened: Opened) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """Before the load: everything is up. Connects, notes who is alive and what PostgreSQL has counted so far."""
        raise NotImplementedError

    def end(self) -> None:
        """After the load: who has ended, and what PostgreSQL counted in all. Closes; may be called twice.

        A server that the kit runs is rid of the idle server connections of poolers: they report what they counted.
        """
        raise NotImplementedError

    @contextmanager
    def interval(self) -> Iterator[None]:
        """The load interval; RuntimeError when entered a second time."""
        raise NotImplementedError
        yield

    def generator(self, *pids: int) -> None:
        """Processes that make load beside our own: told before the interval, or when started inside it."""
        raise NotImplementedError

    def measured(self, outcome: Outcome | None = None) -> Measured:
        """After `end`. With the load's outcome also `transactions`, `sent_in_all` and `cpu_us_per_tx`."""
        raise NotImplementedError
