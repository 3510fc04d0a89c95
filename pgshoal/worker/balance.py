"""New clients go to the worker that accept_balance says: a socket that was accepted elsewhere is handed over unread.

Each number has a letterbox, a pair of sockets that the supervisor keeps: whoever hands a client over writes its
descriptor in, whoever serves the number reads. So what lies in it survives the death of its reader.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import termios
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgshoal.fleet.channel import descriptors, rights
from pgshoal.fleet.ledger import Kind
from pgshoal.policy.balance import Churn, Gauge, Load, Placement, diverts
from pgshoal.worker import steer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker

#: Letters read in one wake; others get their turn then.
_LETTERS_MAX: Final = 64
_TCP: Final = b"t"
_UNIX: Final = b"u"
_ONE_FD: Final = socket.CMSG_SPACE(array.array("i").itemsize)
_INT: Final = struct.Struct("i")
_PROC: Final = Path("/proc")
#: The row of the ledger for clients that a worker has adopted and not yet counted; nobody limits them.
_EXPECTED: Final = "(expected)"
#: Most have said who they are long before.
_EXPECTED_US: Final = 100_000


@dataclass(slots=True)
class Peer:
    """A worker that serves, this one included."""

    number: int
    seat: int
    pid: int
    gauge: Gauge = field(default_factory=Gauge)


class Balance:
    """One worker's part in it.

    A client is counted from the moment it is handed over: as a letter in a box, then as expected by the worker that has
    read it, in the end as that worker's client. So all workers see the same counts, however many come at once.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._by_seat: dict[int, Peer] = {}
        self._slots: dict[int, socket.socket] = {}  # where to hand over, by number
        self._boxes: dict[int, socket.socket] = {}  # what is read: the own number's, and one that is lent
        self._awake: set[int] = set()
        self._placement = Placement()
        self._churn = Churn()
        self._on = self._gives = False
        self._steered = steer.NOBODY
        self._clients = worker.fleet.ledger.row(Kind.CLIENTS, "")
        self._arrivals = worker.fleet.ledger.row(Kind.CLIENTS, _EXPECTED)
        self._expected: deque[int] = deque()  # since when, in microseconds: adopted, and not counted as a client yet
        self._letter_bytes = _letter_bytes()
        self._accepted = 0
        if self._proxied():
            self._on = True
            worker.engine.divert(True)  # before the first client
        worker.fleet.on("slot", self._take_slot)
        worker.fleet.on("box", self._take_box)
        worker.fleet.on("unbox", lambda message: self._drop_box(message["number"]))
        worker.fleet.on("roster", self._take_roster)

    # -- what the supervisor says

    def _take_slot(self, message: Message) -> None:
        number = int(message["number"])
        old = self._slots.pop(number, None)
        if old is not None:
            old.close()
        self._slots[number] = socket.socket(fileno=message.fd)

    def _take_box(self, message: Message) -> None:
        number = int(message["number"])
        self._drop_box(number)
        box = self._boxes[number] = socket.socket(fileno=message.fd)
        box.setblocking(False)
        self._worker.loop.add_reader(box.fileno(), self._read, box)

    def _drop_box(self, number: int) -> None:
        box = self._boxes.pop(number, None)
        if box is not None:
            self._worker.loop.remove_reader(box.fileno())
            box.close()

    def _take_roster(self, message: Message) -> None:
        known = {peer.pid: peer for peer in self._by_seat.values()}
        fresh = [Peer(*row) for row in message["workers"]]
        self._by_seat = {peer.seat: known.get(peer.pid, peer) for peer in fresh}
        self._awake.update(self._by_seat)  # until the next tick
        self._look()
        self._switch()

    # -- now and then

    def tick(self) -> None:
        """About three times a second."""
        now_us = self._worker.engine.now_us()
        self._churn.note(now_us, self._accepted, self._worker.front.connections())
        self._awake = {cell.seat for cell in self._worker.fleet.ledger.cells(self._clients) if cell.awake}
        self._look()
        self._switch()

    def _switch(self) -> None:
        how = self._worker.config.settings.accept_balance
        self._gives = diverts(how, self._placement.loads.values(), self._worker.fleet.number, self._churn.found)
        on = self._gives or self._proxied()
        if on != self._on:
            self._on = on
            self._worker.engine.divert(on)
        if how != "pack" and self._steered != steer.NOBODY:
            self._steer(steer.NOBODY)

    def _proxied(self) -> bool:
        """Whether each client's header must be read before the engine may have it."""
        return self._worker.config.settings.proxy_protocol == "on"

    def close(self) -> None:
        """The end: what lies in the box is for the next process."""
        for number in list(self._boxes):
            self._drop_box(number)
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    # -- a new client

    def accepted(self) -> None:
        """The engine tells of a connection, adopted or not."""
        self._accepted += 1

    def entered(self) -> None:
        """A client is counted by now as what it is."""
        if self._expected:
            self._arrived()

    def _arrived(self) -> None:
        self._expected.popleft()
        self._worker.fleet.ledger.leave(self._arrivals)

    def diverted(self, fd: int, listener: int) -> None:
        """The engine has accepted a socket and asks whose it is."""
        tcp = self._worker.listeners.is_tcp(listener)
        if not (self._gives and self._give_away(fd, tcp)):
            self._adopt(fd, listener)

    def _give_away(self, fd: int, tcp: bool) -> bool:
        now_us = self._worker.engine.now_us()
        if self._placement.stale(now_us):
            self._look()
        how = self._worker.config.settings.accept_balance
        mine = self._worker.fleet.number
        while how != "kernel":
            number = self._placement.place(how, mine)
            if tcp and how == "pack":
                self._lead(number != mine)
            if number == mine:
                return False
            if self._hand(number, fd, tcp):
                return True
            self._placement.forget(number)
        return False

    def _hand(self, number: int, fd: int, tcp: bool) -> bool:
        """False if the box is full, or there is none: the client is still ours then."""
        slot = self._slots.get(number)
        if slot is None:
            return False
        try:
            _write(slot, fd, _TCP if tcp else _UNIX)
        except OSError:
            return False
        os.close(fd)
        return True

    def _adopt(self, fd: int, listener: int) -> None:
        try:
            if self._proxied() and self._worker.listeners.is_tcp(listener):
                self._worker.proxied.take(fd, listener)
            else:
                self._worker.engine.adopt(fd, listener)
            self._expected.append(self._worker.engine.now_us())
            self._worker.fleet.ledger.admit(self._arrivals, 0)
        except (OSError, ValueError) as error:
            self._worker.log.debug(f"accepted socket lost: {error}")

    def _read(self, box: socket.socket) -> None:
        """What others have handed over is never handed on."""
        for _ in range(_LETTERS_MAX):
            try:
                kind, parts, _, _ = box.recvmsg(1, _ONE_FD, socket.MSG_CMSG_CLOEXEC)
            except (BlockingIOError, InterruptedError):
                break
            for fd in descriptors(parts):
                self._placement.add(self._worker.fleet.number)
                self._adopt(fd, self._worker.listeners.like(kind == _TCP))
            if not kind:
                break
        self._worker.settle()

    # -- how much everybody has to do

    def _look(self) -> None:
        now_us = self._worker.engine.now_us()
        while self._expected and now_us - self._expected[0] > _EXPECTED_US:
            self._arrived()  # it left early as probes do, brought a cancel request, or takes its time
        self._placement.read(now_us, self._loads(now_us))

    def _loads(self, now_us: int) -> Iterator[Load]:
        ledger = self._worker.fleet.ledger
        packing = self._worker.config.settings.accept_balance == "pack"
        clients, expected = ledger.by_seat(self._clients), ledger.by_seat(self._arrivals)
        for seat, peer in self._by_seat.items():
            if seat not in self._awake:
                continue
            if packing and peer.gauge.due(now_us):
                with suppress(OSError, ValueError, IndexError):
                    peer.gauge.note(now_us, _cpu_us(peer.pid))
            slot = self._slots.get(peer.number)
            letters = _unread_bytes(slot) // self._letter_bytes if slot is not None else 0
            yield Load(peer.number, clients[seat] + expected[seat] + letters, peer.gauge.busy)

    # -- the kernel's choice

    def _lead(self, astray: bool) -> None:
        """Let the next clients arrive where they will stay; `astray`: this one has not, so others think otherwise."""
        coming = self._placement.next("pack", self._worker.fleet.number)
        if astray or coming != self._steered:
            self._steer(coming)

    def _steer(self, number: int) -> None:
        """The next ones arrive there at once. Others may say otherwise a moment later; nothing depends on it."""
        self._steered = number
        if self._worker.config.settings.so_reuseport:
            return  # strangers may share the port
        for fd in self._worker.listeners.tcp_descriptors():
            sock = socket.socket(fileno=fd)
            try:
                with suppress(OSError):
                    steer.steer(sock, number)
            finally:
                sock.detach()


def _unread_bytes(slot: socket.socket) -> int:
    """What lies in a box, in the kernel's own measure."""
    answer: bytes = fcntl.ioctl(slot.fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    return int(_INT.unpack(answer)[0])


def _letter_bytes() -> int:
    """How large a letter is in that measure."""
    slot, box = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with slot, box:
        _write(slot, box.fileno(), _TCP)
        return max(1, _unread_bytes(slot))


def _write(slot: socket.socket, fd: int, kind: bytes) -> None:
    slot.sendmsg([kind], rights(fd), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def _cpu_us(pid: int) -> int:
    return int((_PROC / str(pid) / "schedstat").read_text().split()[0]) // 1000
