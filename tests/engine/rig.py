"""One engine with a real listener, driven by hand."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any

import pytest

from pgshoal.engine.contract import ConnId, Engine, Event, SocketOptions

STARTUP = struct.pack("!II", 8, 196608)
SSL_REQUEST = struct.pack("!II", 8, 80877103)
OPTIONS = SocketOptions()


class Rig:
    """One engine with a TCP listener, driven by hand."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.listener = socket.create_server(("127.0.0.1", 0))
        engine.listen(self.listener.fileno(), 1, OPTIONS)
        self.seen: list[tuple[Any, ...]] = []
        self.clients: list[socket.socket] = []

    def close(self) -> None:
        self.engine.shutdown()
        self.listener.close()
        for client in self.clients:
            client.close()

    def turn(self, timeout_s: float = 0.05) -> None:
        """Lets the engine work once; what comes of it is added to `seen`."""
        self.engine.wait(timeout_s)
        self.seen.extend(self.engine.events())

    def expect(self, kind: Event, conn: ConnId | None = None) -> tuple[Any, ...]:
        """The next event of that kind (and connection), taken out of `seen`."""
        for _ in range(400):
            for event in self.seen:
                if event[0] == kind and conn in (None, event[1]):
                    self.seen.remove(event)
                    return event
            self.turn()
        pytest.fail(f"no {kind.name} came, only {self.seen}")

    def client(self) -> tuple[socket.socket, ConnId]:
        """A connected client, accepted by the engine."""
        sock = socket.create_connection(self.listener.getsockname(), timeout=10)
        self.clients.append(sock)
        return sock, self.expect_client()[1]

    def expect_client(self) -> tuple[Any, ...]:
        """ACCEPTED of a client that has said nothing yet."""
        for _ in range(400):
            self.engine.overdue(0)
            self.turn(0.01)
            if any(event[0] == Event.ACCEPTED for event in self.seen):
                break
        return self.expect(Event.ACCEPTED)

    def receive(self, sock: socket.socket, count: int) -> bytes:
        """So many bytes, or fewer if the end comes before."""
        sock.setblocking(False)
        data = bytearray()
        for _ in range(10_000):
            try:
                more = sock.recv(min(65536, count - len(data)))
            except (BlockingIOError, ssl.SSLWantReadError):
                self.turn(0.01)
                continue
            if not more:
                break
            data += more
            if len(data) == count:
                break
        return bytes(data)

    def handshake(self, sock: socket.socket, context: ssl.SSLContext, name: str | None = None) -> ssl.SSLSocket:
        """The client's side of a TLS handshake."""
        wrapped = context.wrap_socket(
            sock, server_hostname=name, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self.clients.append(wrapped)
        wrapped.setblocking(False)
        for _ in range(400):
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                self.turn(0.01)
            else:
                return wrapped
        pytest.fail("the handshake does not end")
