"""Loads that look at the pooler's own memory and CPU: one large COPY, idle clients, results that nobody reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pgshoal.bench.load.raw import RawClient
from pgshoal.bench.measure import process
from pgshoal.bench.model import Outcome, Scene

MB, MIB = 1_000_000, 1 << 20
SETTLE_S: Final = 1.0
COPY_ROW_BYTES: Final = 1000
PUSH_MOST: Final = 1 << 30
SPARE_FILES: Final = 400


def family(scene: Scene) -> list[int]:
    """All processes of the pooler; RuntimeError when they are not known here."""
    pids = process.family(*scene.opened.roots().values())
    if not pids:
        raise RuntimeError(f"the processes of {scene.cell.target.label} are not known here")
    return pids


def total(scene: Scene, figure: Callable[[int], int]) -> int:
    """A figure of the pooler's processes, taken together."""
    return sum(map(figure, family(scene)))


def client(scene: Scene, dbname: str = "", receive_buffer: int = 0) -> RawClient:
    """A bare client of the scene's target."""
    address = scene.opened.address()
    return RawClient(address.host, address.port, address.user, dbname or address.dbname, receive_buffer)


@dataclass(frozen=True)
class CopyLoad:
    """One client reads one COPY."""

    megabytes: int

    @property
    def generators(self) -> int:
        """One thread."""
        return 1

    def run(self, scene: Scene) -> Outcome:
        """MiB per second that arrive, and the pooler's CPU for each."""
        with client(scene) as one:
            one.query("select 1")  # a server connection is there before anything counts
            one.drain()
            with scene.meter.interval():
                before, began = total(scene, process.cpu_ns), time.monotonic()
                rows = self.megabytes * MB // COPY_ROW_BYTES
                one.query(f"copy (select repeat('x', {COPY_ROW_BYTES - 1}) from generate_series(1, {rows})) to stdout")
                mebibytes = one.drain() / MIB
                seconds = time.monotonic() - began
                spent_us = (total(scene, process.cpu_ns) - before) / 1000
        return Outcome({"throughput_mib_s": mebibytes / seconds, "cpu_us_per_mib": spent_us / mebibytes}, 1)


@dataclass(frozen=True)
class IdleLoad:
    """Clients that are logged in and silent."""

    clients: int

    @property
    def generators(self) -> int:
        """One thread."""
        return 1

    def run(self, scene: Scene) -> Outcome:
        """Memory that the pooler needs for one more of them; fewer than wanted where files are short."""
        count = min(self.clients, process.raise_file_limit(self.clients + SPARE_FILES) - SPARE_FILES)
        clients: list[RawClient] = []
        try:
            with scene.meter.interval():
                before = total(scene, process.rss_bytes)
                for _ in range(count):
                    clients.append(client(scene))
                time.sleep(SETTLE_S)
                grown = total(scene, process.rss_bytes) - before
        finally:
            for one in clients:
                one.close()
        return Outcome({"bytes_per_client": grown / count, "succeeded": float(count)})


@dataclass(frozen=True)
class MemoryLoad:
    """What tempts a pooler to buffer: a result that is not read, a server that does not read, a very long row."""

    patience_s: float = 3.0

    @property
    def generators(self) -> int:
        """One thread."""
        return 1

    def run(self, scene: Scene) -> Outcome:
        """Megabytes of growth in each case."""
        with scene.meter.interval():
            unread, _ = growth(scene, lambda: self._leave_unread(scene))
            deaf, _ = growth(scene, lambda: self._push_at_deaf(scene))
            peak, after = growth(scene, lambda: read_row(scene))
        return Outcome({"unread_mb": unread, "deaf_mb": deaf, "row_peak_mb": peak, "row_after_mb": after})

    def _leave_unread(self, scene: Scene) -> None:
        """Asks for 2 GB and reads none of it."""
        with client(scene, receive_buffer=65536) as one:
            one.query("select repeat('x', 1000000) from generate_series(1, 2000)")
            time.sleep(self.patience_s)

    def _push_at_deaf(self, scene: Scene) -> None:
        """Sends COPY data to a server that has stopped reading, until the pooler stops taking it."""
        with client(scene, "deaf") as one:
            one.query("copy t from stdin")
            one.socket.recv(64)
            block = b"d" + (65532).to_bytes(4, "big") + b"x" * 65528
            taken = one.push(block, PUSH_MOST, self.patience_s)
        if not len(block) < taken < PUSH_MOST:
            raise RuntimeError(f"the pooler took {taken / MIB:,.1f} MiB of a COPY that nobody reads")


def read_row(scene: Scene) -> None:
    """Reads one row of 200 MB to its end."""
    with client(scene) as one:
        one.query("select repeat('x', 200000000)")
        if (got := one.drain()) < 200_000_000:
            raise RuntimeError(f"a row of 200 MB arrived as {got} bytes")


def growth(scene: Scene, act: Callable[[], None]) -> tuple[float, float]:
    """Megabytes by which the pooler's memory grew, at the peak of an act and a moment after it."""
    for pid in family(scene):
        process.reset_peak(pid)
    before = total(scene, process.rss_bytes)
    act()
    peak = total(scene, process.peak_bytes)
    time.sleep(SETTLE_S)
    return (peak - before) / MIB, (total(scene, process.rss_bytes) - before) / MIB


@dataclass(frozen=True)
class WorkersLoad:
    """No client at all: what the processes of a fleet need by themselves."""

    @property
    def generators(self) -> int:
        """None is kept busy."""
        return 1

    def run(self, scene: Scene) -> Outcome:
        """Megabytes of the largest worker, of what is one's alone, and of the supervisor."""
        with scene.meter.interval():
            time.sleep(SETTLE_S)
            supervisor, *workers = family(scene)
            figures = {
                "worker_mb": max(map(process.rss_bytes, workers)) / MIB,
                "worker_private_mb": max(map(process.private_bytes, workers)) / MIB,
                "supervisor_mb": process.rss_bytes(supervisor) / MIB,
            }
        return Outcome(figures)
