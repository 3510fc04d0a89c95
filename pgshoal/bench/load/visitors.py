"""Programs that people use, on a primary and a standby through several nodes, one of which is stopped in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import psycopg

from pgshoal.bench.load.link import Link, LinkLost, conninfo, milliseconds_since
from pgshoal.bench.load.pgbench import REASON
from pgshoal.bench.load.sessions import ONE_PYTHON
from pgshoal.bench.model import ClientOutcome, Outcome, Scene
from pgshoal.demo.account import run, unprivileged

if TYPE_CHECKING:
    from pgshoal.bench.knobs import Knobs
    from pgshoal.bench.stand import Stand

#: The databases, and what each answers to the question whether it is a standby.
DATABASES: Final[Mapping[str, str]] = {"writer": "f", "reader": "t"}
STANDBY: Final = "select pg_is_in_recovery()::char"
ROUNDS: Final = 2  # a balancer that takes nodes in turn leads each program to both
TRANSACTIONS: Final = 20  # of each of pgbench's clients
STOP_LIMIT_S: Final = 10.0
BEAT_S: Final = 0.05


@dataclass(frozen=True)
class NodesLoad:
    """Every program on every database, before and after a node stops; a crowd stays connected all the while."""

    clients: int

    @property
    def generators(self) -> int:
        """One, and programs for a moment."""
        return ONE_PYTHON

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """Tables for pgbench and for the small program."""
        stand.fill("pgbench", knobs.int("scale"))
        stand.fill("one_row", 1)

    def run(self, scene: Scene) -> Outcome:
        """All visits, one after the other. `cut_off` are clients of the crowd whose connection was lost."""
        with scene.meter.interval(), crowd(scene, self.clients) as members:
            before = self._visits(scene, 0)
            stop_a_node(scene)
            after = self._visits(scene, len(before))
        visits = [*before, *after]
        times = np.array([one.milliseconds for one in visits if one.succeeded], np.float32)
        figures = {
            "succeeded": float(len(times)),
            "failed": float(len(visits) - len(times)),
            "failed_before": float(sum(not one.succeeded for one in before)),
            "failed_after": float(sum(not one.succeeded for one in after)),
            "cut_off": float(sum(bool(member.error) for member in members)),
            "not_back": float(sum(member.lost_s is not None for member in members)),
            "back_ms": max(member.back_ms for member in members),
        }
        crowded = [member.outcome(len(visits) + at) for at, member in enumerate(members)]
        return Outcome(figures, len(times), times, [*visits, *crowded])

    def _visits(self, scene: Scene, first: int) -> list[ClientOutcome]:
        """Each program to each database, and that again."""
        every = [(program, dbname) for _ in range(ROUNDS) for dbname in DATABASES for program in PROGRAMS]
        return [self._visit(scene, *one, number) for number, one in enumerate(every, first)]

    def _visit(self, scene: Scene, program: str, dbname: str, number: int) -> ClientOutcome:
        began_s = time.monotonic()
        try:
            PROGRAMS[program](scene, dbname, self.clients)
        except (RuntimeError, psycopg.Error) as error:
            said = REASON.search(str(error))
            text = f"{program} on {dbname}: {said[0] if said else str(error).strip()}"
            return ClientOutcome(number, False, milliseconds_since(began_s), text)
        return ClientOutcome(number, True, milliseconds_since(began_s))


def by_psql(scene: Scene, dbname: str, clients: int) -> None:
    """psql asks one question."""
    target = scene.opened.address(dbname)
    answer = run([scene.stand.programs["psql"], "-XAtqc", STANDBY], unprivileged(), env=target.env())
    expect(dbname, answer.strip())


def by_pgbench(scene: Scene, dbname: str, clients: int) -> None:
    """pgbench, read-only on the standby."""
    argv: list[str | Path] = [scene.stand.programs["pgbench"], "-n", "-c", str(clients), "-t", str(TRANSACTIONS)]
    reading = ["-S"] if dbname == "reader" else []
    run([*argv, *reading], unprivileged(), env=scene.opened.address(dbname).env())


def by_psycopg(scene: Scene, dbname: str, clients: int) -> None:
    """A small program: asks, and writes where one may."""
    with psycopg.connect(conninfo(scene.opened.address(dbname))) as connection:
        row = connection.execute(STANDBY).fetchone()
        expect(dbname, str(row and row[0]))
        if dbname == "writer":
            connection.execute("update one_row set word = 'one' where id = 1")


def expect(dbname: str, answer: str) -> None:
    """RuntimeError when a database turns out to be another server's."""
    if answer != DATABASES[dbname]:
        raise RuntimeError(f"{dbname} answers {answer!r} to {STANDBY}")


PROGRAMS: Final[Mapping[str, Callable[[Scene, str, int], None]]] = {
    "psql": by_psql,
    "pgbench": by_pgbench,
    "psycopg": by_psycopg,
}


@dataclass
class Member:
    """One client that stays, asks every moment, and connects anew when it is cut off."""

    info: str
    error: str = ""  # what it was told when it was cut off first
    lost_s: float | None = None  # since when it is without a connection
    back_ms: float = 0.0  # the longest it was

    def stay(self, over: threading.Event) -> None:
        """Until all is over."""
        while not over.is_set():
            try:
                with Link(self.info) as link:
                    while not over.is_set():
                        link.ask(b"select 1")
                        if self.lost_s is not None:
                            self.back_ms = max(self.back_ms, milliseconds_since(self.lost_s))
                            self.lost_s = None
                        over.wait(BEAT_S)
            except LinkLost as lost:
                self.error = self.error or str(lost)
                self.lost_s = self.lost_s or time.monotonic()
                over.wait(BEAT_S)

    def outcome(self, number: int) -> ClientOutcome:
        """How it fared."""
        return ClientOutcome(number, not self.error, self.back_ms, self.error)


@contextmanager
def crowd(scene: Scene, count: int) -> Iterator[Sequence[Member]]:
    """Clients that stay, in turn on each database; they leave with the block."""
    infos = [conninfo(scene.opened.address(dbname)) for dbname in DATABASES]
    members = [Member(infos[number % len(infos)]) for number in range(count)]
    over = threading.Event()
    threads = [threading.Thread(target=member.stay, args=(over,)) for member in members]
    for thread in threads:
        thread.start()
    try:
        yield members
    finally:
        over.set()
        for thread in threads:
            thread.join()


def stop_a_node(scene: Scene) -> None:
    """Ends the last of several nodes at once; a single one goes on."""
    if scene.cell.target.nodes < 2:
        return
    *_, (name, pid) = scene.opened.roots().items()
    os.kill(pid, signal.SIGQUIT)
    limit_s = time.monotonic() + STOP_LIMIT_S
    while not gone(pid):
        if time.monotonic() > limit_s:
            raise RuntimeError(f"{name} (process {pid}) does not end")
        time.sleep(BEAT_S)


def gone(pid: int) -> bool:
    """Whether a process has ended, buried or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
