"""Clients behind a balancer: their PROXY header is read here, before the engine has the socket."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgshoal.errors import Refused
from pgshoal.policy.proxy import is_balancer
from pgshoal.wire.errors import WireError
from pgshoal.wire.proxy import Passed, ProxyHeader
from pgshoal.worker.log import place

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker
    from pgshoal.worker.client_login import ClientLogin

#: The engine tells of every connection it has adopted within a tick; one it has not told of by then has ended.
_UNTOLD_US: Final = 10_000_000
_MISSING: Final = "PROXY header missing"


@dataclass(slots=True)
class _Arrival:
    """A balancer's socket whose header is not whole yet."""

    sock: socket.socket
    listener: int
    where: str
    since_us: int
    header: ProxyHeader


@dataclass(frozen=True, slots=True)
class _Read:
    """What a header said, and when; and when the socket was accepted."""

    passed: Passed | None
    since_us: int
    read_us: int


class Proxied:
    """With proxy_protocol = on: every TCP client comes by here. Whose header was not read is no client of ours."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        #: it needs a restart, so it holds for every socket of this process
        self.on = worker.config.settings.proxy_protocol == "on"
        self._arrivals: dict[int, _Arrival] = {}  # by descriptor
        # By inode: that is the socket's own as long as anybody has it, whatever number its descriptor gets.
        self._read: dict[int, _Read] = {}

    def take(self, fd: int, listener: int) -> None:
        """A TCP socket that nobody has read from; it is ours from now on. OSError if it is none any more."""
        sock = socket.socket(fileno=fd)
        if sock.family == socket.AF_UNIX:
            self._worker.engine.adopt(sock.detach(), listener)
            return
        try:
            host, port = sock.getpeername()[:2]
        except OSError:
            sock.close()
            raise
        if not self._trusts(host):
            # A header from there is no startup packet, and refused as any other rubbish.
            self._worker.engine.adopt(sock.detach(), listener)
            return
        sock.setblocking(False)
        arrival = _Arrival(sock, listener, place(host, port), self._worker.engine.now_us(), ProxyHeader())
        if self._advance(arrival):
            return
        self._arrivals[fd] = arrival
        self._worker.front.arriving += 1
        self._worker.loop.add_reader(fd, self._readable, fd)

    def _trusts(self, host: str) -> bool:
        return is_balancer(self._worker.config.settings.proxy_protocol_networks, host)

    def _readable(self, fd: int) -> None:
        arrival = self._arrivals[fd]
        if self._advance(arrival, watched=True):
            self._worker.settle()

    def _advance(self, arrival: _Arrival, watched: bool = False) -> bool:
        """Read what is there, never more than the header; False if it must come again."""
        sock, header = arrival.sock, arrival.header
        try:
            while not header.done:
                data = sock.recv(header.missing)
                if not data:
                    self._drop(arrival, "", watched)
                    return True
                header.feed(data)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._drop(arrival, "", watched)
            return True
        except WireError as error:
            self._drop(arrival, error.reason, watched)
            return True
        if watched:
            self._unwatch(arrival)
        self._read[os.fstat(sock.fileno()).st_ino] = _Read(
            header.passed, arrival.since_us, self._worker.engine.now_us()
        )
        try:
            self._worker.engine.adopt(sock.detach(), arrival.listener)
        except (OSError, ValueError) as error:
            self._worker.log.debug(f"accepted socket lost: {error}")
        return True

    def _unwatch(self, arrival: _Arrival) -> None:
        fd = arrival.sock.fileno()
        self._worker.loop.remove_reader(fd)
        del self._arrivals[fd]
        self._worker.front.arriving -= 1

    def _drop(self, arrival: _Arrival, reason: str, watched: bool = True) -> None:
        """A balancer that only looks whether the port is open leaves without a word, and gets no line."""
        if watched:
            self._unwatch(arrival)
        arrival.sock.close()
        if reason:
            self._worker.log.warning(f"closing connection from {arrival.where}: {reason}")

    # -- what the engine tells

    def announce(self, login: ClientLogin) -> None:
        """The engine tells of a connection: give it its addresses, or refuse it."""
        if login.peer_host == "unix":
            return
        inode = os.fstat(self._worker.engine.descriptor(login.conn)).st_ino
        read = self._read.pop(inode, None)
        if read is None:
            # Nothing gets here around `take`; if it does, a balancer's address must not pass for a client's.
            if self._trusts(login.peer_host):
                login.refuse(Refused("bad_packet", _MISSING, "08P01", "FATAL", "", True))
            return
        login.connect_us = read.since_us
        passed = read.passed
        if passed is not None:
            login.peer_host, login.peer_port = passed.peer_host, passed.peer_port
            login.local_host, login.local_port = passed.local_host, passed.local_port

    # -- now and then

    def tick(self) -> None:
        """About three times a second: client_login_timeout holds for headers, too."""
        if not self.on:
            return
        now_us = self._worker.engine.now_us()
        limit_us = self._worker.config.settings.client_login_timeout * 1e6
        for arrival in list(self._arrivals.values()):
            if 0 < limit_us < now_us - arrival.since_us:
                self._drop(arrival, "client_login_timeout")
        for inode in [inode for inode, read in self._read.items() if now_us - read.read_us > _UNTOLD_US]:
            del self._read[inode]

    def close(self) -> None:
        """The end."""
        for arrival in list(self._arrivals.values()):
            self._drop(arrival, "")
