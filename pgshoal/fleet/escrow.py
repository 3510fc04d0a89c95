"""What the supervisor keeps of a server connection of a worker: a duplicate of its socket, and how to cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass, field
from typing import Any, Final

#: Cancel connections to one host at the same time: each costs PostgreSQL a process.
CANCELS_AT_ONCE: Final = 16


@dataclass(slots=True, eq=False)
class Held:
    """One server socket in escrow; `dying` from the moment when nobody uses it any more."""

    seat: int
    server: int
    rows: list[int]
    host: str
    port: int
    tls: bool
    sock: socket.socket
    database: str  # the entry, whose TLS settings a cancel request needs
    key: bytes = field(default=b"", repr=False)
    dying: bool = False
    since_s: float = 0.0  # loop time: of its dying, or of the last byte that came since
    tries: int = 0
    cancelling: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def where(self) -> tuple[str, int]:
        """Where its server listens."""
        return self.host, self.port

    def export(self) -> dict[str, Any]:
        """As JSON, with the descriptor's number."""
        names = ("seat", "server", "rows", "host", "port", "tls", "database", "dying")
        return {**{name: getattr(self, name) for name in names}, "key": self.key.hex(), "fd": self.sock.fileno()}

    @classmethod
    def adopted(cls, state: dict[str, Any]) -> Held:
        """From what `export` gave; its descriptor is ours. `dying` is left to the caller."""
        fd = int(state["fd"])
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        seat, server, rows = int(state["seat"]), int(state["server"]), [int(row) for row in state["rows"]]
        where, key = (state["host"], int(state["port"])), bytes.fromhex(state["key"])
        # A version before this one did not know the entry.
        return cls(seat, server, rows, *where, bool(state["tls"]), sock, state.get("database", ""), key)


@dataclass(slots=True, eq=False)
class Host:
    """Whether a server answers cancel connections."""

    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CANCELS_AT_ONCE))
    answered_s: float = float("-inf")
    #: when the first attempt since the last answer began; None if all were answered
    silent_since_s: float | None = None
    complained_s: float = float("-inf")


def ended(sock: socket.socket) -> bool:
    """Whether the end of the connection has come, as far as can be seen without reading."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


def shut(sock: socket.socket) -> None:
    """Say that nothing more comes; a connection still being made is taken back. Twice does no harm."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
