"""Exports beside an API: COPY streams that psql reads, while pgbench asks at scheduled times."""

from __future__ import annotations

import fcntl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import ClientOutcome, Outcome, Scene
from pgshoal.demo.account import spawn, unprivileged

if TYPE_CHECKING:
    from pgshoal.bench.knobs import Knobs
    from pgshoal.bench.load.logs import Span
    from pgshoal.bench.stand import Stand

ROW_BYTES: Final = 1000
MIB: Final = 1 << 20
#: Exports go by the API's name: a pooler would set another one whenever a server connection changes between the two,
#: a transaction each time that nobody sent.
API_NAME: Final = "pgbench"


def export(megabytes: int) -> str:
    """A COPY of that size, which costs the server little."""
    rows = megabytes * 1_000_000 // ROW_BYTES
    return f"copy (select repeat('x', {ROW_BYTES - 1}) from generate_series(1, {rows})) to stdout"


@dataclass
class Stream:
    """One client that exports again and again until it is told to stop; notes when how many bytes came."""

    number: int
    argv: Sequence[str | Path]
    env: Mapping[str, str]
    over: threading.Event
    arrived: list[tuple[float, int]] = field(default_factory=list)  # seconds of the epoch, bytes
    finished: int = 0
    error: str = ""

    def work(self) -> None:
        """Runs psql until all is over; one that fails ends the stream."""
        while not self.over.is_set() and not self.error:
            child = spawn(self.argv, unprivileged(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
            assert child.stdout is not None
            assert child.stderr is not None
            with child.stdout as out, child.stderr as errors:
                fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, MIB)  # or each read would bring 64 kB and cost a switch
                self._read(child, out)
                said = errors.read().decode(errors="replace").strip()
            if child.wait() == 0:
                self.finished += 1
            elif not self.over.is_set():
                self.error = said or f"psql ended with status {child.returncode}"

    def _read(self, child: subprocess.Popen[bytes], out: IO[bytes]) -> None:
        block = bytearray(MIB)
        while count := out.raw.readinto(block):  # type: ignore[attr-defined]
            self.arrived.append((time.time(), count))
            if self.over.is_set():
                child.kill()

    def bytes_in(self, span: Span) -> int:
        """What arrived in a piece of time."""
        return sum(count for at, count in self.arrived if span.began_s <= at < span.ended_s)

    def outcome(self) -> ClientOutcome:
        """How the stream fared."""
        took = (self.arrived[-1][0] - self.arrived[0][0]) * 1000 if self.arrived else 0.0
        return ClientOutcome(self.number, not self.error, took, self.error)


@dataclass(frozen=True)
class MixedLoad:
    """An API as pgbench plays it, and streams that export beside it; an isolated target has an address for them."""

    api: PgbenchLoad
    streams: int
    megabytes: int
    isolated: bool = False

    @property
    def generators(self) -> int:
        """pgbench's threads and each psql."""
        return self.api.generators + self.streams

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """The API's tables."""
        self.api.prepare(stand, knobs)

    def run(self, scene: Scene) -> Outcome:
        """The API's figures and latencies, with what the streams brought in the same interval."""
        with self._streaming(scene) as streams:
            outcome, span = self.api.watch(scene)
        mebibytes = sum(stream.bytes_in(span) for stream in streams) / MIB
        lost = sum(bool(stream.error) for stream in streams)
        figures = {
            **outcome.figures,
            "api_rate": outcome.figures["tps"],
            "throughput_mib_s": mebibytes / span.seconds,
            "failed": outcome.figures["failed"] + lost,
        }
        sent = (outcome.sent_in_all or 0) + sum(stream.finished for stream in streams)
        clients = [*outcome.clients, *(stream.outcome() for stream in streams)]
        return replace(outcome, figures=figures, clients=clients, sent_in_all=sent)

    @contextmanager
    def _streaming(self, scene: Scene) -> Iterator[list[Stream]]:
        target = scene.opened.address("exports" if self.isolated else "main")
        argv: list[str | Path] = [scene.stand.programs["psql"], "-XAtq", "-c", export(self.megabytes)]
        over = threading.Event()
        env = {**target.env(), "PGAPPNAME": API_NAME}
        streams = [Stream(number, argv, env, over) for number in range(self.streams)]
        threads = [threading.Thread(target=stream.work) for stream in streams]
        for thread in threads:
            thread.start()
        try:
            yield streams
        finally:
            over.set()
            for thread in threads:
                thread.join()
