"""Real processes, killed with -9 anywhere in tight loops, also with the lock in their hands."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from pgshoal.fleet.ledger import Kind, Ledger

SEATS, WORKERS, LIMIT, CLIENTS = 8, 3, 4, 7
RUN_S = 3.0
#: Bytes of a file beside the ledger. A worker that has a slot of a server also has the record lock of one of the
#: first LIMIT bytes: if there are more holders than the limit, one finds none free.
#: Each line it reads is a seat, for which it forks a worker, since Python needs longer to start than it gets to live.
WORKER = """
import fcntl, os, random, signal, sys, time
from contextlib import suppress
from pgshoal.fleet.ledger import Kind, Ledger, Want
ledger_fd, check_fd, limit, most_clients, *bells = (int(argument) for argument in sys.argv[1:])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
parent = os.getpid()
def now_us():
    return time.monotonic_ns() // 1000
def lock_one(first, count, taken, chance):
    # One looks at a time, so that bytes can only become free meanwhile: if none is found, all were held at the start.
    fcntl.lockf(check_fd, fcntl.LOCK_EX, 1, 199, 0)
    for byte in chance.sample(range(first, first + count), count):
        if byte not in taken:
            with suppress(BlockingIOError):
                fcntl.lockf(check_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte, 0)
                fcntl.lockf(check_fd, fcntl.LOCK_UN, 1, 199, 0)
                return byte
    os.pwrite(check_fd, b"X", 180)
    os._exit(3)
def work(seat):
    ledger = Ledger.attach(ledger_fd, bells, seat)
    pool, database = ledger.row(Kind.POOL, "d", "u"), ledger.row(Kind.DATABASE, "d")
    everybody = ledger.row(Kind.CLIENTS, "")
    wants = [Want(pool, 6), Want(database, limit)]
    chance, held, inside, beaten = random.Random(os.getpid()), [], [], 0
    os.write(1, b"%d\\n" % os.getpid())
    while True:
        now = now_us()
        if now - beaten > 300_000:
            ledger.beat(now)
            beaten = now
            if os.getppid() != parent:
                os._exit(0)
        if ledger.take(wants, now, now):
            held.append(lock_one(0, limit, held, chance))
        if held and chance.random() < 0.6:
            fcntl.lockf(check_fd, fcntl.LOCK_UN, 1, held.pop(chance.randrange(len(held))), 0)
            ledger.give([pool, database])
        if ledger.admit(everybody, most_clients):
            inside.append(lock_one(100, most_clients, inside, chance))
        if inside and chance.random() < 0.6:
            fcntl.lockf(check_fd, fcntl.LOCK_UN, 1, inside.pop(), 0)
            ledger.leave(everybody)
        ledger.reserve_ids(1)
for line in sys.stdin:
    if os.fork() == 0:
        work(int(line))
"""


@dataclass
class Process:
    """A worker and its seat."""

    seat: int
    pid: int
    pidfd: int


class Fleet:
    """Starts workers and settles those that are dead, as a supervisor does."""

    def __init__(self) -> None:
        self.ledger = Ledger.create(SEATS)
        self.ledger.set_fleet(WORKERS, False)
        self.check_fd = os.memfd_create("check")
        os.ftruncate(self.check_fd, 200)
        fds = [self.ledger.fd, self.check_fd, *self.ledger.bells]
        arguments = [self.ledger.fd, self.check_fd, LIMIT, CLIENTS, *self.ledger.bells]
        command, pipe = [sys.executable, "-c", WORKER, *map(str, arguments)], subprocess.PIPE
        self.forks = subprocess.Popen(command, pass_fds=fds, stdin=pipe, stdout=pipe, bufsize=0)
        self.alive: dict[int, Process] = {}

    def start(self, number: int) -> Process:
        """In any free seat."""
        seat = next(seat for seat in range(SEATS) if self.ledger.free(seat))
        self.ledger.occupy(seat, number)
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        self.forks.stdin.write(b"%d\n" % seat)
        pid = int(self.forks.stdout.readline())
        self.alive[seat] = Process(seat, pid, os.pidfd_open(pid))
        return self.alive[seat]

    def end(self, process: Process) -> None:
        """Kill it and bury what it had; the kernel has freed its locks, so its backends are gone with it."""
        del self.alive[process.seat]
        with suppress(ProcessLookupError):  # it ended itself, and said why
            signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
        select.select([process.pidfd], [], [])
        os.close(process.pidfd)
        self.ledger.vacate(process.seat)
        self.ledger.settle(process.seat, Counter())
        assert self.ledger.free(process.seat)
        assert os.pread(self.check_fd, 1, 180) == b"\0", "a limit was passed"

    def close(self) -> None:
        """All of it."""
        for process in self.alive.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
            os.close(process.pidfd)
        self.forks.communicate()
        self.ledger.close()
        self.ledger.close_descriptors()
        os.close(self.check_fd)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Without workers."""
    fleet = Fleet()
    yield fleet
    fleet.close()


def test_no_kill_passes_a_limit(fleet: Fleet) -> None:
    """Workers die every few milliseconds of their busiest life; nobody ever holds one slot too many, none is lost."""
    chance = random.Random(1)
    workers = [fleet.start(number) for number in range(WORKERS)]
    end_s = time.monotonic() + RUN_S
    killed = 0
    while time.monotonic() < end_s:
        number = chance.randrange(WORKERS)
        time.sleep(chance.random() * 0.02)
        fleet.end(workers[number])
        killed += 1
        workers[number] = fleet.start(number)
    first = fleet.ledger.reserve_ids(1)
    for worker in workers:
        fleet.end(worker)
    assert killed > 10
    assert first > 1000, "they were not busy"
    names = ((Kind.POOL, "d", "u"), (Kind.DATABASE, "d", ""), (Kind.CLIENTS, "", ""))
    assert [fleet.ledger.used(fleet.ledger.row(*name)) for name in names] == [0, 0, 0]


#: Dies inside a call, at the n-th time it writes a number or calls the lock.
DIES = """
import os, signal, sys
from pgshoal.fleet.ledger import Kind, Ledger, Want
ledger_fd, *bells = (int(argument) for argument in sys.argv[1:])
for line in sys.stdin:
    step = int(line)
    pid = os.fork()
    if pid == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
ledger = Ledger.attach(ledger_fd, bells, 0)
class Fuse:
    def __init__(self, view):
        self.view = view
    def __getitem__(self, at):
        return self.view[at]
    def __setitem__(self, at, value):
        global step
        step -= 1
        if step < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.view[at] = value
memory = ledger._memory
memory.u32, memory.u64, memory._bytes = Fuse(memory.u32), Fuse(memory.u64), Fuse(memory._bytes)
ledger.beat(5_000_000)
rows = [ledger.row(Kind.POOL, "d", "u"), ledger.row(Kind.DATABASE, "d")]
wants = [Want(rows[0], 2), Want(rows[1], 2)]
everybody = ledger.row(Kind.CLIENTS, "")
for _ in range(3):
    ledger.take(wants, 5_000_000, 4_000_000)
    ledger.admit(everybody, 2)
ledger.wait(wants, 2, 4_000_000)
ledger.reserve_ids(10)
ledger.give(rows)
ledger.leave(everybody)
for row in rows:
    ledger.forget(row)
os._exit(0)
"""


def test_death_at_every_step_leaves_nothing_behind(fleet: Fleet) -> None:
    """Whichever number was the last to be written: the lock is free, the seat can be emptied, limits hold again."""
    fds, pipe = [fleet.ledger.fd, *fleet.ledger.bells], subprocess.PIPE
    command = [sys.executable, "-c", DIES, *map(str, fds)]
    codes: list[int] = []
    with subprocess.Popen(command, pass_fds=fds, stdin=pipe, stdout=pipe, bufsize=0) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        while 0 not in codes:
            fleet.ledger.occupy(0, 0)
            forks.stdin.write(b"%d\n" % len(codes))
            codes.append(int(forks.stdout.readline()))
            row = fleet.ledger.row(Kind.DATABASE, "d")  # needs the lock
            assert fleet.ledger.used(row) <= 2
            fleet.ledger.vacate(0)
            fleet.ledger.settle(0, {row: 1})
            assert fleet.ledger.used(row) <= 1
            fleet.ledger.settle(0, {})
            assert fleet.ledger.free(0)
            memory = fleet.ledger._memory
            assert all(memory._is_unused(each) for each in memory.rows())
        forks.stdin.close()
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) > 20
    assert len(fleet.ledger._memory.rows()) < 20


def test_a_lock_dies_with_its_holder(fleet: Fleet) -> None:
    """The kernel frees it, even while others have the same file open from the same parent."""
    script = "import fcntl,os,sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX, 1, 0, 0); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(fleet.ledger.fd)], pass_fds=[fleet.ledger.fd], check=False)
    fcntl.lockf(fleet.ledger.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
    fcntl.lockf(fleet.ledger.fd, fcntl.LOCK_UN, 1, 0, 0)
