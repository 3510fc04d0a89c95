"""A bad network between two parties: bytes late, in small pieces, or cut off in the middle."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass
class Fault:
    """What happens to one direction; the defaults do nothing. It may be changed while traffic flows."""

    chunk: int = 0  # at most so many bytes in one write, 0 = as they come
    delay_s: float = 0.0  # before each write
    cut_after: int = -1  # bytes of a connection after which it is torn down, -1 = never
    stalled: bool = False  # nothing passes while true


class BrokenProxy:
    """Forwards a loopback port to an address; `up` goes towards the target, `down` comes back."""

    host = "127.0.0.1"

    def __init__(self, target: tuple[str, int], *, up: Fault | None = None, down: Fault | None = None) -> None:
        self.target = target
        self.up, self.down = up or Fault(), down or Fault()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._listener = socket.create_server((self.host, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, 10)
            except OSError:
                near.close()
                continue
            for sock in (near, far):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((near, far))
            for source, sink, fault in ((near, far, self.up), (far, near, self.down)):
                thread = threading.Thread(target=self._pump, args=(source, sink, fault), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, fault: Fault) -> None:
        passed = 0
        try:
            while block := source.recv(65536):
                size = fault.chunk or len(block)
                for at in range(0, len(block), size):
                    piece = block[at : at + size]
                    self._wait(fault)
                    if 0 <= fault.cut_after < passed + len(piece):
                        sink.sendall(piece[: fault.cut_after - passed])
                        tear(source, sink)
                        return
                    sink.sendall(piece)
                    passed += len(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            tear(source, sink)

    def _wait(self, fault: Fault) -> None:
        if fault.delay_s:
            self._closing.wait(fault.delay_s)
        while fault.stalled and not self._closing.is_set():
            time.sleep(0.005)

    @property
    def connections(self) -> int:
        """How many connections have come so far."""
        return len(self._pairs)

    def cut(self) -> None:
        """Tears down every connection that is open now."""
        for near, far in self._pairs:
            tear(near, far)

    def database(self, dbname: str = "app", **more: object) -> str:
        """A [databases] line that leads through this proxy."""
        facts = {"host": self.host, "port": self.port, "dbname": dbname, **more}
        return " ".join(f"{key}={value}" for key, value in facts.items())

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(5)
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for pair in self._pairs:
            for sock in pair:
                sock.close()


def tear(*socks: socket.socket) -> None:
    """Ends both directions of the sockets; another thread may have done so already."""
    for sock in socks:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
