"""The driver without sockets: tests hand in bytes and take the output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pgshoal.engine.contract import Event
from pgshoal.engine.python.conn import CLOSING, FROZEN, MOVING, Client, Conn, Server
from pgshoal.engine.python.frames import ERR_CRASHED
from pgshoal.engine.python.moving import client_from

if TYPE_CHECKING:
    from pgshoal.engine.python.core import Core


class ManualDriver:
    """Output stands in the connections until it is taken."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """Nothing to wait for."""
        return []

    def watch(self, fd: int, mask: int) -> None:
        """Nothing is watched."""

    def unwatch(self, fd: int) -> None:
        """Nothing is watched."""

    def flush(self) -> None:
        """Output waits for `output`."""
        dirty = self._core.dirty
        for conn in dirty:
            conn.dirty = False
            if conn.mode is MOVING and not conn.out and not conn.gone:
                assert isinstance(conn, Client)
                self._core.moved(conn, -1)
        dirty.clear()

    def resume(self, conn: Conn) -> None:
        """Reading is a question here."""

    def shutdown(self) -> None:
        """Nothing to close."""

    def listen(self, fd: int, listener: int, options: Any) -> None:
        """Nothing to accept from."""

    def pause_listener(self, listener: int) -> None:
        """Nothing to pause."""

    def resume_listener(self, listener: int) -> None:
        """Nothing to resume."""

    def unlisten(self, listener: int) -> None:
        """Nothing to forget."""

    def divert(self, on: bool) -> None:
        """Nothing to accept."""

    def adopt(self, fd: int, listener: int) -> None:
        """There are no sockets."""
        os.close(fd)
        raise RuntimeError("the driver manual has no sockets")

    def arrive(self, fd: int, listener: int, state: bytes) -> Client:
        """A client from elsewhere; there is no descriptor: -1."""
        if fd >= 0:
            self.adopt(fd, listener)
        return client_from(self._core, listener, state)

    def encrypted(self, conn: Conn) -> bool:
        """There is no TLS."""
        return False

    def descriptor(self, conn: Conn) -> int:
        """There are no sockets."""
        raise RuntimeError("the driver manual has no sockets")

    def connect(self, server: Server, address: Any, options: Any) -> None:
        """Waits for `connected`."""

    def addresses(self, conn: Conn) -> tuple[str, int, str, int]:
        """No socket, no address."""
        return ("unix", 0, "unix", 0)

    def credentials(self, conn: Conn) -> tuple[int, int, int]:
        """No socket, no peer."""
        raise RuntimeError("not a Unix socket")

    def start_tls(self, conn: Conn, context: Any, server_name: str, early: bytes) -> None:
        """There is no TLS without sockets."""
        raise RuntimeError("the driver manual has no TLS")

    # -- what tests do

    def set_now(self, now_us: int) -> None:
        """Set the clock."""
        self._core.now = now_us

    def accept(self, listener: int) -> int:
        """A client."""
        return self._core.accepted(listener).id

    def connected(self, server: Server) -> None:
        """A connection to a server is up."""
        if not server.connecting:
            raise RuntimeError("the connection is up already")
        server.connecting = False
        self._core.emit((Event.CONNECTED, server.id))

    def received(self, conn: Conn, data: bytes) -> None:
        """Bytes."""
        if data:
            self._core.received(conn, data)
        self.flush()

    def received_eof(self, conn: Conn) -> None:
        """The end of a stream."""
        core = self._core
        if conn.mode is CLOSING:
            core.forget(conn)
        elif conn.mode is not FROZEN:
            core.lost(conn, ERR_CRASHED if conn.is_server else "client unexpected eof")
            core.settle()
        self.flush()

    def output(self, conn: Conn) -> bytes:
        """All output; a closing connection is gone then."""
        data = b"".join(conn.out)
        conn.out.clear()
        conn.out_size = 0
        self._core.flushed(conn)
        if conn.mode is CLOSING:
            self._core.forget(conn)
        elif conn.mode is MOVING:
            self._core.touch(conn)
            self.flush()
        return data

    def reading(self, conn: Conn) -> bool:
        """Whether bytes are wanted."""
        return self._core.reading(conn)
