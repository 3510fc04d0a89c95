"""Loads of whole sessions by libpq in threads: a connection for each unit of work, all at once, or held for long."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from pgshoal.bench.load.link import Link, LinkLost, conninfo, milliseconds_since
from pgshoal.bench.measure.process import raise_file_limit
from pgshoal.bench.model import ClientOutcome, Outcome, Scene

if TYPE_CHECKING:
    from pgshoal.bench.knobs import Knobs
    from pgshoal.bench.stand import Stand

UNIT: Final = b"select word from one_row"
SPARE_FILES: Final = 200
ONE_PYTHON: Final = 1  # threads of one Python fill one processor
Result = TypeVar("Result")


def visit(info: str, query: bytes, number: int, began_s: float) -> ClientOutcome:
    """Connect, ask once, leave. Milliseconds count from `began_s` on the monotonic clock."""
    try:
        with Link(info) as link:
            link.ask(query)
    except LinkLost as error:
        return ClientOutcome(number, False, milliseconds_since(began_s), str(error))
    return ClientOutcome(number, True, milliseconds_since(began_s))


def summary(found: Sequence[ClientOutcome], seconds: float, kept: Sequence[ClientOutcome], warm: int) -> Outcome:
    """The figures of short sessions; `kept` are the outcomes worth a line of their own, `warm` ones came before."""
    times = np.array([one.milliseconds for one in found if one.succeeded], np.float32)
    figures = {
        "units_per_s": len(times) / seconds,
        "succeeded": float(len(times)),
        "failed": float(len(found) - len(times)),
    }
    if len(times):
        figures |= {"latency_mean_ms": float(times.mean()), "latency_stddev_ms": float(times.std())}
    return Outcome(figures, len(times), times, kept, len(times) + warm)


@dataclass(frozen=True)
class ConnectLoad:
    """Units of work, each a new connection with one tiny query, spread over threads."""

    units: int
    threads: int

    @property
    def generators(self) -> int:
        """One, however many threads."""
        return ONE_PYTHON

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """The table of one row."""
        stand.fill("one_row", 1)

    def run(self, scene: Scene) -> Outcome:
        """A few units to warm up, then all of them measured."""
        info = conninfo(scene.opened.address())
        warm = self._work(info, iter(range(2 * self.threads)))
        with scene.meter.interval():
            began = time.monotonic()
            found = self._work(info, iter(range(self.units)))
            seconds = time.monotonic() - began
        return summary(found, seconds, [one for one in found if not one.succeeded], sum(w.succeeded for w in warm))

    def _work(self, info: str, numbers: Iterator[int]) -> list[ClientOutcome]:
        """Threads take the next number as soon as they are free."""

        def take() -> list[ClientOutcome]:
            return [visit(info, UNIT, number, time.monotonic()) for number in numbers]

        return list(itertools.chain.from_iterable(in_threads([take] * self.threads)))


@dataclass(frozen=True)
class BurstLoad:
    """All clients connect at the same moment, and each holds its connection for a while."""

    clients: int
    hold_ms: int

    @property
    def generators(self) -> int:
        """One, however many threads."""
        return ONE_PYTHON

    def run(self, scene: Scene) -> Outcome:
        """One burst; every client's outcome is kept."""
        raise_file_limit(self.clients + SPARE_FILES)
        info = conninfo(scene.opened.address())
        query = f"select pg_sleep({self.hold_ms / 1000})".encode()
        start = threading.Barrier(self.clients)

        def arrive(number: int) -> ClientOutcome:
            start.wait()
            return visit(info, query, number, time.monotonic())

        with scene.meter.interval():
            began = time.monotonic()
            found = in_threads([partial(arrive, number) for number in range(self.clients)])
            seconds = time.monotonic() - began
        return summary(found, seconds, found, 0)


@dataclass(frozen=True)
class Stay:
    """How a client that stayed fared, and when each of its queries ended and how many milliseconds it took."""

    outcome: ClientOutcome
    times: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class HoldLoad:
    """Clients that stay connected and work briefly, again and again, with a pause between."""

    clients: int
    work_ms: int = 20
    pause_ms: int = 5

    @property
    def generators(self) -> int:
        """One, however many threads."""
        return ONE_PYTHON

    def run(self, scene: Scene) -> Outcome:
        """All of them through warm-up, interval and cool-down."""
        info = conninfo(scene.opened.address())
        over = threading.Event()
        knobs = scene.knobs
        with ThreadPoolExecutor(self.clients) as pool:
            waiting = [pool.submit(self._stay, info, number, over) for number in range(self.clients)]
            try:
                over.wait(knobs.float("warmup"))
                with scene.meter.interval():
                    began = time.monotonic()
                    over.wait(knobs.float("seconds"))
                    ended = time.monotonic()
                over.wait(knobs.float("cooldown"))
            finally:
                over.set()
            stays = [one.result() for one in waiting]
        return self._outcome(stays, began, ended)

    def _stay(self, info: str, number: int, over: threading.Event) -> Stay:
        """One client's work until all is over, or its connection is lost."""
        began, query = time.monotonic(), f"select pg_sleep({self.work_ms / 1000})".encode()
        times: list[tuple[float, float]] = []
        try:
            with Link(info) as link:
                while not over.is_set():
                    asked = time.monotonic()
                    link.ask(query)
                    times.append((time.monotonic(), milliseconds_since(asked)))
                    over.wait(self.pause_ms / 1000)
        except LinkLost as error:
            return Stay(ClientOutcome(number, False, milliseconds_since(began), str(error)), times)
        return Stay(ClientOutcome(number, True, milliseconds_since(began)), times)

    def _outcome(self, stays: Sequence[Stay], began: float, ended: float) -> Outcome:
        inside = [took for stay in stays for at, took in stay.times if began <= at < ended]
        found = [stay.outcome for stay in stays]
        succeeded = sum(one.succeeded for one in found)
        figures = {
            "units_per_s": len(inside) / max(ended - began, 1e-9),
            "succeeded": float(succeeded),
            "failed": float(len(found) - succeeded),
        }
        sent = sum(len(stay.times) for stay in stays)
        return Outcome(figures, len(inside), np.array(inside, np.float32), found, sent)


def in_threads(acts: Sequence[Callable[[], Result]]) -> list[Result]:
    """Each act in a thread of its own, all at the same time; their results in the same order."""
    with ThreadPoolExecutor(len(acts)) as pool:
        return [one.result() for one in [pool.submit(act) for act in acts]]
