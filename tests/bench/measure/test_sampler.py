"""The sampler keeps all counts of connections and the highest memory, and outlives PostgreSQL."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import cast

import psycopg

from pgshoal.bench.measure.database import Database
from pgshoal.bench.measure.sampler import Sampler, pause_s


class Scripted:
    """Answers with these counts, one after the other, then as its end says."""

    def __init__(self, *counts: tuple[int, int], end: Exception | None = None) -> None:
        self._counts: Iterator[tuple[int, int]] = iter(counts)
        self._end = end
        self.done = threading.Event()

    def backends(self) -> tuple[int, int] | None:
        """The next counts."""
        try:
            return next(self._counts)
        except StopIteration:
            self.done.set()
            if self._end is not None:
                raise self._end from None
            return None


def sampled(database: Scripted) -> Sampler:
    """A sampler that has asked for all that the script holds."""
    sampler = Sampler(cast("Database", database), {"postgres": lambda: [os.getpid()], "pooler": list})
    sampler.start()
    assert database.done.wait(30)
    sampler.stop()
    return sampler


def test_counts_become_figures_and_series() -> None:
    """The highest, the mean, and each sample with its time."""
    sampler = sampled(Scripted((3, 1), (9, 9), (0, 0)))
    figures, series = sampler.figures(), sampler.series()
    assert (figures["backends_max"], figures["backends_mean"]) == (9, 4)
    assert (series["backends"], series["backends_active"]) == ([3, 9, 0], [1, 9, 0])
    assert sorted(series["at_s"]) == series["at_s"]
    assert len(series["at_s"]) == 3


def test_a_lost_database_ends_the_counts_alone() -> None:
    """What was seen stays, and memory is looked at all the same; nothing is raised."""
    sampler = sampled(Scripted((3, 1), end=psycopg.OperationalError("gone")))
    assert sampler.series()["backends"] == [3]
    assert sampler.figures()["postgres_rss_mb"] > 1


def test_who_may_not_see_counts_nothing() -> None:
    """Without the right to see others there are no counts, rather than wrong ones; nor is there memory of nobody."""
    sampler = sampled(Scripted())
    assert sampler.series() == {}
    assert set(sampler.figures()) == {"postgres_rss_mb"}


def test_a_crowd_that_makes_answers_slow_is_looked_at_all_the_same() -> None:
    """At first a slow answer costs no more than a tenth of a second's pause; later the sampler is no load."""
    assert pause_s(0.1, 0.0001) == 0.02
    assert pause_s(0.1, 0.5) == 0.1
    assert pause_s(5, 0.0001) == 0.1
    assert pause_s(5, 0.5) == 10
