"""The letterboxes through which workers hand new clients to each other, and the roster of those who take them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

#: Room for a burst of clients; a letter takes about 1 KiB of it.
_ROOM_BYTES: Final = 1 << 20


class Letterboxes:
    """A part of the supervisor. Each number has one box, read by whoever serves the number.

    A number without a process lends its box, so that who was handed over is served at once.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        workers = supervisor.workers
        self._pairs = [_pair() for _ in range(workers)] if workers > 1 else []
        self._serving: dict[int, Child] = {}  # by number
        self._lent: dict[int, Child] = {}

    def attach(self, child: Child) -> None:
        """Nothing yet: a worker that does not serve neither gives nor takes."""

    def is_ready(self, child: Child) -> None:
        """It takes over the box of its number, and learns of the others' boxes."""
        if not self._pairs:
            return
        number = child.number
        before = self._serving.get(number)
        if before is not None:
            before.channel.send("unbox", {"number": number})
        for other, reader in list(self._lent.items()):
            if other == number or reader is before:
                reader.channel.send("unbox", {"number": other})
                del self._lent[other]
        self._serving[number] = child
        for other, (slot, _) in enumerate(self._pairs):
            child.channel.send("slot", {"number": other}, fd=slot.fileno())
        self._assign(number, child)
        for empty in range(len(self._pairs)):
            self._lend(empty)
        self._tell()

    def died(self, child: Child) -> None:
        """Its box goes to another one, and so do boxes that were lent to it."""
        lent = [number for number, reader in self._lent.items() if reader is child]
        for number in lent:
            del self._lent[number]
        if self._serving.get(child.number) is child:
            del self._serving[child.number]
            lent.append(child.number)
        for number in lent:
            self._lend(number)
        if lent:
            self._tell()

    def export(self) -> list[list[int]]:
        """The boxes' descriptors, which must stay open across exec: what lies in them is for the next program."""
        return [[sock.fileno() for sock in pair] for pair in self._pairs]

    def adopt(self, exported: list[list[int]]) -> None:
        """Go on with those, before the workers are attached."""
        self.close()
        self._pairs = [(socket.socket(fileno=slot), socket.socket(fileno=box)) for slot, box in exported]
        for pair in self._pairs:
            for sock in pair:
                sock.setblocking(False)

    def close(self) -> None:
        """The end of the fleet, or of this program: what still lies in the boxes is closed with them."""
        for pair in self._pairs:
            for sock in pair:
                sock.close()
        self._pairs.clear()

    def _lend(self, number: int) -> None:
        if number in self._serving or number in self._lent or not self._serving:
            return
        reader = min(self._serving.values(), key=lambda child: (child.vitals.get("clients", 0), child.number))
        self._lent[number] = reader
        self._assign(number, reader)

    def _assign(self, number: int, reader: Child) -> None:
        reader.channel.send("box", {"number": number}, fd=self._pairs[number][1].fileno())

    def _tell(self) -> None:
        rows = [[child.number, child.seat, child.pid] for _, child in sorted(self._serving.items())]
        fields: dict[str, Any] = {"workers": rows}
        for child in self._serving.values():
            child.channel.send("roster", fields)


def _pair() -> tuple[socket.socket, socket.socket]:
    """(to write, to read). Letters stay apart, and a full box refuses the next one."""
    slot, box = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    slot.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
    for sock in (slot, box):
        sock.setblocking(False)
    return slot, box
