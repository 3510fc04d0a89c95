"""Looks at connections and memory again and again while a load runs, and takes care not to be a load itself."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import psycopg

from pgshoal.bench.measure import process
from pgshoal.bench.measure.database import Database

MB: Final = 1 << 20
FIRST_S: Final = 2.0  # short loads are looked at more often
EVERY_S: Final = (0.02, 0.1)
SHARE_MOST: Final = 0.05  # of one processor, for each kind of look
Pids = Callable[[], Sequence[int]]


class Sampler:
    """A thread that samples from `start` to `stop`; of memory it keeps the highest sum that it saw."""

    def __init__(self, database: Database | None, memory: Mapping[str, Pids]) -> None:
        self._database = database
        self._memory = memory
        self._memory_due_s = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.at_s: list[float] = []
        self.backends: list[float] = []
        self.active: list[float] = []
        self.peak_bytes: dict[str, int] = {}

    def start(self) -> None:
        """From now on."""
        self._begun_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Until now; may be called twice."""
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        wait_s = 0.0
        while not self._done.wait(wait_s):
            begun_s = time.monotonic()
            if self._database is not None and not self._look(self._database, begun_s - self._begun_s):
                self._database = None  # it is gone: memory is still there to see
            cost_s = time.monotonic() - begun_s
            self._weigh()
            wait_s = pause_s(begun_s - self._begun_s, cost_s)

    def _look(self, database: Database, at_s: float) -> bool:
        try:
            seen = database.backends()
        except psycopg.Error:
            return False
        if seen is None:
            return False
        self.at_s.append(round(at_s, 3))
        self.backends.append(seen[0])
        self.active.append(seen[1])
        return True

    def _weigh(self) -> None:
        begun_s = time.monotonic()
        if begun_s < self._memory_due_s:
            return
        for name, pids in self._memory.items():
            self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), process.rss_of(pids()))
        now_s = time.monotonic()
        self._memory_due_s = now_s + (now_s - begun_s) / SHARE_MOST

    def figures(self) -> dict[str, float]:
        """By the names of rows; what was never seen is absent."""
        found: dict[str, float] = {f"{name}_rss_mb": peak / MB for name, peak in self.peak_bytes.items() if peak}
        if self.backends:
            found |= {"backends_max": max(self.backends), "backends_mean": statistics.fmean(self.backends)}
        return found

    def series(self) -> dict[str, Sequence[float]]:
        """All samples of connections."""
        return {"at_s": self.at_s, "backends": self.backends, "backends_active": self.active} if self.at_s else {}


def pause_s(at_s: float, cost_s: float) -> float:
    """How long to wait before the next look: longer where the answer takes long, but not at first.

    A crowd that comes at once makes every answer slow, and is gone before a long pause is over.
    """
    if at_s <= FIRST_S:
        return min(max(EVERY_S[0], cost_s / SHARE_MOST), EVERY_S[1])
    return max(EVERY_S[1], cost_s / SHARE_MOST)
