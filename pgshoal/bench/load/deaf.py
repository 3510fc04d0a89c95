"""A server that accepts logins and a COPY, and then never reads again."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self

WELCOME = {"server_version": "15.0", "client_encoding": "UTF8", "DateStyle": "ISO, MDY", "TimeZone": "UTC"}
COPY_IN = b"G" + struct.pack("!ibh", 7, 0, 0)
HEAD = struct.Struct("!ii")
#: SSLRequest and GSSENCRequest: both are answered with a no.
WISHES = (80877103, 80877104)


def welcome() -> bytes:
    """AuthenticationOk, parameters, key, ReadyForQuery."""
    out = b"R" + struct.pack("!ii", 8, 0)
    for name, value in {**WELCOME, "standard_conforming_strings": "on", "IntervalStyle": "postgres"}.items():
        body = f"{name}\0{value}\0".encode()
        out += b"S" + struct.pack("!i", len(body) + 4) + body
    return out + b"K" + struct.pack("!iii", 12, 1, 1) + b"Z\0\0\0\5I"


class DeafServer:
    """Listens on loopback; connections stay open until the end."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            conn.settimeout(10)
            self._open.append(conn)
            try:
                self._greet(conn)
            except OSError:
                continue

    def _greet(self, conn: socket.socket) -> None:
        """Up to the answer to a COPY; who leaves before, a port probe for one, is let go."""
        while len(packet := conn.recv(4096)) >= HEAD.size and HEAD.unpack_from(packet)[1] in WISHES:
            conn.sendall(b"N")
        if len(packet) < HEAD.size:
            return
        conn.sendall(welcome())
        while (query := conn.recv(65536)) and b"copy" not in query:
            conn.sendall(b"C\0\0\0\x08SET\0Z\0\0\0\5I")
        if query:
            conn.sendall(COPY_IN)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(15)
        for conn in self._open:
            conn.close()
