"""Cancels by libpq's own request: how many reach the query they are meant for, and how fast."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psycopg

from pgshoal.bench.load.link import conninfo, tidy
from pgshoal.bench.load.sessions import ONE_PYTHON
from pgshoal.bench.model import ClientOutcome, Outcome, Scene

if TYPE_CHECKING:
    from pgshoal.bench.stand import Stand

LANES: Final = 8  # attempts at the same time
START_LIMIT_S: Final = 30.0
POLL_S: Final = 0.005
RUNS: Final = "select count(*) from pg_stat_activity where state = 'active' and query = %s"


@dataclass(frozen=True)
class CancelLoad:
    """Attempts, each on a connection of its own: a query that sleeps, seen running, then its cancel.

    A cancel that gets lost costs the rest of the sleep: a query that ends by itself was not cancelled.
    """

    attempts: int
    sleep_s: float = 2.0

    @property
    def generators(self) -> int:
        """One, however many threads."""
        return ONE_PYTHON

    def run(self, scene: Scene) -> Outcome:
        """All attempts, a few at a time."""
        info = conninfo(scene.opened.address())
        numbers = iter(range(self.attempts))
        with scene.meter.interval(), ThreadPoolExecutor(LANES) as pool:
            lanes = [pool.submit(self._lane, scene.stand, info, numbers) for _ in range(LANES)]
            found = sorted(itertools.chain.from_iterable(lane.result() for lane in lanes), key=lambda one: one.number)
        times = np.array([one.milliseconds for one in found if one.succeeded], np.float32)
        figures = {"succeeded": float(len(times)), "failed": float(len(found) - len(times))}
        figures["share"] = len(times) / len(found)
        if len(times):
            figures["cancel_ms"] = float(np.median(times))
        return Outcome(figures, len(times), times, found)

    def _lane(self, stand: Stand, info: str, numbers: Iterator[int]) -> list[ClientOutcome]:
        with stand.connect() as watcher:
            return [self._attempt(watcher, info, number) for number in numbers]

    def _attempt(self, watcher: psycopg.Connection[Any], info: str, number: int) -> ClientOutcome:
        """One query and its cancel; milliseconds from the cancel to the query's end."""
        query = f"select pg_sleep({self.sleep_s}) /* attempt {number} of {id(self)} */"
        try:
            with psycopg.connect(info, autocommit=True) as connection, ThreadPoolExecutor(1) as beside:
                sleeping = beside.submit(ending, connection, query)
                wait_until_it_runs(watcher, query, sleeping)
                asked_s = time.monotonic()
                connection.cancel_safe()
                error, ended_s = sleeping.result()
        except (psycopg.Error, TimeoutError) as failure:
            return ClientOutcome(number, False, 0.0, tidy(str(failure)))
        took_ms = (ended_s - asked_s) * 1000
        if isinstance(error, psycopg.errors.QueryCanceled):
            return ClientOutcome(number, True, took_ms)
        return ClientOutcome(number, False, took_ms, tidy(str(error)) if error else "the query ran to its end")


def ending(connection: psycopg.Connection[Any], query: str) -> tuple[psycopg.Error | None, float]:
    """Runs a query; how it ended, and when on the monotonic clock."""
    try:
        connection.execute(query)
    except psycopg.Error as error:
        return error, time.monotonic()
    return None, time.monotonic()


def wait_until_it_runs(watcher: psycopg.Connection[Any], query: str, sleeping: Future[Any]) -> None:
    """Looks at PostgreSQL until the query is active there; TimeoutError when it never is."""
    limit_s = time.monotonic() + START_LIMIT_S
    while not sleeping.done():
        row = watcher.execute(RUNS, (query,)).fetchone()
        if row and row[0]:
            return
        if time.monotonic() > limit_s:
            raise TimeoutError(f"the query was not running after {START_LIMIT_S:.0f} s")
        time.sleep(POLL_S)
