"""The ledger: what every worker of the fleet holds of every limit, in memory that all share.

A cell is written by its own seat only, or by the supervisor once the seat's process is dead; so whoever is killed
wherever, every number stays true. Decisions are made under a lock that the kernel frees when its holder dies. Nothing
is concluded from numbers read without the lock except where they may be old: memory is ordered by the lock alone.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from pgshoal.policy import budget
from pgshoal.policy.budget import Cell as Cell


class Kind(IntEnum):
    """What a limit counts."""

    POOL = 1
    DATABASE = 2
    USER = 3
    CLIENTS = 4
    DATABASE_CLIENTS = 5
    USER_CLIENTS = 6
    PEER = 7  # cancel requests on their way to another node


@dataclass(frozen=True, slots=True)
class Want:
    """A slot of a row, if that has one below `limit`; 0 = no limit, but counted."""

    row: int
    limit: int


class LedgerFull(Exception):
    """There is no row left for a limit, or the ledger cannot be used at all."""


MAX_SEATS: Final = 127
MAX_ID: Final = 2**31 - 1
#: A seat whose heart has not beaten for this long, or that has not repeated its wish, is not waited for.
AWAKE_US: Final = 2_000_000
#: Holders are rung again for the same wish after this time.
RING_AGAIN_US: Final = 100_000
#: How long the lock is tried for. Its holders need microseconds, unless they were stopped just there.
LOCK_S: Final = 0.004
#: The same for what cannot be put off: finding a row, and new ids.
PATIENT_LOCK_S: Final = 0.25

# The layout. Addresses are in units of 4 bytes, or of 8 where the name says so.
_MAGIC: Final = 0x5047_5348_4F41_4C00
_VERSION: Final = 1
_MAGIC_64, _NEXT_ID_64 = 0, 1
_VERSION_AT, _SEATS_AT, _MADE_AT, _FLEET_AT = 4, 5, 6, 7
_NUMBER, _STATE, _WAITS = 16, 16 + 128, 16 + 256  # one word a seat; the number is stored plus one
_HEART_64 = (16 + 384) // 2
_ROWS: Final = 65_536
# A row never leaves the bucket of its key's hash: it can get another key of the same bucket, with one write.
_BUCKETS, _BUCKET_ROWS = 1024, 128
_INDEX: Final = 1024
_KINDS: Final = _INDEX + _BUCKETS * _BUCKET_ROWS
_KEYS: Final = _KINDS + _ROWS
_CELLS: Final = _KEYS + 4 * _ROWS
_FREE, _LIVING, _DEAD = 0, 1, 2
_MAY, _ANYBODY = -1, 0  # why a slot is refused: not; all are taken; n + 1: worker n has its part


@dataclass(slots=True)
class _Wish:
    """What clients of this seat wait for: in the first row that refuses them, -1 while none is known to."""

    row: int = -1
    scope: int = _ANYBODY
    waiting: int = 0
    since_us: int = 0
    rung_us: int = 0


class Ledger:
    """One process's view of the ledger. Not for several threads: the lock is the process's."""

    def __init__(self, fd: int, bells: Sequence[int], seat: int) -> None:
        self.fd, self.bells, self.seat, self.seats = fd, tuple(bells), seat, len(bells)
        self._width = self.seats + self.seats % 2
        # used, waiting, interest, scope: 4 bytes each; since, asked, took: 8
        self._stride = self._width * 10
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._bytes = memoryview(self._map)
        self._u32, self._u64 = self._bytes.cast("I"), self._bytes.cast("Q")
        self._nobody = bytes(4 * self.seats)
        self._unused = bytes(4 * 3 * self._width)
        self._now_us = 0
        self._held: set[int] = set()
        self._wishes: dict[tuple[int, ...], _Wish] = {}

    @classmethod
    def create(cls, seats: int) -> Ledger:
        """A new ledger, for the supervisor."""
        if not 0 < seats <= MAX_SEATS:
            raise ValueError(f"a fleet has 1 to {MAX_SEATS} seats, not {seats}")
        fd = os.memfd_create("pgshoal ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # Most of it is never touched and takes no memory.
        os.ftruncate(fd, 4 * (_CELLS + _ROWS * 10 * (seats + seats % 2)))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        bells = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(seats)]
        ledger = cls(fd, bells, -1)
        ledger._u32[_VERSION_AT], ledger._u32[_SEATS_AT] = _VERSION, seats
        ledger._u64[_NEXT_ID_64] = 1
        ledger._u64[_MAGIC_64] = _MAGIC
        ledger.set_fleet(1, False)
        return ledger

    @classmethod
    def attach(cls, fd: int, bells: Sequence[int], seat: int) -> Ledger:
        """The ledger behind an inherited descriptor. The descriptors stay the caller's: close() leaves them open."""
        size = os.fstat(fd).st_size
        if size < 4 * _CELLS:
            raise ValueError(f"descriptor {fd} is no ledger: {size} bytes")
        ledger = cls(fd, bells, seat)
        found = ledger._u64[_MAGIC_64], ledger._u32[_VERSION_AT], ledger._u32[_SEATS_AT]
        if found != (_MAGIC, _VERSION, len(bells)) or not -1 <= seat < len(bells):
            ledger.close()
            raise ValueError(f"no ledger of version {_VERSION} with seat {seat} of {len(bells)}: {found}")
        return ledger

    def close(self) -> None:
        """Unmap it. The descriptors are left to the process's end, or to `close_descriptors`."""
        for view in (self._u32, self._u64, self._bytes):
            view.release()
        # Closing any descriptor of the memfd, the mapping's own too, drops this process's lock; nobody holds it here.
        self._map.close()

    def close_descriptors(self) -> None:
        """For its creator, when the fleet has ended."""
        for fd in (self.fd, *self.bells):
            os.close(fd)

    # The lock.
    #
    # A POSIX record lock belongs to the process: a child never inherits it, exec keeps its owner, and the kernel frees
    # it when the process dies, however many descriptors others have of this file. (F_OFD_SETLK locks belong to the
    # open file description, which all workers inherit from the supervisor: it would shut nobody out, and a lock could
    # outlive its holder in a child that was forked meanwhile.) Danger: the process loses the lock as soon as it closes
    # ANY descriptor of the memfd. So nothing is opened or closed between _lock and _unlock, and only one thread may
    # use the ledger.

    def _lock(self, patience_s: float = LOCK_S) -> bool:
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
            return True
        except OSError:
            return self._lock_busy(patience_s)

    def _lock_busy(self, patience_s: float) -> bool:
        end_s = time.monotonic() + patience_s
        tries = 0
        while time.monotonic() < end_s:
            tries += 1
            if tries < 20:
                os.sched_yield()
            else:
                time.sleep(0.0001)
            with suppress(OSError):
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
                return True
        return False

    def _unlock(self) -> None:
        fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, 0, 0)

    # The fleet and its seats.

    @property
    def workers(self) -> int:
        """Among how many workers limits are shared."""
        return max(1, self._u32[_FLEET_AT] >> 1)

    @property
    def static(self) -> bool:
        """Whether limits are divided instead of shared."""
        return bool(self._u32[_FLEET_AT] & 1)

    def set_fleet(self, workers: int, static: bool) -> None:
        """How limits are shared, and among how many; the supervisor's to say."""
        self._u32[_FLEET_AT] = workers << 1 | static

    def occupy(self, seat: int, number: int) -> None:
        """The supervisor: a process of worker `number` is about to use the seat."""
        self._u64[_HEART_64 + seat] = 0
        self._u32[_NUMBER + seat] = number + 1
        self._u32[_STATE + seat] = _LIVING

    def vacate(self, seat: int) -> None:
        """The supervisor: its process is dead. What it has of servers stays counted until it is given back for it."""
        u32 = self._u32
        u32[_STATE + seat] = _DEAD
        u32[_WAITS + seat] = 0
        self._u64[_HEART_64 + seat] = 0
        for row in range(u32[_MADE_AT]):
            at = self._base(row) + seat
            u32[at + self._width] = u32[at + 2 * self._width] = 0
            if u32[_KINDS + row] >= Kind.CLIENTS:
                u32[at] = 0
        self._ring_all()

    def free(self, seat: int) -> bool:
        """Whether the seat can be given to a process: it has none, and nothing is counted for it any more."""
        if self._u32[_STATE + seat] == _LIVING:
            return False
        return not any(self._u32[self._base(row) + seat] for row in range(self._u32[_MADE_AT]))

    def beat(self, now_us: int) -> None:
        """This seat's process lives; to be called three times a second."""
        self._now_us = now_us
        self._u64[_HEART_64 + self._own_seat()] = now_us

    # Rows.

    def row(self, kind: Kind, name: str, user: str = "") -> int:
        """Find or make the row of a limit, and keep it until `forget` is called as often."""
        key = blake2b(f"{int(kind)}\0{name}\0{user}".encode("utf-8", "surrogateescape"), digest_size=16).digest()
        if not self._lock(PATIENT_LOCK_S):
            raise LedgerFull(f"the ledger is held by a stopped process (wanted: {kind.name} {name} {user})".rstrip())
        try:
            row = self._find(key)
            if row < 0:
                raise LedgerFull(
                    f"no room in the ledger for {kind.name.lower().replace('_', ' ')} {name} {user}".rstrip()
                )
            self._u32[_KINDS + row] = kind
            if self.seat >= 0:
                self._u32[self._base(row) + 2 * self._width + self.seat] += 1
        finally:
            self._unlock()
        return row

    def _find(self, key: bytes) -> int:
        """The row with the key, else an unused one of its bucket, else a new one, else -1; under the lock."""
        u32 = self._u32
        start = _INDEX + int.from_bytes(key[:4], "little") % _BUCKETS * _BUCKET_ROWS
        unused = -1
        for slot in range(start, start + _BUCKET_ROWS):
            row = u32[slot] - 1
            if row < 0:
                break
            at = 4 * (_KEYS + 4 * row)
            if self._map[at : at + 16] == key:
                return row
            if unused < 0 and self._is_unused(row):
                unused = row
        else:
            slot = -1
        if unused < 0:
            unused = u32[_MADE_AT]
            if slot < 0 or unused >= _ROWS:
                return -1
            # In this order: whoever is killed between two of these steps loses a row, no more.
            u32[_MADE_AT] = unused + 1
            u32[slot] = unused + 1
        at = 4 * (_KEYS + 4 * unused)
        self._bytes[at : at + 16] = key
        return unused

    def _is_unused(self, row: int) -> bool:
        at = 4 * self._base(row)
        return self._map[at : at + len(self._unused)] == self._unused

    def forget(self, row: int) -> None:
        """This seat has no more use for the row, as often as `row` returned it; then nobody here waits in it."""
        at = self._base(row) + 2 * self._width + self._own_seat()
        if self._u32[at]:
            self._u32[at] -= 1
        if not self._u32[at]:
            for key in [key for key in self._wishes if row in key]:
                self._withdraw(key)

    # Slots of servers.

    def take(self, wants: Sequence[Want], now_us: int, since_us: int = 0) -> bool:
        """Take one slot in each row, or none. The first row that refuses notes that this seat waits.

        `since_us`: since when the client waits for which the server is meant; 0: nobody, then all who wait come first.
        False can also mean that the lock was not to be had: ask again a little later.
        """
        self._now_us = now_us
        seat = self._own_seat()
        key = tuple([want.row for want in wants])
        rung: set[int] = set()
        if not self._lock():
            return False
        try:
            row, scope = self._refusal(wants, now_us, since_us)
            if scope == _MAY:
                for want in wants:
                    at = self._base(want.row)
                    self._u32[at + seat] += 1
                    self._u64[(at >> 1) + 4 * self._width + seat] = now_us
                    rung.update(self._others_waiting(want.row))
                self._held.update(key)
                self._served(key)
            elif since_us:
                wish = self._wishes.get(key)
                rung = self._wish(key, row, scope, max(1, wish.waiting if wish else 1), since_us)
        finally:
            self._unlock()
        self._ring(rung)
        return scope == _MAY

    def wait(self, wants: Sequence[Want], waiting: int, since_us: int) -> None:
        """Clients of this seat, the oldest since `since_us`, wait for servers beyond those under way; 0: no more."""
        key = tuple([want.row for want in wants])
        locked = self._lock()
        try:
            if waiting <= 0 or not since_us:
                rung = self._withdraw(key)
            else:
                rung = self._wish(key, *self._refusal(wants, self._now_us, since_us), waiting, since_us)
        finally:
            if locked:
                self._unlock()
        self._ring(rung)

    def give(self, rows: Sequence[int]) -> None:
        """Give one slot of each row back: its server is gone. Never fails; those who wait are rung."""
        seat = self._own_seat()
        for row in rows:
            if self._lower(row, seat) == 0:
                self._held.discard(row)
        self._ring_waiting(rows)

    def give_for(self, seat: int, rows: Sequence[int]) -> None:
        """The supervisor: one server of a dead seat is gone."""
        for row in rows:
            self._lower(row, seat)
        self._ring_waiting(rows)

    def settle(self, seat: int, left: Mapping[int, int]) -> None:
        """The supervisor: no more servers of a dead seat exist than `left` (row: count); nothing is ever raised.

        Its process may have been killed between two numbers that belong together, so what it counted can be too
        much for the servers that it left, or already without one whose end the supervisor has not heard of.
        """
        lowered = []
        for row in range(self._u32[_MADE_AT]):
            at = self._base(row) + seat
            if self._u32[at] > left.get(row, 0):
                self._u32[at] = left.get(row, 0)
                lowered.append(row)
        self._ring_waiting(lowered)

    def own(self, row: int) -> int:
        """What this seat has of the row."""
        return self._u32[self._base(row) + self._own_seat()]

    def used(self, row: int) -> int:
        """What all have of the row."""
        at = self._base(row)
        return sum(self._u32[at : at + self.seats])

    def cells(self, row: int) -> list[Cell]:
        """What every seat has of the row, those left out that have no process and nothing counted."""
        return self._cells(row, self._clock_us())

    def demands(self) -> list[int]:
        """The rows of which this seat holds slots and in which another waits that could use them."""
        u32 = self._u32
        if not any(u32[_WAITS + seat] for seat in range(self.seats) if seat != self.seat):
            return []
        return [row for row in self._held if self._others_waiting(row, heard=True)]

    def gives_way(self, row: int, limit: int, leaving: int = 0, idle_us: int | None = None) -> budget.Verdict:
        """`budget.gives_way` for this seat, by the way the fleet shares its limits."""
        now_us, seat = self._clock_us(), self._own_seat()
        cells, limit, workers = self._sharers(self._cells(row, now_us), limit)
        return budget.gives_way(cells, seat, limit, workers, now_us, leaving, idle_us)

    # Slots of clients.

    def admit(self, row: int, limit: int) -> bool:
        """Count one more client of this seat, unless the fleet has `limit` already; 0 = no limit."""
        at = self._base(row)
        own = at + self._own_seat()
        if limit <= 0:
            self._u32[own] += 1
            return True
        if not self._lock():
            return self._admit_unlocked(at, own, limit)
        try:
            if sum(self._u32[at : at + self.seats]) >= limit:
                return False
            self._u32[own] += 1
            return True
        finally:
            self._unlock()

    def _admit_unlocked(self, at: int, own: int, limit: int) -> bool:
        """Somebody was stopped with the lock: go on as long as the limit is far.

        First count, then look: from then on all others see this client. The margin is for what others have
        decided but not yet written, and for what is still on its way to memory.
        """
        self._u32[own] += 1
        if sum(self._u32[at : at + self.seats]) + 8 * self.seats <= limit:
            return True
        self._u32[own] -= 1
        return False

    def leave(self, row: int) -> None:
        """A client of this seat that was admitted is gone."""
        self._lower(row, self._own_seat())

    def reserve_ids(self, count: int) -> int:
        """The first of `count` ids that nobody else in the fleet gets before they have gone round."""
        if not self._lock(PATIENT_LOCK_S):
            raise LedgerFull("the ledger is held by a stopped process (wanted: ids)")
        try:
            first = self._u64[_NEXT_ID_64]
            if first + count - 1 > MAX_ID:
                first = 1
            self._u64[_NEXT_ID_64] = first + count
            return first
        finally:
            self._unlock()

    # Bells.

    def ring(self, seat: int) -> None:
        """Tell a seat to look at the ledger."""
        with suppress(BlockingIOError):  # rung more often than it can count: it will look
            os.eventfd_write(self.bells[seat], 1)

    def drain_bell(self) -> None:
        """Take note of this seat's bell."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.bells[self._own_seat()])

    def _ring(self, seats: Iterable[int]) -> None:
        for seat in seats:
            self.ring(seat)

    def _ring_all(self) -> None:
        self._ring(s for s in range(self.seats) if s != self.seat and self._u32[_STATE + s] == _LIVING)

    def _ring_waiting(self, rows: Sequence[int]) -> None:
        # Under the lock, or a seat that registers its wish at this moment may see the old number and not be seen.
        if not self._lock():
            self._ring_all()
            return
        try:
            rung = {seat for row in rows for seat in self._others_waiting(row)}
        finally:
            self._unlock()
        self._ring(rung)

    # Below: addresses, cells and wishes.

    def _own_seat(self) -> int:
        if self.seat < 0:
            raise RuntimeError("the supervisor has no seat")
        return self.seat

    def _base(self, row: int) -> int:
        return _CELLS + row * self._stride

    def _lower(self, row: int, seat: int) -> int:
        at = self._base(row) + seat
        left = self._u32[at]
        if left:
            left -= 1
            self._u32[at] = left
        return left

    def _clock_us(self) -> int:
        """The time, as the youngest heart knows it."""
        return max(self._now_us, *self._u64[_HEART_64 : _HEART_64 + self.seats])

    def _others_waiting(self, row: int, heard: bool = False) -> list[int]:
        """The other seats that wait in a row; `heard`: only those that this seat could do something for."""
        at = self._base(row) + self._width
        if self._map[4 * at : 4 * (at + self.seats)] == self._nobody:
            return []
        u32 = self._u32
        scopes = (_ANYBODY, u32[_NUMBER + self.seat]) if heard else range(MAX_SEATS + 2)
        return [
            s for s in range(self.seats) if s != self.seat and u32[at + s] and u32[at + 2 * self._width + s] in scopes
        ]

    def _cells(self, row: int, now_us: int) -> list[Cell]:
        at, width, u32 = self._base(row), self._width, self._u32
        times = (at >> 1) + 2 * width
        cells = []
        for seat in range(self.seats):
            used, waiting, state = u32[at + seat], u32[at + width + seat], u32[_STATE + seat]
            if state != _LIVING and not used:
                continue
            awake = seat == self.seat or (state == _LIVING and now_us - self._u64[_HEART_64 + seat] <= AWAKE_US)
            if waiting and now_us - self._u64[times + width + seat] > AWAKE_US:
                waiting = 0  # it has not asked again: it has forgotten, or may not open servers just now
            since_us = self._u64[times + seat] if waiting else 0
            took_us = self._u64[times + 2 * width + seat]
            cells.append(Cell(seat, used, waiting, since_us, awake, u32[_NUMBER + seat] - 1, took_us))
        return cells

    def _sharers(self, cells: list[Cell], limit: int) -> tuple[list[Cell], int, int]:
        """Those who share a limit elastically, and what they share: all, or with a divided limit one worker's seats."""
        workers = self.workers
        if not self.static or limit < workers:
            return cells, limit, workers
        number = self._u32[_NUMBER + self.seat] - 1
        return [cell for cell in cells if cell.number == number], budget.static_limit(limit, workers, number), 1

    def _refusal(self, wants: Sequence[Want], now_us: int, since_us: int) -> tuple[int, int]:
        """The first row that refuses a slot, and whose slots would help; (-1, _MAY) if none refuses."""
        for want in wants:
            scope = self._refuses(want, now_us, since_us)
            if scope != _MAY:
                return want.row, scope
        return -1, _MAY

    def _refuses(self, want: Want, now_us: int, since_us: int) -> int:
        if want.limit <= 0:
            return _MAY
        divided = self.static and want.limit >= self.workers
        if self.used(want.row) >= want.limit and not divided:
            return _ANYBODY
        at = self._base(want.row) + self._width
        if not divided and self._map[4 * at : 4 * (at + self.seats)] == self._nobody:
            return _MAY
        cells = self._cells(want.row, now_us)
        if not since_us and any(cell.waiting for cell in cells):
            return _ANYBODY
        full = sum(cell.used for cell in cells) >= want.limit
        cells, limit, workers = self._sharers(cells, want.limit)
        cells = [replace(c, waiting=1, since_us=since_us) if c.seat == self.seat else c for c in cells]
        if not budget.may_take(cells, self.seat, limit, workers, now_us):
            return self._u32[_NUMBER + self.seat] if divided else _ANYBODY
        return _ANYBODY if full else _MAY

    def _wish(self, key: tuple[int, ...], row: int, scope: int, waiting: int, since_us: int) -> set[int]:
        """Note what clients wait for; the seats to ring."""
        wish = self._wishes.setdefault(key, _Wish())
        old, new = wish.row, row != wish.row or waiting > wish.waiting
        wish.row, wish.scope, wish.waiting, wish.since_us = row, scope, waiting, since_us
        for changed in {old, row} - {-1}:
            self._write_waiting(changed)
        if row < 0 or not (new or self._now_us - wish.rung_us >= RING_AGAIN_US):
            return set()
        wish.rung_us = self._now_us
        at = self._base(row)
        return {seat for seat in range(self.seats) if seat != self.seat and self._u32[at + seat]}

    def _served(self, key: tuple[int, ...]) -> None:
        wish = self._wishes.get(key)
        if wish is None:
            return
        wish.waiting -= 1
        if wish.waiting <= 0:
            self._withdraw(key)
        elif wish.row >= 0:
            self._write_waiting(wish.row)

    def _withdraw(self, key: tuple[int, ...]) -> set[int]:
        """Nobody waits for these any more; the seats that may come first now."""
        wish = self._wishes.pop(key, None)
        if wish is None or wish.row < 0:
            return set()
        self._write_waiting(wish.row)
        return set(self._others_waiting(wish.row))

    def _write_waiting(self, row: int) -> None:
        """All that wait in a row, as this seat's cell says it."""
        wishes = [wish for wish in self._wishes.values() if wish.row == row]
        at, width, seat = self._base(row), self._width, self._own_seat()
        times = (at >> 1) + 2 * width + seat
        self._u64[times] = min((wish.since_us for wish in wishes), default=0)
        self._u64[times + width] = self._now_us
        self._u32[at + 3 * width + seat] = wishes[0].scope if wishes else _ANYBODY
        self._u32[at + width + seat] = sum(wish.waiting for wish in wishes)
        self._u32[_WAITS + seat] = len({wish.row for wish in self._wishes.values()} - {-1})
