"""Measures one run: processors at both ends of the load interval, connections inside it, commits around it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg

from pgshoal.bench.measure.database import Counts, Database
from pgshoal.bench.measure.reading import Parties, Reading, named, pooler_s
from pgshoal.bench.measure.sampler import Sampler

if TYPE_CHECKING:
    from pgshoal.bench.model import Outcome
    from pgshoal.bench.stand import Stand
    from pgshoal.bench.targets.opened import Opened

OF_PROCESSORS: Final = ("pooler_cores", "postgres_cores", "load_cores", "other_cores")


@dataclass(frozen=True)
class Measured:
    """What goes into a row: figures by the names of docs/topics/bench.md, CPU seconds by process, samples over time."""

    figures: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Meter:
    """For one run. What cannot be had is absent; nothing here raises because PostgreSQL or the pooler has ended."""

    def __init__(self, stand: Stand, opened: Opened) -> None:
        self._stand = stand
        self._opened = opened
        self._generators: set[int] = set()
        self._parties = Parties({}, None, self._generators)
        self._births: Mapping[int, int | None] = {}
        self._database: Database | None = None
        self._born_s = 0.0
        self._begun: Counts | None = None
        self._sampler: Sampler | None = None
        self._measured = Measured()
        self._whole_run: dict[str, float] = {}

    def begin(self) -> None:
        """Before the load: everything is up. Connects, notes who is alive and what PostgreSQL has counted so far."""
        self._parties = Parties(named(self._opened.roots()), self._stand.postmaster_pid, self._generators)
        self._births = self._parties.births()
        self._database = Database(self._stand)
        self._born_s = self._database.born_s()
        self._begun = self._database.counts()

    def end(self) -> None:
        """After the load: who has ended, and what PostgreSQL counted in all. Closes; may be called twice.

        A server that the kit runs is rid of the idle server connections of poolers: they report what they counted.
        """
        database, self._database = self._database, None
        if database is None:
            return
        now = self._parties.births()
        ended = [pid for pid, birth in self._births.items() if birth is None or now[pid] != birth]
        of_pooler = sum(pid != self._parties.postmaster for pid in ended)
        self._whole_run["pooler_ended"] = float(of_pooler or not self._opened.running)
        restarted = self._parties.postmaster in ended
        try:
            restarted = restarted or database.born_s() != self._born_s
            if not restarted:
                self._count(database)
        except psycopg.Error:
            restarted = True
        finally:
            database.close()
        self._whole_run["postgres_ended"] = float(restarted)

    def _count(self, database: Database) -> None:
        """What PostgreSQL counted, if it is known to be ours."""
        if strangers := database.strangers_at_work():
            self._whole_run["strangers_at_work"] = float(strangers)
        elif self._begun and database.settle() and (counts := database.counts()):
            self._whole_run["commits"] = counts.commits - self._begun.commits

    @contextmanager
    def interval(self) -> Iterator[None]:
        """The load interval; RuntimeError when entered a second time."""
        if self._sampler is not None:
            raise RuntimeError("a run has one load interval")
        memory = {"pooler": self._parties.of_pooler, "postgres": self._parties.of_postgres}
        self._sampler = sampler = Sampler(self._database, memory)
        begun = self._counts()
        sampler.start()
        first = Reading.of(self._parties)
        try:
            yield
        finally:
            last = Reading.of(self._parties, closing=True)
            sampler.stop()
            figures = {**last.figures_since(first), **sampler.figures()}
            if begun and (ended := self._counts()):
                figures["blocks_read"] = ended.blocks_read - begun.blocks_read
                figures["blocks_hit"] = ended.blocks_hit - begun.blocks_hit
            self._measured = Measured(figures, last.cpu_s_since(first), sampler.series())

    def _counts(self) -> Counts | None:
        with suppress(psycopg.Error):
            return self._database.counts() if self._database else None
        return None

    def generator(self, *pids: int) -> None:
        """Processes that make load beside our own: told before the interval, or when started inside it."""
        self._generators.update(pids)

    def measured(self, outcome: Outcome | None = None) -> Measured:
        """After `end`. With the load's outcome also `transactions`, `sent_in_all` and `cpu_us_per_tx`."""
        figures, cpu_s = {**self._measured.figures, **self._whole_run}, self._measured.cpu_s
        if figures.get("postgres_ended"):  # what it spent went with it, and others had less to do
            figures = {name: value for name, value in figures.items() if name not in OF_PROCESSORS}
            cpu_s = {}
        if outcome is not None:
            figures["transactions"] = outcome.transactions
            if outcome.sent_in_all is not None:
                figures["sent_in_all"] = outcome.sent_in_all
            if outcome.transactions and "pooler_cores" in figures:
                figures["cpu_us_per_tx"] = pooler_s(cpu_s) * 1e6 / outcome.transactions
        return Measured(figures, cpu_s, self._measured.series)
