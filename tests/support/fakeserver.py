"""A scripted PostgreSQL server that may lie: a function of the test decides every byte it sends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tests.support import messages as m
from tests.support.fakeclient import Closed, Message

WELCOME = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "application_name": "",
}


class ServerSide:
    """One accepted connection, in the hands of the script; it records every message the pooler sent."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.socket = sock
        self.number = number
        self.startup: dict[str, str] = {}
        self.received: list[Message] = []
        self.cancel_key = struct.pack("!ii", 4000 + number, 0x5EC2E7)

    def send(self, *parts: bytes) -> None:
        """Sends bytes as they are."""
        self.socket.sendall(b"".join(parts))

    def read_bytes(self, count: int) -> bytes:
        """Exactly that many bytes."""
        taken = b""
        while len(taken) < count:
            chunk = self.socket.recv(count - len(taken))
            if not chunk:
                raise Closed("the pooler closed the connection")
            taken += chunk
        return taken

    def read_startup(self, tls_answer: bytes = b"N") -> bytes:
        """The untyped first packet, after refusing TLS and GSS; fills `startup` and returns the packet's body."""
        while True:
            (length,) = struct.unpack("!i", self.read_bytes(4))
            body = self.read_bytes(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code in (80877103, 80877104):
                self.send(tls_answer)
                continue
            if code >> 16 == 3:
                words = [w.decode() for w in body[4:].split(b"\0")]
                self.startup = dict(zip(words[0:-2:2], words[1:-1:2], strict=False))
            return body

    def read(self) -> Message:
        """The next typed message, recorded."""
        head = self.read_bytes(5)
        (length,) = struct.unpack("!i", head[1:])
        got = Message(chr(head[0]), self.read_bytes(length - 4))
        self.received.append(got)
        return got

    def read_until(self, kinds: str) -> list[Message]:
        """All messages up to one whose type is among `kinds`."""
        found = [self.read()]
        while found[-1].kind not in kinds:
            found.append(self.read())
        return found

    def welcome(self, **changed: str) -> None:
        """AuthenticationOk, parameters, key and ReadyForQuery."""
        parameters = {**WELCOME, **changed}
        states = [m.parameter_status(k, v) for k, v in parameters.items()]
        self.send(m.auth(0), *states, m.message(b"K", self.cancel_key), m.ready())

    def log_in(self, **changed: str) -> None:
        """A whole trusting login."""
        self.read_startup()
        self.welcome(**changed)

    def answer_rows(self, *values: str) -> None:
        """The answer of a simple query with one text column."""
        rows: Iterable[bytes] = (m.data_row(v) for v in values)
        self.send(m.row_description("value"), *rows, m.command_complete(f"SELECT {len(values)}"), m.ready())

    def hold(self) -> None:
        """Reads and ignores until the pooler closes."""
        while self.socket.recv(65536):
            pass


Script = Callable[[ServerSide], None]


def honest(server: ServerSide) -> None:
    """A script that logs in and answers each simple query with its own text, each Sync with ReadyForQuery."""
    server.log_in()
    while True:
        got = server.read()
        if got.kind == "Q":
            server.answer_rows(got.payload[:-1].decode())
        elif got.kind == "S":
            server.send(m.ready())
        elif got.kind == "X":
            return


class FakeServer:
    """Listens on a loopback port and runs the script once per connection; a script's own mistake fails the test."""

    host = "127.0.0.1"

    def __init__(self, script: Script = honest) -> None:
        self.script = script
        self.connections: list[ServerSide] = []
        self.failures: list[BaseException] = []
        self.changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((self.host, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(30)
            with self.changed:
                server = ServerSide(sock, len(self.connections))
                self.connections.append(server)
                self.changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(server,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, server: ServerSide) -> None:
        try:
            self.script(server)
        except (Closed, OSError):
            pass  # the pooler hung up, which is often what the test wants
        except BaseException as error:
            self.failures.append(error)
        finally:
            server.socket.close()

    def wait_for(self, count: int, limit_s: float = 10.0) -> ServerSide:
        """Waits for the count-th connection (from 1) and returns it."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.connections) >= count, limit_s):
                raise TimeoutError(f"{len(self.connections)} connections came, {count} were expected")
            return self.connections[count - 1]

    def database(self, dbname: str = "app", **more: object) -> str:
        """A [databases] line for this server."""
        facts = {"host": self.host, "port": self.port, "dbname": dbname, **more}
        return " ".join(f"{key}={value}" for key, value in facts.items())

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(5)
        for server in self.connections:
            try:
                server.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)
        if self.failures and error is None:
            raise self.failures[0]
