"""A bare client for measuring: it logs in without a password and throws away what it reads."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

READY = b"Z\0\0\0\5"
BLOCK = 1 << 20
WAIT_S = 120.0


def startup_packet(user: str, dbname: str) -> bytes:
    """A startup packet of protocol 3.0."""
    body = struct.pack("!i", 196608) + b"".join(w.encode() + b"\0" for w in ("user", user, "database", dbname)) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


class RawClient:
    """One connection through a pooler."""

    def __init__(self, host: str, port: int, user: str, dbname: str, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(WAIT_S)
        try:
            self.socket.connect((host, port))
            self.socket.sendall(startup_packet(user, dbname))
            self.drain()
        except BaseException:
            self.socket.close()
            raise

    def query(self, sql: str) -> None:
        """Sends a simple query."""
        text = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)

    def drain(self) -> int:
        """Reads up to ReadyForQuery and returns the number of bytes; RuntimeError when an error ends the connection."""
        total, tail, block = 0, b"", bytearray(BLOCK)
        view = memoryview(block)
        while True:
            count = self.socket.recv_into(block)
            if count == 0:
                raise RuntimeError(f"the pooler closed the connection: {tail!r}")
            total += count
            tail = (tail + bytes(view[max(count - 256, 0) : count]))[-256:]
            if tail[-6:-1] == READY:
                if tail.startswith(b"E") or b"SERROR" in tail:
                    raise RuntimeError(f"the server answered with an error: {tail!r}")
                return total

    def push(self, data: bytes, most: int, patience_s: float) -> int:
        """Sends `data` over and over until nobody takes it for that long, or `most` bytes; returns the count."""
        self.socket.settimeout(patience_s)
        sent = 0
        try:
            while sent < most:
                sent += self.socket.send(memoryview(data)[sent % len(data) :])
        except TimeoutError:
            pass  # back-pressure: what this measurement is about
        return sent

    def close(self) -> None:
        """Closes without ceremony."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
