"""The ledger as one process sees it: rows, seats, wishes, bells, clients, ids."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import pytest

from pgshoal.fleet.ledger import Kind, Ledger, LedgerFull, Want
from pgshoal.fleet.ledger import memory as layout

NOW = 50_000_000


@pytest.fixture
def supervisor() -> Iterator[Ledger]:
    """A ledger of six seats for three workers, limits shared elastically."""
    ledger = Ledger.create(6)
    ledger.set_fleet(3, False)
    yield ledger
    ledger.close()
    ledger.close_descriptors()


@pytest.fixture
def seats(supervisor: Ledger) -> Iterator[list[Ledger]]:
    """Three workers, awake."""
    ledgers = []
    for number in range(3):
        supervisor.occupy(number, number)
        ledgers.append(Ledger.attach(supervisor.fd, supervisor.bells, number))
        ledgers[-1].beat(NOW)
    yield ledgers
    for ledger in ledgers:
        ledger.close()


def rung(ledgers: Sequence[Ledger]) -> list[int]:
    """The seats whose bells have been rung; they are silent then."""
    found = []
    for ledger in ledgers:
        try:
            os.eventfd_read(ledger.bells[ledger.seat])
        except BlockingIOError:
            continue
        found.append(ledger.seat)
    return found


def test_only_a_ledger_is_attached(supervisor: Ledger) -> None:
    """Another file, another number of seats, or a seat that does not exist, is refused."""
    with open("/dev/null") as other, pytest.raises(ValueError, match="no ledger"):
        Ledger.attach(other.fileno(), supervisor.bells, 0)
    with pytest.raises(ValueError, match="5 seats"):
        Ledger.attach(supervisor.fd, supervisor.bells[:5], 0)
    with pytest.raises(ValueError, match="seat 6 of 6"):
        Ledger.attach(supervisor.fd, supervisor.bells, 6)
    supervisor._memory.u32[4] += 1
    with pytest.raises(ValueError, match="version"):
        Ledger.attach(supervisor.fd, supervisor.bells, 0)


def test_the_memory_cannot_be_pulled_away(supervisor: Ledger) -> None:
    """The memfd is sealed, so that no process can shrink it under the others; and it hardly takes memory."""
    with pytest.raises(PermissionError):
        os.ftruncate(supervisor.fd, 4096)
    assert os.fstat(supervisor.fd).st_blocks * 512 < 100_000
    assert not os.get_inheritable(supervisor.fd)


def test_a_row_is_one_limit_for_all(seats: list[Ledger]) -> None:
    """Everybody finds the same row for a name, and no two names share one."""
    names = [(Kind.POOL, "d", "u"), (Kind.POOL, "du", ""), (Kind.DATABASE, "d", ""), (Kind.DATABASE_CLIENTS, "d", "")]
    rows = [seats[0].row(*name) for name in names]
    assert [seats[1].row(*name) for name in reversed(names)] == rows[::-1]
    assert len(set(rows)) == len(names)
    assert seats[2].row(Kind.DATABASE, "not \udcff utf8") not in rows


def same_bucket(count: int) -> list[str]:
    """Names whose keys are kept in one bucket."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        name = f"d{number}"
        key = blake2b(f"{int(Kind.DATABASE)}\0{name}\0".encode(), digest_size=16).digest()
        if int.from_bytes(key[:4], "little") % layout._BUCKETS == 7:
            found.append(name)
        number += 1
    return found


def test_a_row_nobody_needs_serves_another_limit(seats: list[Ledger]) -> None:
    """Used, waited for or of interest to anybody: kept. Otherwise the next name of the bucket gets it."""
    first, second, third = same_bucket(3)
    row = seats[0].row(Kind.DATABASE, first)
    assert seats[1].row(Kind.DATABASE, first) == seats[1].row(Kind.DATABASE, first) == row
    assert seats[0].take([Want(row, 5)], NOW, NOW)
    seats[0].forget(row)
    seats[1].forget(row)
    assert seats[0].row(Kind.DATABASE, second) != row
    seats[1].forget(row)
    assert seats[1].row(Kind.DATABASE, first) == row  # still counted
    seats[1].forget(row)
    seats[0].give([row])
    assert seats[2].row(Kind.DATABASE, third) == row
    assert seats[2].used(row) == 0


def test_a_full_ledger_says_for_what(supervisor: Ledger, seats: list[Ledger]) -> None:
    """No room is an error that names the limit, and takes nothing from those that have a row."""
    supervisor._memory.u32[layout._MADE_AT] = layout.MAX_ROWS
    with pytest.raises(LedgerFull, match="no room in the ledger for pool shop anna"):
        seats[0].row(Kind.POOL, "shop", "anna")
    supervisor._memory.u32[layout._MADE_AT] = 0
    seats[0].row(Kind.POOL, "shop", "anna")


def test_a_full_bucket_is_full(seats: list[Ledger]) -> None:
    """The last place of a bucket can be used, and the next name is refused until somebody leaves."""
    names = same_bucket(layout._BUCKET_ROWS + 1)
    rows = [seats[0].row(Kind.DATABASE, name) for name in names[:-1]]
    assert len(set(rows)) == layout._BUCKET_ROWS
    with pytest.raises(LedgerFull):
        seats[0].row(Kind.DATABASE, names[-1])
    seats[0].forget(rows[5])
    assert seats[0].row(Kind.DATABASE, names[-1]) == rows[5]


def test_all_rows_or_none(seats: list[Ledger]) -> None:
    """One limit that is reached refuses the whole attempt."""
    pool, database = seats[0].row(Kind.POOL, "d", "u"), seats[0].row(Kind.DATABASE, "d")
    assert seats[0].take([Want(pool, 5), Want(database, 1)], NOW, NOW)
    assert not seats[0].take([Want(pool, 5), Want(database, 1)], NOW, NOW)
    assert (seats[0].own(pool), seats[0].own(database)) == (1, 1)
    seats[0].give([pool, database])
    assert (seats[1].used(pool), seats[1].used(database)) == (0, 0)


def test_a_refusal_is_heard_where_it_happened(seats: list[Ledger]) -> None:
    """The seat waits in the row that refused it and in no other, and those who hold its slots are rung."""
    a, b, c = seats
    pool, database = a.row(Kind.POOL, "d", "u"), a.row(Kind.DATABASE, "d")
    wants = [Want(pool, 5), Want(database, 1)]
    assert a.take(wants, NOW, NOW)
    assert not b.take(wants, NOW, NOW - 5)
    assert rung(seats) == [0]
    assert a.demands() == [database]
    assert c.demands() == []
    waiting = {cell.seat: (cell.waiting, cell.since_us) for cell in a.cells(database)}
    assert waiting == {0: (0, 0), 1: (1, NOW - 5), 2: (0, 0)}
    assert not b.take(wants, NOW + 1, NOW - 5)
    assert rung(seats) == []  # they know
    assert not b.take(wants, NOW + 200_000, NOW - 5)
    assert rung(seats) == [0]
    a.give([pool, database])
    assert rung(seats) == [1]
    assert b.take(wants, NOW, NOW - 5)
    assert not any(cell.waiting for cell in a.cells(database))


def test_wishes_that_meet_in_a_row_are_added(seats: list[Ledger]) -> None:
    """Two pools of one database: their clients together, and the oldest of them; each is withdrawn alone."""
    a, b, _ = seats
    database = a.row(Kind.DATABASE, "d")
    pools = [a.row(Kind.POOL, "d", user) for user in ("u", "v")]
    a.take([Want(database, 1)], NOW, NOW)
    wants = [[Want(pool, 5), Want(database, 1)] for pool in pools]
    b.wait(wants[0], 2, NOW - 10)
    b.wait(wants[1], 3, NOW - 20)
    assert [(c.waiting, c.since_us) for c in a.cells(database) if c.seat == 1] == [(5, NOW - 20)]
    b.wait(wants[1], 0, 0)
    assert [(c.waiting, c.since_us) for c in a.cells(database) if c.seat == 1] == [(2, NOW - 10)]
    b.forget(database)
    assert [(c.waiting, c.since_us) for c in a.cells(database) if c.seat == 1] == [(0, 0)]
    assert a.demands() == []


def test_a_declared_wish_and_a_refusal_are_one(seats: list[Ledger]) -> None:
    """Whoever says that three wait and then asks in vain still has three waiting, in whatever rows it said so."""
    a, b, _ = seats
    pool, database = a.row(Kind.POOL, "d", "u"), a.row(Kind.DATABASE, "d")
    a.take([Want(database, 1)], NOW, NOW)
    b.wait([Want(database, 0)], 3, NOW - 10)
    assert not b.take([Want(pool, 5), Want(database, 1)], NOW, NOW - 10)
    assert [c.waiting for c in a.cells(database)] == [0, 3, 0]


def test_a_standing_wish_lives_with_the_heart_and_others_fade(seats: list[Ledger]) -> None:
    """What was declared stands until it is withdrawn; a single attempt is forgotten if it is not made again."""
    a, b, c = seats
    row = a.row(Kind.DATABASE, "d")
    a.take([Want(row, 1)], NOW, NOW)
    b.wait([Want(row, 1)], 1, NOW)
    c.take([Want(row, 1)], NOW, NOW)
    assert [cell.waiting for cell in a.cells(row)] == [0, 1, 1]
    for later in range(NOW, NOW + 5_000_000, 300_000):
        for ledger in seats:
            ledger.beat(later)
    assert [cell.waiting for cell in a.cells(row)] == [0, 1, 0]


def test_a_stopped_seat_is_not_waited_for(seats: list[Ledger]) -> None:
    """Without a heartbeat its wish counts for nothing, what it holds counts on."""
    a, b, c = seats
    row = a.row(Kind.DATABASE, "d")
    assert b.take([Want(row, 2)], NOW, NOW)
    assert a.take([Want(row, 2)], NOW, NOW)
    b.wait([Want(row, 2)], 1, NOW - 1_000_000)
    a.give([row])
    assert not c.take([Want(row, 2)], NOW, 0)
    later = NOW + layout.AWAKE_US + 1
    c.beat(later)
    assert [cell.awake for cell in c.cells(row)] == [False, False, True]
    assert c.take([Want(row, 2)], later, 0)
    assert not c.take([Want(row, 2)], later, later)


def test_a_dead_process_leaves_only_what_it_holds_of_servers(supervisor: Ledger, seats: list[Ledger]) -> None:
    """Its clients, wishes and interest go at once; its slots when its backends are gone; then the seat is free."""
    a, b, c = seats
    row, everybody = a.row(Kind.DATABASE, "d"), a.row(Kind.CLIENTS, "")
    for _ in range(2):
        assert a.take([Want(row, 2)], NOW, NOW)
    assert a.admit(everybody, 1)
    assert not b.admit(everybody, 1)
    a.wait([Want(row, 2)], 1, NOW - 5)
    b.wait([Want(row, 2)], 1, NOW)
    assert not supervisor.free(0)
    rung(seats)
    supervisor.vacate(0)
    assert rung(seats) == [1, 2]
    assert b.admit(everybody, 1)
    assert [(cell.seat, cell.used, cell.awake) for cell in b.cells(row)] == [(0, 2, False), (1, 0, True), (2, 0, True)]
    assert not supervisor.free(0)
    supervisor.settle(0, {row: 1})
    assert rung(seats) == [1]
    assert b.take([Want(row, 2)], NOW, NOW)
    supervisor.give_for(0, [row])
    supervisor.give_for(0, [row])
    assert supervisor.free(0)
    assert c.used(row) == 1


def test_static_parts(supervisor: Ledger, seats: list[Ledger]) -> None:
    """Each worker its part, the remainder to the lowest; a limit below the number of workers is for all."""
    supervisor.set_fleet(3, True)
    database, user = seats[0].row(Kind.DATABASE, "d"), seats[0].row(Kind.USER, "u")
    held = [sum(seat.take([Want(database, 8)], NOW, NOW) for _ in range(9)) for seat in seats]
    assert held == [3, 3, 2]
    # Nobody else could help who has used up its part.
    rung(seats)
    seats[2].wait([Want(database, 8)], 5, NOW)
    assert seats[0].demands() == []
    assert sum(seats[2].take([Want(user, 2)], NOW, NOW) for _ in range(9)) == 2
    assert not seats[0].take([Want(user, 2)], NOW, NOW)
    assert seats[2].demands() == [user]


def test_two_processes_of_one_worker_have_one_static_part(supervisor: Ledger, seats: list[Ledger]) -> None:
    """While a worker is replaced its part does not double, and its old process gives way to the new one."""
    supervisor.set_fleet(3, True)
    supervisor.occupy(3, 0)
    new = Ledger.attach(supervisor.fd, supervisor.bells, 3)
    new.beat(NOW)
    row = new.row(Kind.DATABASE, "d")
    assert sum(seats[0].take([Want(row, 6)], NOW, NOW) for _ in range(9)) == 2
    assert not new.take([Want(row, 6)], NOW, NOW)
    assert seats[0].demands() == [row]
    assert seats[0].gives_way(row, 6) in ("idle", "busy")
    seats[0].give([row])
    assert new.take([Want(row, 6)], NOW, NOW)
    new.close()


def test_clients_are_counted_exactly(seats: list[Ledger]) -> None:
    """The fleet has as many as the limit, whoever has them; those that only count may go beyond."""
    everybody = seats[0].row(Kind.CLIENTS, "")
    assert [seats[n % 3].admit(everybody, 4) for n in range(6)] == [True] * 4 + [False] * 2
    seats[2].leave(everybody)
    assert [seat.admit(everybody, 4) for seat in seats] == [True, False, False]
    assert seats[1].admit(everybody, 0)
    assert seats[0].used(everybody) == 5


HOLD = """
import fcntl, sys
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX, 1, 0, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def stuck(fd: int) -> Iterator[None]:
    """Another process holds the lock and does not let go until it is killed."""
    command, pipe = [sys.executable, "-c", HOLD, str(fd)], subprocess.PIPE
    with subprocess.Popen(command, pass_fds=[fd], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


def test_who_holds_the_lock_for_ever_stops_nobody(seats: list[Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken, giving works and rings all, clients come in while their limit is far; then all is well."""
    a, b, c = seats
    row, everybody = a.row(Kind.DATABASE, "d"), a.row(Kind.CLIENTS, "")
    assert a.take([Want(row, 5)], NOW, NOW)
    monkeypatch.setattr("pgshoal.fleet.ledger.PATIENT_LOCK_S", 0.001)
    with stuck(a.fd):
        assert not b.take([Want(row, 5)], NOW, NOW)
        assert not any(cell.waiting for cell in a.cells(row))
        b.wait([Want(row, 5)], 1, NOW)
        rung(seats)
        a.give([row])
        assert rung(seats) == [1, 2]
        assert b.used(row) == 0
        assert a.admit(everybody, 100)
        assert not a.admit(everybody, 2)
        assert a.own(everybody) == 1
        with pytest.raises(LedgerFull, match="stopped process"):
            a.row(Kind.DATABASE, "e")
        spare = [seat.reserve_ids(1000) for seat in (a, a, b, c)]
        assert len({first + n for first in spare for n in range(1000)}) == 4000
        assert all(2**30 <= first < 2**31 - 1000 for first in spare)
    assert b.take([Want(row, 5)], NOW, NOW)


def test_the_lock_is_free_after_every_call(supervisor: Ledger, seats: list[Ledger]) -> None:
    """Also when the ledger is full, and when an attempt is refused."""
    a = seats[0]
    row = a.row(Kind.DATABASE, "d")
    a.take([Want(row, 1)], NOW, NOW)
    a.take([Want(row, 1)], NOW, NOW)
    a.wait([Want(row, 1)], 1, NOW)
    a.give([row])
    a.admit(row, 1)
    a.admit(row, 1)
    a.reserve_ids(1)
    script = "import fcntl,sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)"
    subprocess.run([sys.executable, "-c", script, str(supervisor.fd)], pass_fds=[supervisor.fd], check=True)


def test_ids_are_nobody_elses(seats: list[Ledger]) -> None:
    """Blocks follow each other through the fleet, and begin anew before they would pass 2^31 - 1."""
    assert [seats[n % 3].reserve_ids(1000) for n in range(3)] == [1, 1001, 2001]
    seats[0]._memory.u64[layout._NEXT_ID_64] = 2**31 - 1000
    assert seats[0].reserve_ids(1000) == 2**31 - 1000
    assert seats[1].reserve_ids(1000) == 1


def test_bells(seats: list[Ledger]) -> None:
    """A bell that was rung often is silent after one look, and looking at a silent one is fine."""
    seats[0].ring(1)
    seats[2].ring(1)
    seats[1].drain_bell()
    assert rung(seats) == []
    seats[1].drain_bell()


def test_the_supervisor_has_no_seat(supervisor: Ledger) -> None:
    """It sees rows, and takes nothing."""
    row = supervisor.row(Kind.DATABASE, "d")
    assert supervisor.used(row) == 0
    assert supervisor.demands() == []
    for call in (lambda: supervisor.take([Want(row, 1)], NOW), lambda: supervisor.admit(row, 1), supervisor.drain_bell):
        with pytest.raises(RuntimeError, match="no seat"):
            call()
    assert supervisor.used(row) == 0


def test_lock_and_mapping_do_not_share_a_fate(supervisor: Ledger) -> None:
    """What the code warns of is so: closing any descriptor of the memfd drops the process's lock."""
    fcntl.lockf(supervisor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
    mmap.mmap(supervisor.fd, 4096).close()
    script = "import fcntl,sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)"
    subprocess.run([sys.executable, "-c", script, str(supervisor.fd)], pass_fds=[supervisor.fd], check=True)
