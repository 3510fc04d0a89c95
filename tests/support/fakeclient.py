"""A client that speaks bytes: every message, cut and order a test wants, with nothing interpreted on the way."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support import messages as m
from tests.support.scram import ScramClient


class Message(NamedTuple):
    """A message as it came: its type letter and what follows the length."""

    kind: str
    payload: bytes


class Closed(Exception):
    """The other side closed the connection."""


class LoginRefused(Exception):
    """The server answered the login with an ErrorResponse."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(f"{fields.get('C')}: {fields.get('M')}")
        self.fields = fields


class FakeClient:
    """A connection to a pooler or server; `wait_s` bounds every read."""

    def __init__(self, address: tuple[str, int] | str, wait_s: float = 10.0, source: str = "") -> None:
        """`source`: the address to come from."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(wait_s)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.wait_s = wait_s
        self.parameters: dict[str, str] = {}
        self.key = b""
        self._buffer = b""

    def send(self, *parts: bytes) -> None:
        """Writes everything in one piece."""
        self.socket.sendall(b"".join(parts))

    def send_cut(self, *parts: bytes, size: int = 1, pause_s: float = 0.0) -> None:
        """Writes in pieces of `size` bytes, each a packet of its own (TCP_NODELAY)."""
        whole = b"".join(parts)
        for at in range(0, len(whole), size):
            self.socket.sendall(whole[at : at + size])
            if pause_s:
                time.sleep(pause_s)

    def read_bytes(self, count: int) -> bytes:
        """Exactly that many bytes; Closed when the connection ends before."""
        while len(self._buffer) < count:
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed(f"connection closed, {len(self._buffer)} bytes unread: {self._buffer[:80]!r}")
            self._buffer += chunk
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def read(self) -> Message:
        """The next message."""
        head = self.read_bytes(5)
        (length,) = struct.unpack("!i", head[1:])
        if length < 4:
            raise AssertionError(f"a message of length {length} came: {head!r}")
        return Message(chr(head[0]), self.read_bytes(length - 4))

    def read_until(self, kinds: str = "Z") -> list[Message]:
        """All messages up to the first whose type is among `kinds`, that one included."""
        found = [self.read()]
        while found[-1].kind not in kinds:
            found.append(self.read())
        return found

    def read_to_end(self) -> list[Message]:
        """All messages until the other side closes."""
        found = []
        try:
            while True:
                found.append(self.read())
        except Closed:
            return found

    def silent_for(self, seconds: float) -> bool:
        """Whether nothing arrives for that long."""
        if self._buffer:
            return False
        self.socket.settimeout(seconds)
        try:
            self._buffer += self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(self.wait_s)
        return False

    def ask(self, *parts: bytes) -> list[Message]:
        """Sends and reads up to ReadyForQuery."""
        self.send(*parts)
        return self.read_until("Z")

    def query(self, sql: str) -> list[Message]:
        """A simple query and all its answers."""
        return self.ask(m.query(sql))

    def login(
        self,
        user: str,
        dbname: str,
        password: str = "",
        **parameters: Any,
    ) -> list[Message]:
        """Logs in by the method asked for, returns all messages up to ReadyForQuery.

        `protocol` is the version to ask for, `cut=1` writes single bytes; all else are startup parameters.
        """
        protocol: int = parameters.pop("protocol", m.PROTOCOL_3_0)
        cut: int = parameters.pop("cut", 0)
        packet = m.startup({"user": user, "database": dbname, **parameters}, protocol)
        if cut:
            self.send_cut(packet, size=cut)
        else:
            self.send(packet)
        return self.finish_login(user, password, cut)

    def finish_login(self, user: str, password: str, cut: int = 0) -> list[Message]:
        """Answers authentication requests until ReadyForQuery, noting parameters and the cancel key."""
        seen: list[Message] = []
        scram = ScramClient(password)
        while True:
            got = self.read()
            seen.append(got)
            if got.kind == "R":
                reply = answer_auth(got.payload, user, password, scram)
                self.send_cut(reply, size=cut or max(len(reply), 1))
            elif got.kind == "E":
                raise LoginRefused(m.error_fields(got.payload))
            elif got.kind == "S":
                name, value = got.payload.split(b"\0")[:2]
                self.parameters[name.decode()] = value.decode()
            elif got.kind == "K":
                self.key = got.payload
            elif got.kind == "Z":
                return seen

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Asks for TLS and makes the handshake; before the login."""
        self.send(m.SSL_REQUEST)
        assert self.read_bytes(1) == b"S"
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def close(self) -> None:
        """Closes without a Terminate message."""
        self.socket.close()

    def reset(self) -> None:
        """Closes with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def answer_auth(payload: bytes, user: str, password: str, scram: ScramClient) -> bytes:
    """The reply to an authentication request; nothing for AuthenticationOk and for the end of SCRAM."""
    (code,) = struct.unpack("!i", payload[:4])
    rest = payload[4:]
    if code == 3:
        return m.message(b"p", m.text(password))
    if code == 5:
        inner = hashlib.md5((password + user).encode()).hexdigest()
        return m.message(b"p", m.text("md5" + hashlib.md5(inner.encode() + rest).hexdigest()))
    if code == 10:
        first = scram.first()
        return m.message(b"p", m.text("SCRAM-SHA-256") + struct.pack("!i", len(first)) + first)
    if code == 11:
        return m.message(b"p", scram.answer(rest))
    if code == 12:
        scram.check(rest)
    elif code != 0:
        raise AssertionError(f"authentication request {code} is not understood")
    return b""
