"""How the workers of a fleet share a limit: who may take the next slot, and who must give one back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final, Literal

#: A seat without any slot of a limit that is too small for all comes before all others after this wait.
ROTATE_AFTER_US: Final = 300_000
#: Such a slot stays this long where it went, or it would be passed on after every transaction.
SLICE_US: Final = 100_000
#: A server that was in use this recently is kept from seats that already have their share.
KEEP_IDLE_US: Final = 20_000
#: A holder that was rung looks again after this time, as long as somebody waits.
LOOK_AGAIN_US: Final = 15_000

Verdict = Literal["", "idle", "busy"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one seat has of a limit. `awake`: it lives and its heart beats; `number` -1: it shares with nobody."""

    seat: int
    used: int
    waiting: int
    since_us: int  # since when its oldest client waits, 0 = nobody
    awake: bool
    number: int = -1
    took_us: int = 0  # when it last took a slot


def share(limit: int, workers: int) -> int:
    """What every worker is entitled to; 0 if the limit is smaller than the number of workers."""
    return limit // max(workers, 1)


def static_limit(limit: int, workers: int, number: int) -> int:
    """The part of worker `number`, the remainder going to the lowest; a limit too small to divide stays whole."""
    if limit < workers:
        return limit
    return limit // workers + (number < limit % workers)


def may_take(cells: Sequence[Cell], seat: int, limit: int, workers: int, now_us: int) -> bool:
    """Whether there is a slot that nobody claims who comes before `seat`.

    A seat whose own `since_us` is 0 asks for nobody in particular, so every waiter comes first.
    """
    if limit <= 0:
        return True
    free = limit - sum(cell.used for cell in cells)
    if free <= 0:
        return False
    claims = _claims(cells, seat, limit, workers, now_us)
    return free > sum(count for count, _ in claims)


def gives_way(
    cells: Sequence[Cell],
    seat: int,
    limit: int,
    workers: int,
    now_us: int,
    leaving: int = 0,
    idle_us: int | None = None,
) -> Verdict:
    """Whether `seat` should close one server for others: none, an idle one, or even a busy one at its next release.

    `leaving`: slots of this seat that are on their way back already. `idle_us`: for how long the server that would
    be closed has been idle; None: no matter.
    """
    held = next((cell.used for cell in cells if cell.seat == seat), 0) - leaving
    if limit <= 0 or held <= 0:
        return ""
    free = limit - sum(cell.used for cell in cells)
    rivals = [cell for _, cell in _claims(cells, seat, limit, workers, now_us)]
    if rivals and _owed(cells, seat, limit, workers, now_us, free) > leaving:
        return "busy"
    if free + leaving < 0 and held > _shares(cells, seat, limit, workers)[seat]:
        return "idle"  # the limit was lowered
    if not rivals or free + leaving >= sum(cell.waiting for cell in rivals):
        return ""
    return "idle" if idle_us is None or idle_us >= KEEP_IDLE_US else ""


def _shares(cells: Sequence[Cell], seat: int, limit: int, workers: int) -> dict[int, int]:
    """The share of every living seat; the old and the new process of one number have one share between them."""
    taking_part = [cell for cell in cells if cell.seat == seat or (cell.awake and (cell.used or cell.waiting))]
    numbers = [cell.number for cell in taking_part]
    return {
        cell.seat: share(limit, workers) // (numbers.count(cell.number) if cell.number >= 0 else 1)
        for cell in taking_part
    }


def _rank(cell: Cell, entitled: int, now_us: int) -> tuple[int, int, int]:
    """The smaller comes first. A seat for which nobody in particular waits comes last."""
    if not cell.since_us:
        return 3, 0, cell.seat
    if _starved(cell, entitled, now_us):
        return 0, cell.since_us, cell.seat
    return 1 if cell.used < entitled else 2, cell.since_us, cell.seat


def _starved(cell: Cell, entitled: int, now_us: int) -> bool:
    return not entitled and not cell.used and now_us - cell.since_us >= ROTATE_AFTER_US


def _claims(cells: Sequence[Cell], seat: int, limit: int, workers: int, now_us: int) -> list[tuple[int, Cell]]:
    """The seats that wait and come before `seat`, each with the number of slots that it may claim before it."""
    shares = _shares(cells, seat, limit, workers)
    mine = next((cell for cell in cells if cell.seat == seat), Cell(seat, 0, 0, 0, True))
    my_rank = _rank(mine, shares.get(seat, 0), now_us)
    claims: list[tuple[int, Cell]] = []
    for cell in cells:
        if cell.seat == seat or not cell.awake or not cell.waiting or not cell.since_us:
            continue
        if _rank(cell, shares[cell.seat], now_us) < my_rank:
            # Beyond its share a seat claims one slot at a time: how long its second client waits is not known.
            claims.append((max(1, min(cell.waiting, shares[cell.seat] - cell.used)), cell))
    return claims


def _owed(cells: Sequence[Cell], seat: int, limit: int, workers: int, now_us: int, free: int) -> int:
    """How many slots `seat` has to give, busy or not: those with most above their share first, then who took earlier.

    Every holder comes to the same result from the same cells, so that no two give for one waiter; unless the wait
    is so long that whoever can should.
    """
    shares = _shares(cells, seat, limit, workers)
    due = starved = 0
    overdue = False
    for cell in cells:
        if cell.seat != seat and cell.awake and cell.waiting and cell.since_us:
            lacking = max(0, min(cell.waiting, shares[cell.seat] - cell.used))
            lacking_turn = _starved(cell, shares[cell.seat], now_us)
            if not lacking and not lacking_turn:
                continue
            due += lacking
            starved += lacking_turn
            overdue = overdue or now_us - cell.since_us >= 2 * ROTATE_AFTER_US
    wanted = due + starved - free
    donors = [
        (shares[cell.seat] - cell.used, cell.took_us, cell.seat)
        for cell in cells
        if cell.seat in shares
        and cell.used > shares[cell.seat]
        and (due or shares[cell.seat] or now_us - cell.took_us >= SLICE_US)
    ]
    if overdue:  # those whose turn it was did not come to an end
        return min(wanted, sum(-over for over, _, donor in donors if donor == seat))
    heapify(donors)
    owed = 0
    while wanted > 0 and donors and donors[0][0] < 0:
        over, took_us, donor = donors[0]
        owed += donor == seat
        wanted -= 1
        heapreplace(donors, (over + 1, took_us, donor))
    return owed
