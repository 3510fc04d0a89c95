"""Clients on their way from a process that drains to the one that has its number now, and their cancel keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pgshoal.policy.cancel import seat_of

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor


class Moves:
    """A part of the supervisor: `move` from one worker to the other.

    A client keeps the cancel key that names its old seat, so the supervisor remembers where clients of a seat went.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._fleet = supervisor
        #: seat in a cancel key -> numbers to whose processes clients of that seat went
        self._heirs: dict[int, set[int]] = {}

    def attach(self, child: Child) -> None:
        """Listen to a worker."""
        child.channel.on("move", lambda message: self._move(child, message))

    def is_ready(self, child: Child) -> None:
        """Nothing to do."""

    def died(self, child: Child) -> None:
        """Its clients are gone, or were moved before."""

    def heirs(self, seat: int) -> list[Child]:
        """The processes that may know a cancel key of the seat; one of them may sit there now."""
        numbers = self._heirs.get(seat, ())
        # Also those that drain: a client that is busy there has still to move on.
        found = [one for one in self._fleet.children if one.number in numbers and one.ready]
        return sorted(found, key=lambda one: one.draining)

    def export(self) -> dict[str, list[int]]:
        """As JSON."""
        return {str(seat): sorted(numbers) for seat, numbers in self._heirs.items()}

    def adopt(self, exported: dict[str, list[int]]) -> None:
        """Go on from there."""
        self._heirs = {int(seat): set(numbers) for seat, numbers in exported.items()}

    def _move(self, child: Child, message: Message) -> None:
        target = self._target(child)
        if target is None:
            self._fleet.log.warning(f"a client of worker {child.number} (pid {child.pid}) is lost: nobody serves")
        else:
            seat = seat_of(bytes.fromhex(message["key"]))
            self._heirs.setdefault(seat, set()).add(target.number)
            target.channel.send("move", message.fields, message.blob, message.fd)
        if message.fd >= 0:
            os.close(message.fd)

    def _target(self, child: Child) -> Child | None:
        mine = self._fleet.posts[child.number].child
        if mine is not None and mine is not child and mine.ready:
            return mine
        serving = [one for one in self._fleet.others(child) if not one.draining]
        return min(serving, key=lambda one: one.vitals.get("clients", 0), default=None)
