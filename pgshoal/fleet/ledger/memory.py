"""The ledger's memory: its layout, its lock, its rows and seats, and the bells beside it.

Memory is ordered by the lock alone. Numbers read without it may be old, and nothing is concluded from them that would
be wrong if they were.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from pgshoal.policy.budget import Cell

MAX_SEATS: Final = 127
MAX_ID: Final = 2**31 - 1
MAX_ROWS: Final = 65_536
#: A seat whose heart has not beaten for this long, or whose wish has not been repeated, is not waited for.
AWAKE_US: Final = 2_000_000
#: How long the lock is tried for. Its holders need microseconds, unless they were stopped just there.
LOCK_S: Final = 0.004
#: The same for what cannot be put off: finding a row, and new ids.
PATIENT_LOCK_S: Final = 0.25

#: Whose slots would help who waits: anybody's; n + 1: those of worker n only.
ANYBODY: Final = 0
FREE, LIVING, DEAD = 0, 1, 2

# The layout, in units of 4 bytes, or of 8 where the name says so.
_MAGIC: Final = 0x5047_5348_4F41_4C00
_VERSION: Final = 1
_MAGIC_64, _NEXT_ID_64 = 0, 1
_VERSION_AT, _SEATS_AT, _MADE_AT, _FLEET_AT = 4, 5, 6, 7
_NUMBER, _STATE, _WAITS = 16, 16 + 128, 16 + 256  # one word a seat; the number is stored plus one
_HEART_64 = (16 + 384) // 2
# A row never leaves the bucket of its key's hash: it can get another key of the same bucket, with one write.
_BUCKETS, _BUCKET_ROWS = 1024, 128
_INDEX: Final = 1024
_KINDS: Final = _INDEX + _BUCKETS * _BUCKET_ROWS
_KEYS: Final = _KINDS + MAX_ROWS
_CELLS: Final = _KEYS + 4 * MAX_ROWS
# A row's columns, one number a seat each: used, waiting, interest, scope of 4 bytes; since, asked, took of 8.
_ROW_WIDTHS: Final = 4 + 2 * 3


class Memory:
    """One process's view of it, as one seat; -1 is the supervisor."""

    def __init__(self, fd: int, bells: Sequence[int], seat: int) -> None:
        self.fd, self.bells, self.seat, self.seats = fd, tuple(bells), seat, len(bells)
        self.width = self.seats + self.seats % 2
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._bytes = memoryview(self._map)
        self.u32, self.u64 = self._bytes.cast("I"), self._bytes.cast("Q")
        self._none_waits = bytes(4 * self.seats)
        self._unused = bytes(4 * 3 * self.width)

    @classmethod
    def create(cls, seats: int) -> Memory:
        """A new one. Most of it is never touched and takes no memory."""
        if not 0 < seats <= MAX_SEATS:
            raise ValueError(f"a fleet has 1 to {MAX_SEATS} seats, not {seats}")
        fd = os.memfd_create("pgshoal ledger", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4 * (_CELLS + MAX_ROWS * _ROW_WIDTHS * (seats + seats % 2)))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        memory = cls(fd, [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(seats)], -1)
        memory.u32[_VERSION_AT], memory.u32[_SEATS_AT] = _VERSION, seats
        memory.u64[_NEXT_ID_64] = 1
        memory.u64[_MAGIC_64] = _MAGIC
        return memory

    @classmethod
    def attach(cls, fd: int, bells: Sequence[int], seat: int) -> Memory:
        """The one behind an inherited descriptor; ValueError if it is something else, or of another version."""
        size = os.fstat(fd).st_size
        if size < 4 * _CELLS or not -1 <= seat < len(bells):
            raise ValueError(f"descriptor {fd} of {size} bytes is no ledger with seat {seat} of {len(bells)}")
        memory = cls(fd, bells, seat)
        found = memory.u64[_MAGIC_64], memory.u32[_VERSION_AT], memory.u32[_SEATS_AT]
        if found != (_MAGIC, _VERSION, len(bells)):
            memory.close()
            raise ValueError(f"descriptor {fd} is no ledger of version {_VERSION} with {len(bells)} seats: {found}")
        return memory

    def close(self) -> None:
        """Unmap it; the descriptors stay open."""
        for view in (self.u32, self.u64, self._bytes):
            view.release()
        # The mapping has a descriptor of its own: closing it would drop the lock, but nobody holds it here.
        self._map.close()

    # The lock.
    #
    # A POSIX record lock belongs to the process: no child inherits it, and the kernel frees it when the process dies,
    # whatever descriptors others have of this file. (An F_OFD_SETLK lock belongs to the open file description. All
    # workers inherit the supervisor's: it would shut nobody out. With a description of its own for each, opened
    # through /proc, a lock could still outlive its holder in a child that was forked meanwhile.)
    # Danger: the process loses the lock as soon as it closes ANY descriptor of the memfd, and its threads are not shut
    # out. So nothing is opened or closed between lock and unlock, and only one thread may use the ledger.

    def lock(self, patience_s: float = LOCK_S) -> bool:
        """Try to get the lock; False if its holder does not come to an end."""
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
            return True
        except (BlockingIOError, PermissionError):
            return self._lock_busy(patience_s)

    def _lock_busy(self, patience_s: float) -> bool:
        end_s = time.monotonic() + patience_s
        tries = 0
        while time.monotonic() < end_s:
            tries += 1
            if tries < 20:
                os.sched_yield()
            else:
                time.sleep(0.0001)  # the holder may need this CPU
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
                return True
        return False

    def unlock(self) -> None:
        """Let the next one in; what was written before is seen by whoever gets the lock."""
        fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, 0, 0)

    # The fleet and its seats.

    @property
    def workers(self) -> int:
        """Among how many workers limits are shared."""
        return max(1, self.u32[_FLEET_AT] >> 1)

    @property
    def static(self) -> bool:
        """Whether limits are divided."""
        return bool(self.u32[_FLEET_AT] & 1)

    def set_fleet(self, workers: int, static: bool) -> None:
        """Both in one word, so that they are never seen apart."""
        self.u32[_FLEET_AT] = workers << 1 | static

    def number(self, seat: int) -> int:
        """The worker whose seat it is, or was."""
        return self.u32[_NUMBER + seat] - 1

    def occupy(self, seat: int, number: int) -> None:
        """A process is about to use the seat; it is awake with its first heartbeat."""
        self.u64[_HEART_64 + seat] = 0
        self.u32[_NUMBER + seat] = number + 1
        self.u32[_STATE + seat] = LIVING

    def vacate(self, seat: int, cleared_from_kind: int) -> None:
        """Its process is dead: nobody waits, nothing is of interest, and rows of the last kinds count nothing."""
        u32, width = self.u32, self.width
        u32[_STATE + seat] = DEAD
        u32[_WAITS + seat] = 0
        self.u64[_HEART_64 + seat] = 0
        for row in self.rows():
            at = self.base(row) + seat
            u32[at + width] = u32[at + 2 * width] = 0
            if u32[_KINDS + row] >= cleared_from_kind:
                u32[at] = 0

    def free(self, seat: int) -> bool:
        """Nobody uses it, and nothing is counted for it."""
        if self.u32[_STATE + seat] == LIVING:
            return False
        return not any(self.u32[self.base(row) + seat] for row in self.rows())

    def beat(self, now_us: int) -> None:
        """The own heart."""
        self.u64[_HEART_64 + self.seat] = now_us

    def youngest_us(self, row: int) -> int:
        """The latest time that anybody has written of its heart, or of its wish in this row."""
        asked = self.times(row) + self.width
        return max(*self.u64[_HEART_64 : _HEART_64 + self.seats], *self.u64[asked : asked + self.seats])

    def reserve_ids(self, count: int) -> int:
        """The first of `count` ids; under the lock."""
        first = self.u64[_NEXT_ID_64]
        if first + count - 1 > MAX_ID:
            first = 1
        self.u64[_NEXT_ID_64] = first + count
        return first

    # Rows.

    def rows(self) -> range:
        """All rows that were ever made."""
        return range(self.u32[_MADE_AT])

    def base(self, row: int) -> int:
        """The address of its first column, `used`, in u32."""
        return _CELLS + row * (_ROW_WIDTHS * self.width)

    def times(self, row: int) -> int:
        """The address of its column `since` in u64; `asked` and `took` follow."""
        return (self.base(row) >> 1) + 2 * self.width

    def find(self, key: bytes, kind: int) -> int:
        """The row with the key, else an unused one of its bucket, else a new one, else -1; under the lock."""
        u32 = self.u32
        start = _INDEX + int.from_bytes(key[:4], "little") % _BUCKETS * _BUCKET_ROWS
        unused, slot = -1, start
        while slot < start + _BUCKET_ROWS and u32[slot]:
            row = u32[slot] - 1
            at = 4 * (_KEYS + 4 * row)
            if self._map[at : at + 16] == key:
                u32[_KINDS + row] = kind  # whoever wrote the key may have been killed before it wrote the kind
                return row
            if unused < 0 and self._is_unused(row):
                unused = row
            slot += 1
        if unused < 0:
            unused = u32[_MADE_AT]
            if slot == start + _BUCKET_ROWS or unused >= MAX_ROWS:
                return -1
            # In this order: whoever is killed between two of these steps loses a row, no more.
            u32[_MADE_AT] = unused + 1
            u32[slot] = unused + 1
        at = 4 * (_KEYS + 4 * unused)
        self._bytes[at : at + 16] = key
        u32[_KINDS + unused] = kind
        return unused

    def _is_unused(self, row: int) -> bool:
        at = 4 * self.base(row)
        return self._map[at : at + len(self._unused)] == self._unused

    def used(self, row: int) -> int:
        """The sum over all seats."""
        at = self.base(row)
        return sum(self.u32[at : at + self.seats])

    def lower(self, row: int, seat: int) -> int:
        """One less of a seat's; never below 0. What is left."""
        at = self.base(row) + seat
        left = self.u32[at]
        if left:
            left -= 1
            self.u32[at] = left
        return left

    def anybody_waits(self, row: int) -> bool:
        """Whether any seat waits, this one included; stale wishes too."""
        at = 4 * (self.base(row) + self.width)
        return self._map[at : at + len(self._none_waits)] != self._none_waits

    def others_waiting(self, row: int, within_reach: bool = False) -> list[int]:
        """The other seats that wait in a row; `within_reach`: only those that slots of this seat would help."""
        if not self.anybody_waits(row):
            return []
        u32, at, width = self.u32, self.base(row), self.width
        waiting = [seat for seat in range(self.seats) if seat != self.seat and u32[at + width + seat]]
        if within_reach and self.static:
            scopes = (ANYBODY, u32[_NUMBER + self.seat])
            return [seat for seat in waiting if u32[at + 3 * width + seat] in scopes]
        return waiting

    def others_wait_at_all(self) -> bool:
        """Whether any other seat waits in any row."""
        u32 = self.u32
        return any(u32[_WAITS + seat] for seat in range(self.seats) if seat != self.seat)

    def set_waiting_rows(self, count: int) -> None:
        """In how many rows this seat waits."""
        self.u32[_WAITS + self.seat] = count

    def cells(self, row: int, now_us: int) -> list[Cell]:
        """Seats that have a process or something counted. A wish that was not repeated is none."""
        at, times, width, u32, u64 = self.base(row), self.times(row), self.width, self.u32, self.u64
        cells = []
        for seat in range(self.seats):
            used, waiting, state = u32[at + seat], u32[at + width + seat], u32[_STATE + seat]
            if state != LIVING and not used:
                continue
            awake = seat == self.seat or (state == LIVING and now_us - u64[_HEART_64 + seat] <= AWAKE_US)
            if waiting and now_us - u64[times + width + seat] > AWAKE_US:
                waiting = 0
            since_us, took_us = u64[times + seat] if waiting else 0, u64[times + 2 * width + seat]
            cells.append(Cell(seat, used, waiting, since_us, awake, self.number(seat), took_us))
        return cells

    # Bells.

    def ring(self, seats: Iterable[int]) -> None:
        """Tell seats to look at the ledger."""
        for seat in seats:
            with suppress(BlockingIOError):  # rung more often than it can count: it will look
                os.eventfd_write(self.bells[seat], 1)

    def living(self) -> list[int]:
        """The other seats that have a process."""
        return [seat for seat in range(self.seats) if seat != self.seat and self.u32[_STATE + seat] == LIVING]

    def drain_bell(self) -> None:
        """Take note of the own bell."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.bells[self.seat])
