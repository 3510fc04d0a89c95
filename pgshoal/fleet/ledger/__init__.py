"""The ledger: what every worker of the fleet holds of every limit, in memory that all share.

A cell is written by its own seat only, or by the supervisor once the seat's process is dead; so whoever is killed
wherever, every number stays true. Decisions are made under a lock that the kernel frees when its holder dies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from pgshoal.fleet.ledger.memory import ANYBODY, PATIENT_LOCK_S, Memory
from pgshoal.fleet.ledger.wishes import Wishes
from pgshoal.policy import budget
from pgshoal.policy.budget import Cell

__all__ = ["Cell", "Kind", "Ledger", "LedgerFull", "Want"]


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
    """There is no row left for a limit, or a stopped process holds the ledger."""


#: Ids for when the lock is not to be had: the upper half, a part for each of at most 127 seats and the supervisor.
_SPARE_FROM: Final = 2**30
_SPARE_OF_SEAT: Final = 2**23
#: No row refuses a slot.
_MAY: Final = -1


class Ledger:
    """One process's view of the ledger, for one thread. The supervisor's has no seat."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.fd, self.bells, self.seat, self.seats = memory.fd, memory.bells, memory.seat, memory.seats
        self._now_us = 0
        self._held: set[int] = set()
        self._wishes = Wishes(memory)
        self._spare_at = os.getpid() * 1000 % _SPARE_OF_SEAT  # elsewhere than the seat's last process

    @classmethod
    def create(cls, seats: int) -> Ledger:
        """A new ledger, for the supervisor; its descriptors are closed on exec unless they are passed on."""
        ledger = cls(Memory.create(seats))
        ledger.set_fleet(1, False)
        return ledger

    @classmethod
    def attach(cls, fd: int, bells: Sequence[int], seat: int) -> Ledger:
        """The ledger behind inherited descriptors, which stay the caller's."""
        return cls(Memory.attach(fd, bells, seat))

    def close(self) -> None:
        """Unmap it. The descriptors stay open, for others of this process and for `close_descriptors`."""
        self._memory.close()

    def close_descriptors(self) -> None:
        """For its creator, when the fleet has ended."""
        for fd in (self.fd, *self.bells):
            os.close(fd)

    # The fleet and its seats; all but `beat` is the supervisor's.

    @property
    def workers(self) -> int:
        """Among how many workers limits are shared."""
        return self._memory.workers

    @property
    def static(self) -> bool:
        """Whether limits are divided instead of shared."""
        return self._memory.static

    def set_fleet(self, workers: int, static: bool) -> None:
        """How limits are shared, and among how many."""
        self._memory.set_fleet(workers, static)

    def occupy(self, seat: int, number: int) -> None:
        """A process of worker `number` is about to use the seat."""
        self._memory.occupy(seat, number)

    def vacate(self, seat: int) -> None:
        """Its process is dead. What it has of servers stays counted until `settle` or `give_for`."""
        self._memory.vacate(seat, Kind.CLIENTS)
        self._memory.ring(self._memory.living())

    def free(self, seat: int) -> bool:
        """Whether the seat can be given to a process: it has none, and nothing is counted for it any more."""
        return self._memory.free(seat)

    def beat(self, now_us: int) -> None:
        """This seat's process lives; to be called three times a second."""
        self._own_seat()
        self._now_us = now_us
        self._memory.beat(now_us)
        self._wishes.refresh(now_us)

    # Rows.

    def row(self, kind: Kind, name: str, user: str = "") -> int:
        """Find or make the row of a limit, and keep it until `forget` is called as often."""
        memory = self._memory
        what = f"{kind.name.lower().replace('_', ' ')} {name} {user}".rstrip()
        key = blake2b(f"{int(kind)}\0{name}\0{user}".encode("utf-8", "surrogateescape"), digest_size=16).digest()
        if not memory.lock(PATIENT_LOCK_S):
            raise LedgerFull(f"a stopped process holds the ledger (wanted: {what})")
        try:
            row = memory.find(key, kind)
            if row >= 0 and self.seat >= 0:
                memory.u32[memory.base(row) + 2 * memory.width + self.seat] += 1
        finally:
            memory.unlock()
        if row < 0:
            raise LedgerFull(f"no room in the ledger for {what}")
        return row

    def forget(self, row: int) -> None:
        """This seat has no more use for the row, as often as `row` returned it; then nobody here waits in it."""
        memory = self._memory
        at = memory.base(row) + 2 * memory.width + self._own_seat()
        if memory.u32[at] <= 1:
            self._wishes.forget(row)  # before others may use the row for something else
            memory.u32[at] = 0
        else:
            memory.u32[at] -= 1

    # Slots of servers.

    def take(self, wants: Sequence[Want], now_us: int, since_us: int = 0) -> bool:
        """Take one slot in each row, or none. In the first row that refuses it is noted that this seat waits.

        `since_us`: since when the client waits for which the server is meant; 0: nobody, then all who wait come first.
        False can also mean that the lock was not to be had: ask again a little later.
        """
        memory, seat = self._memory, self._own_seat()
        self._now_us = now_us
        key = tuple([want.row for want in wants])
        rung: set[int] = set()
        if not memory.lock():
            return False
        try:
            row, scope = self._refusal(wants, now_us, since_us)
            if scope == _MAY:
                for want in wants:
                    memory.u32[memory.base(want.row) + seat] += 1
                    memory.u64[memory.times(want.row) + 2 * memory.width + seat] = now_us
                    if memory.anybody_waits(want.row) and memory.used(want.row) < want.limit:
                        rung.update(memory.others_waiting(want.row))  # they came after this seat
                self._held.update(key)
                self._wishes.served(key)
            elif since_us:
                rung = self._wishes.refused(key, row, scope, since_us, now_us)
        finally:
            memory.unlock()
        memory.ring(rung)
        return scope == _MAY

    def wait(self, wants: Sequence[Want], waiting: int, since_us: int) -> None:
        """Clients of this seat, the oldest since `since_us`, wait for servers beyond those under way; 0: no more.

        They wait in the first row that refuses them; wants without any limit name the rows themselves.
        """
        memory = self._memory
        self._own_seat()
        key = tuple([want.row for want in wants])
        # Under the lock, or a seat that gives a slot back at this moment may not see the wish, nor be seen. But if the
        # lock is not to be had the wish is true all the same.
        locked = memory.lock()
        try:
            if waiting <= 0 or not since_us:
                rung = self._wishes.withdraw(key)
            else:
                rows, scope = key, ANYBODY
                if any(want.limit for want in wants):
                    row, scope = self._refusal(wants, self._now_us, since_us)
                    rows = () if scope == _MAY else (row,)
                rung = self._wishes.declare(key, rows, scope, waiting, since_us, self._now_us)
        finally:
            if locked:
                memory.unlock()
        memory.ring(rung)

    def give(self, rows: Sequence[int]) -> None:
        """Give one slot of each row back: its server is gone. Never fails; those who wait are rung."""
        seat = self._own_seat()
        for row in rows:
            if self._memory.lower(row, seat) == 0:
                self._held.discard(row)
        self._ring_waiting(rows)

    def give_for(self, seat: int, rows: Sequence[int]) -> None:
        """The supervisor: one server of a dead seat is gone."""
        for row in rows:
            self._memory.lower(row, seat)
        self._ring_waiting(rows)

    def settle(self, seat: int, left: Mapping[int, int]) -> None:
        """The supervisor: no more servers of a dead seat exist than `left` (row: count); nothing is ever raised.

        Its process may have been killed between two numbers that belong together: it had counted a server that it did
        not come to open, or given back one whose end the supervisor has not heard of.
        """
        memory = self._memory
        lowered = []
        for row in memory.rows():
            at = memory.base(row) + seat
            if memory.u32[at] > left.get(row, 0):
                memory.u32[at] = left.get(row, 0)
                lowered.append(row)
        self._ring_waiting(lowered)

    def own(self, row: int) -> int:
        """What this seat has of the row."""
        return self._memory.u32[self._memory.base(row) + self._own_seat()]

    def used(self, row: int) -> int:
        """What all have of the row."""
        return self._memory.used(row)

    def by_seat(self, row: int) -> list[int]:
        """What every seat has of the row, by seat and nothing else; quick."""
        at = self._memory.base(row)
        return self._memory.u32[at : at + self.seats].tolist()

    def cells(self, row: int) -> list[Cell]:
        """What every seat has of the row, those left out that have no process and nothing counted."""
        return self._memory.cells(row, self._clock_us(row))

    def demands(self) -> list[int]:
        """The rows of which this seat holds slots and in which another waits whom they would help."""
        if not self._memory.others_wait_at_all():
            return []
        return [row for row in self._held if self._memory.others_waiting(row, within_reach=True)]

    def gives_way(self, row: int, limit: int, leaving: int = 0, idle_us: int | None = None) -> budget.Verdict:
        """`budget.gives_way` for this seat, by the way the fleet shares its limits."""
        now_us, seat = self._clock_us(row), self._own_seat()
        cells, limit, workers = self._sharers(self._memory.cells(row, now_us), limit)
        return budget.gives_way(cells, seat, limit, workers, now_us, leaving, idle_us)

    # Slots of clients.

    def admit(self, row: int, limit: int) -> bool:
        """Count one more client of this seat, unless the fleet has `limit` already; 0 = no limit."""
        memory = self._memory
        at = memory.base(row)
        own = at + self._own_seat()
        if limit <= 0:
            memory.u32[own] += 1
            return True
        if self._admit_unlocked(at, own, limit):
            return True
        if not memory.lock():
            return False
        admitted = sum(memory.u32[at : at + self.seats]) < limit
        if admitted:
            memory.u32[own] += 1
        memory.unlock()
        return admitted

    def _admit_unlocked(self, at: int, own: int, limit: int) -> bool:
        """As long as the limit is far it goes without the lock, which costs two system calls for each login.

        First count, then look: from then on all others see this client. The margin is for what others have
        decided and not yet written, and for what is still on its way to memory.
        """
        u32 = self._memory.u32
        u32[own] += 1
        if sum(u32[at : at + self.seats]) + 8 * self.seats <= limit:
            return True
        u32[own] -= 1
        return False

    def leave(self, row: int) -> None:
        """A client of this seat that was admitted is gone."""
        self._memory.lower(row, self._own_seat())

    def reserve_ids(self, count: int) -> int:
        """The first of `count` ids that nobody else in the fleet gets before they have gone round."""
        if not self._memory.lock(PATIENT_LOCK_S):
            return self._spare_ids(count)
        try:
            return self._memory.reserve_ids(count)
        finally:
            self._memory.unlock()

    def _spare_ids(self, count: int) -> int:
        """Far above those in use, from this seat's own part: a stopped process must not keep clients out."""
        if self._spare_at + count > _SPARE_OF_SEAT:
            self._spare_at = 0
        first = _SPARE_FROM + (self.seat + 1) * _SPARE_OF_SEAT + self._spare_at
        self._spare_at += count
        return first

    # Bells.

    def ring(self, seat: int) -> None:
        """Tell a seat to look at the ledger."""
        self._memory.ring((seat,))

    def drain_bell(self) -> None:
        """Take note of this seat's bell."""
        self._own_seat()
        self._memory.drain_bell()

    def _ring_waiting(self, rows: Sequence[int]) -> None:
        memory = self._memory
        # Under the lock, or a seat that notes its wish at this moment may see the old number and not be seen.
        if not memory.lock():
            memory.ring(memory.living())
            return
        try:
            rung = {seat for row in rows for seat in memory.others_waiting(row)}
        finally:
            memory.unlock()
        memory.ring(rung)

    # Decisions.

    def _own_seat(self) -> int:
        if self.seat < 0:
            raise RuntimeError("the supervisor has no seat")
        return self.seat

    def _clock_us(self, row: int) -> int:
        """The time, as the youngest heart knows it, or who asked last for a slot of the row."""
        return max(self._now_us, self._memory.youngest_us(row))

    def _sharers(self, cells: list[Cell], limit: int) -> tuple[list[Cell], int, int]:
        """Who shares a limit elastically, what and as how many: all, or of a divided limit one worker's seats."""
        workers = self.workers
        if not self.static or limit < workers:
            return cells, limit, workers
        number = self._memory.number(self.seat)
        return [cell for cell in cells if cell.number == number], budget.static_limit(limit, workers, number), 1

    def _refusal(self, wants: Sequence[Want], now_us: int, since_us: int) -> tuple[int, int]:
        """The first row that refuses a slot, and whose slots would help; (-1, _MAY) if none refuses."""
        for want in wants:
            scope = self._refuses(want.row, want.limit, now_us, since_us)
            if scope != _MAY:
                return want.row, scope
        return -1, _MAY

    def _refuses(self, row: int, limit: int, now_us: int, since_us: int) -> int:
        if limit <= 0:
            return _MAY
        memory = self._memory
        divided = self.static and limit >= self.workers
        if not divided:
            if memory.used(row) >= limit:
                return ANYBODY
            if not memory.anybody_waits(row):
                return _MAY
        cells = memory.cells(row, now_us)
        full = sum(cell.used for cell in cells) >= limit
        sharers, limit, workers = self._sharers(cells, limit)
        sharers = [replace(c, since_us=since_us, waiting=1) if c.seat == self.seat and since_us else c for c in sharers]
        if not since_us and any(cell.waiting for cell in sharers if cell.awake):
            may = False
        else:
            may = budget.may_take(sharers, self.seat, limit, workers, now_us)
        if not may:
            return memory.number(self.seat) + 1 if divided else ANYBODY
        return ANYBODY if full else _MAY
