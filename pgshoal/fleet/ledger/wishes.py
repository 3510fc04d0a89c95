"""What the clients of this seat wait for, and how its cells say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pgshoal.fleet.ledger.memory import ANYBODY, AWAKE_US, Memory

#: Holders are rung again for the same wish after this time.
RING_AGAIN_US: Final = 150_000
#: What stands they see for themselves; only one who has forgotten it needs to be told.
RING_STANDING_US: Final = 1_000_000

Key = tuple[int, ...]


@dataclass(slots=True)
class Wish:
    """A set of rows whose slots are wanted. `rows`: those of them where it is said, because they refuse.

    `standing`: declared, and true until it is withdrawn; others follow from a refused attempt and fade.
    """

    rows: Key = ()
    scope: int = ANYBODY
    waiting: int = 0
    since_us: int = 0
    asked_us: int = 0
    rung_us: int = 0
    standing: bool = False


class Wishes:
    """By the rows that are wanted together. Several wishes can meet in one row; its cell has their sum."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._by_key: dict[Key, Wish] = {}

    def declare(self, key: Key, rows: Key, scope: int, waiting: int, since_us: int, now_us: int) -> set[int]:
        """Clients wait for these rows until they are served or do not any more; the seats to ring."""
        wish = self._by_key.setdefault(key, Wish())
        # Who was rung looks again by itself as long as anybody waits: that more wait now is no reason to ring.
        more = not wish.waiting
        wish.standing, wish.waiting = True, waiting
        faded = [k for k, other in self._by_key.items() if not other.standing and set(other.rows) & set(rows)]
        for old in faded:
            del self._by_key[old]
        return self._say(wish, rows, scope, since_us, now_us, more)

    def refused(self, key: Key, row: int, scope: int, since_us: int, now_us: int) -> set[int]:
        """An attempt was refused by a row: somebody waits there; the seats to ring."""
        wish = self._by_key.get(key)
        if wish is None:
            standing = [w for w in self._by_key.values() if w.standing and row in w.rows]
            if standing:  # it is said already
                wish = standing[0]
                return self._say(wish, wish.rows, scope, wish.since_us, now_us, False)
            wish = self._by_key[key] = Wish(waiting=1)
        return self._say(wish, (row,), scope, since_us, now_us, False)

    def served(self, key: Key) -> None:
        """One of the clients gets a server."""
        wish = self._by_key.get(key)
        if wish is None:
            return
        wish.waiting -= 1
        if wish.waiting <= 0:
            self.withdraw(key)
        else:
            self._write(wish.rows)

    def withdraw(self, key: Key) -> set[int]:
        """Nobody waits for these any more; the seats that wait where this one did."""
        wish = self._by_key.pop(key, None)
        if wish is None:
            return set()
        self._write(wish.rows)
        return {seat for row in wish.rows for seat in self._memory.others_waiting(row)}

    def forget(self, row: int) -> None:
        """Withdraw whatever has to do with a row."""
        for key in [key for key in self._by_key if row in key]:
            self.withdraw(key)

    def refresh(self, now_us: int) -> None:
        """Repeat what stands, and let go what has faded."""
        if not self._by_key:
            return
        for key, wish in list(self._by_key.items()):
            if wish.standing:
                wish.asked_us = now_us
            elif now_us - wish.asked_us > AWAKE_US:
                del self._by_key[key]
                self._write(wish.rows)
        self._write({row for wish in self._by_key.values() for row in wish.rows})

    def _say(self, wish: Wish, rows: Key, scope: int, since_us: int, now_us: int, more: bool) -> set[int]:
        more = more or rows != wish.rows
        changed = {*wish.rows, *rows}
        wish.rows, wish.scope, wish.since_us, wish.asked_us = rows, scope, since_us, now_us
        self._write(changed)
        again_us = RING_STANDING_US if wish.standing else RING_AGAIN_US
        if not rows or not (more or now_us - wish.rung_us >= again_us):
            return set()
        wish.rung_us = now_us
        memory = self._memory
        bases = [memory.base(row) for row in rows]
        return {seat for seat in memory.living() if any(memory.u32[base + seat] for base in bases)}

    def _write(self, rows: Iterable[int]) -> None:
        memory, width, seat = self._memory, self._memory.width, self._memory.seat
        for row in rows:
            wishes = [wish for wish in self._by_key.values() if row in wish.rows]
            at, times = memory.base(row) + seat, memory.times(row) + seat
            memory.u64[times] = min((wish.since_us for wish in wishes), default=0)
            memory.u64[times + width] = max((wish.asked_us for wish in wishes), default=0)
            # Whoever can be helped by all does not hide behind one who can be helped by few.
            memory.u32[at + 3 * width] = min((wish.scope for wish in wishes), default=ANYBODY)
            memory.u32[at + width] = sum(wish.waiting for wish in wishes)
        memory.set_waiting_rows(len({row for wish in self._by_key.values() for row in wish.rows}))
