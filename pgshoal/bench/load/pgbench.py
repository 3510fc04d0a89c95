"""pgbench as a load: closed loop or open loop by rate, measured in the load interval from its logs."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pgshoal.bench.load import logs
from pgshoal.bench.load.logs import Span
from pgshoal.bench.load.stalls import stalls
from pgshoal.bench.measure.process import raise_file_limit
from pgshoal.bench.model import ClientOutcome, Outcome, Scene
from pgshoal.demo import pgbench
from pgshoal.demo.account import spawn, unprivileged

if TYPE_CHECKING:
    from pgshoal.bench.knobs import Knobs
    from pgshoal.bench.stand import Stand

SPARE_FILES: Final = 100
POLL_S: Final = 0.01
BEGIN_LIMIT_S: Final = 120.0
END_LIMIT_S: Final = 120.0
#: pgbench tells its progress once a second: the first word of it says that all clients are connected and at work.
PROGRESS: Final = b"progress:"
ABORTED: Final = re.compile(r"client (\d+) (?:script \d+ )?aborted")
#: What a server, or the way to it, has to do with: libpq and servers say so in these words.
REASON: Final = re.compile(r"(?<=failed: ).+|(?:FATAL|ERROR): .*|server closed the connection.*")
LOOKUP: Final = "\\set id random(1, :rows)\nselect id, tenant_id, created_at, event_type from events where id = :id;\n"


@dataclass(frozen=True)
class PgbenchLoad:
    """One pgbench. `scripts` are texts of its own instead of the built-in ones; `arguments` are handed on to it."""

    arguments: tuple[str, ...] = ("-S",)
    scripts: tuple[str, ...] = ()
    clients: int = 1
    threads: int = 2
    rate: float = 0.0  # transactions a second, at scheduled times; 0: each client as fast as answers come
    transactions: int = 0  # of each client; 0: by the clock
    seconds: float = 0.0  # of the load interval; 0: as the knob says
    reconnect: bool = False
    tables: Literal["pgbench", "events"] = "pgbench"
    address: str = "main"

    @property
    def generators(self) -> int:
        """A thread fills one processor."""
        return min(self.threads, self.clients)

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """The tables that its transactions are about."""
        stand.fill(self.tables, self.size(knobs))

    def run(self, scene: Scene) -> Outcome:
        """The whole of it."""
        return self.watch(scene)[0]

    def watch(self, scene: Scene) -> tuple[Outcome, Span]:
        """The whole of it, and which piece of time its figures are about."""
        raise_file_limit(self.clients + SPARE_FILES)
        argv: list[str | Path] = [scene.stand.programs["pgbench"], *self.command(scene)]
        with running(argv, scene.opened.address(self.address), scene.folder) as child:
            scene.meter.generator(child.pid)
            span = self._whole(scene, child) if self.transactions else self._interval(scene, child)
            status = child.wait(END_LIMIT_S)
        return self.judge(scene.folder, span, status), span

    def size(self, knobs: Knobs) -> int:
        """Rows of the table `events`, or pgbench's scale."""
        return knobs.int("rows" if self.tables == "events" else "scale")

    def command(self, scene: Scene) -> list[str]:
        """pgbench's arguments. Scripts are put into the scene's folder."""
        warmup, interval, cooldown = self._times(scene)
        folder = scene.folder
        out = ["-n", "-c", str(self.clients), "-j", str(self.generators), *self.arguments]
        out += [f"--random-seed={scene.knobs.int('seed')}", "--log", f"--log-prefix={folder / 'log'}"]
        for number, text in enumerate(self.scripts):
            path = folder / f"script{number}.sql"
            path.write_text(text)
            out += ["-f", str(path)]
        out += ["-D", f"rows={self.size(scene.knobs)}"] if self.tables == "events" else []
        out += [f"--rate={self.rate:g}"] if self.rate else []
        out += ["-C"] if self.reconnect else []
        if self.transactions:
            return [*out, "-t", str(self.transactions)]
        # It counts from before its clients connect, however long that takes; _interval ends it when all is measured.
        return [*out, "-P", "1", "-T", str(math.ceil(BEGIN_LIMIT_S + warmup + interval + cooldown))]

    def _times(self, scene: Scene) -> tuple[float, float, float]:
        """Warm-up (a second at least, as its beginning is noticed by then), interval and cool-down, in seconds."""
        knobs = scene.knobs
        return max(knobs.float("warmup"), 1.1), self.seconds or knobs.float("seconds"), knobs.float("cooldown")

    def _whole(self, scene: Scene, child: subprocess.Popen[bytes]) -> Span:
        """A fixed number of transactions: the interval is all of them."""
        with scene.meter.interval():
            began = time.time()
            while not ended(child):
                time.sleep(POLL_S)
            return Span(began, time.time())

    def _interval(self, scene: Scene, child: subprocess.Popen[bytes]) -> Span:
        """By the clock: warm-up, interval, cool-down. The interval ends early when pgbench does."""
        warmup, interval, cooldown = self._times(scene)
        if not begun(child, scene.folder):
            return Span(time.time(), time.time())
        pause(child, warmup - 1)
        with scene.meter.interval():
            began = time.time()
            pause(child, interval)
            span = Span(began, time.time())
        pause(child, cooldown)
        child.send_signal(signal.SIGALRM)  # what -T sets itself: clients end their transactions, logs are complete
        return span

    def judge(self, folder: Path, span: Span, status: int) -> Outcome:
        """Reads what pgbench left in its folder. RuntimeError when it refused to work for no fault of a server."""
        report, errors = ((folder / name).read_text(errors="replace") for name in ("report", "errors"))
        everything = logs.read(folder, "log")
        counted = everything if self.transactions else everything.between(span)
        suffered = outcomes(errors)
        if status != 0 and not suffered:
            raise RuntimeError(f"pgbench ended with status {status}: {errors[-1000:]}")
        lost = self.clients if status == 1 else len(suffered)
        latencies = counted.latencies_ms
        figures = {
            "tps": len(counted) / span.seconds,
            "succeeded": float(self.clients - lost),
            "failed": float(lost + counted.without_time),
        }
        figures |= stalls(everything, span, each_for_itself=self.reconnect)
        if len(counted):
            figures |= {"latency_mean_ms": float(latencies.mean()), "latency_stddev_ms": float(latencies.std())}
        if self.rate and len(counted):
            figures["lag_mean_ms"] = float(counted.lag_us.mean()) / 1000
        if self.transactions and "tps =" in report:
            figures["tps"] = pgbench.parse(report).tps
        if self.reconnect and "tps =" in report:
            figures["connect_ms"] = pgbench.parse(report).connect_ms
        return Outcome(figures, len(counted), latencies, suffered, len(everything))


@contextmanager
def running(argv: Sequence[str | Path], target: pgbench.Target, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program at work, its words in two files of the folder; ended at the latest with the block."""
    with (folder / "report").open("wb") as out, (folder / "errors").open("wb") as errors:
        child = spawn(argv, unprivileged(), stdout=out, stderr=errors, env=target.env())
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a program has ended; it stays unburied, so that the kernel still tells what it has used."""
    return (
        child.returncode is not None or os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    )


def begun(child: subprocess.Popen[bytes], folder: Path) -> bool:
    """Waits for a second of pgbench's work; False when it ended before."""
    limit = time.monotonic() + BEGIN_LIMIT_S
    while not ended(child):
        if PROGRESS in (folder / "errors").read_bytes():
            return True
        if time.monotonic() > limit:
            raise RuntimeError(f"pgbench has not connected its clients within {BEGIN_LIMIT_S:.0f} s")
        time.sleep(POLL_S)
    return False


def pause(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Waits that long, or until the program ends."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not ended(child):
        time.sleep(min(left, POLL_S))


def outcomes(errors: str) -> list[ClientOutcome]:
    """Clients that pgbench lost, each with the last reason given before; one for all when it did not begin."""
    found: dict[int, ClientOutcome] = {}
    reason = ""
    for line in errors.splitlines():
        if match := REASON.search(line):
            reason = match[0]
        if match := ABORTED.search(line):
            number = int(match[1])
            found[number] = ClientOutcome(number, False, 0.0, reason or line)
    if not found and reason:
        return [ClientOutcome(0, False, 0.0, reason)]
    return list(found.values())
