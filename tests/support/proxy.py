"""A bad network between two parties: bytes late, joined, in pieces, rewritten, held up, or cut off in three ways."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields
from enum import Enum
from types import TracebackType
from typing import Self

BLOCK = 65536
STALL_CHECK_S = 0.005
CALL_LIMIT_S = 10.0


class Ending(Enum):
    """How a connection that is cut off ends."""

    CLOSE = "both parties see the end of the stream"
    RESET = "both parties see a reset"
    HALF = "the reader sees the end of the stream, the writer notices nothing, and the other direction goes on"


@dataclass
class Fault:
    """What happens to one direction; the defaults do nothing. It may be changed while traffic flows."""

    chunk: int | tuple[int, ...] = 0  # at most so many bytes in one write, several numbers in turn; 0 = as they come
    delay_s: float = 0.0  # before each write
    jitter_s: float = 0.0  # and up to so much more, so that answers of several connections overtake each other
    join_s: float = 0.0  # bytes are gathered for so long, then written at once
    cut_within: int = 0  # each connection is ended before so many more bytes have passed, 0 = never
    ending: Ending = Ending.CLOSE
    stalled: bool = False  # nothing passes while true
    #: Other bytes instead, for the connection of that number.
    rewrite: Callable[[int, bytes], bytes] | None = None

    def become(self, other: Fault) -> None:
        """Do from now on what the other does."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))


class _Cut(Exception):
    """Both directions of this connection are to end now."""


class _Line:
    """One connection through the proxy."""

    def __init__(self, number: int, near: socket.socket, far: socket.socket) -> None:
        self.number, self.near, self.far = number, near, far
        self.ending = Ending.CLOSE
        self._dice = random.Random(number)
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self, target: tuple[str, int], up: Fault, down: Fault) -> None:
        """Until both directions have ended, or one of them in a way that ends both."""
        ways = ((self.near, self.far, up), (self.far, self.near, down))
        pumps: list[asyncio.Task[None]] = []
        try:
            await asyncio.get_running_loop().sock_connect(self.far, target)
            pumps += [asyncio.create_task(self._pump(*way)) for way in ways]
            await asyncio.gather(*pumps)
        except _Cut:
            pass
        except OSError:
            self.ending = Ending.RESET  # as it came
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """Ends it for both parties, the way `ending` says."""
        for sock in (self.near, self.far):
            if self.ending is Ending.RESET and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    async def _pump(self, source: socket.socket, sink: socket.socket, fault: Fault) -> None:
        left = -1  # bytes until the cut
        loop = asyncio.get_running_loop()
        async for piece in self._pieces(source, fault):
            await self._wait(fault)
            if not fault.cut_within:
                left = -1
            elif left < 0:
                left = self._dice.randrange(fault.cut_within)
            if 0 <= left < len(piece):
                await loop.sock_sendall(sink, piece[:left])
                self.ending = fault.ending
                if fault.ending is not Ending.HALF:
                    raise _Cut
                break
            await loop.sock_sendall(sink, piece)
            left -= len(piece) if left >= 0 else 0
        sink.shutdown(socket.SHUT_WR)

    async def _pieces(self, source: socket.socket, fault: Fault) -> AsyncIterator[bytes]:
        loop, turn = asyncio.get_running_loop(), 0
        while block := await loop.sock_recv(source, BLOCK):
            if fault.join_s:
                await asyncio.sleep(fault.join_s)
                block += waiting(source)
            if fault.rewrite is not None:
                block = fault.rewrite(self.number, block)
            while block:
                sizes = fault.chunk if isinstance(fault.chunk, tuple) else (fault.chunk,)
                size = sizes[turn % len(sizes)] or len(block)
                turn += 1
                yield block[:size]
                block = block[size:]

    async def _wait(self, fault: Fault) -> None:
        if fault.delay_s or fault.jitter_s:
            await asyncio.sleep(fault.delay_s + self._dice.uniform(0, fault.jitter_s))
        while fault.stalled:
            await asyncio.sleep(STALL_CHECK_S)


def waiting(source: socket.socket) -> bytes:
    """What has come meanwhile."""
    try:
        return source.recv(BLOCK)
    except BlockingIOError:
        return b""


class BrokenProxy:
    """Forwards a loopback port to an address; `up` goes towards the target, `down` comes back."""

    host = "127.0.0.1"

    def __init__(self, target: tuple[str, int], *, up: Fault | None = None, down: Fault | None = None) -> None:
        self.target = target
        self.up, self.down = up or Fault(), down or Fault()
        #: how many connections have come so far
        self.connections = 0
        self._open: dict[asyncio.Task[None], _Line] = {}
        self._listener = socket.create_server((self.host, 0), backlog=64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._over.wait()
        accepting.cancel()
        await self._end(Ending.CLOSE)

    async def _accept(self) -> None:
        while True:
            near, _ = await self._loop.sock_accept(self._listener)
            line = _Line(self.connections, near, socket.socket())
            self.connections += 1
            task = asyncio.create_task(line.run(self.target, self.up, self.down))
            self._open[task] = line
            task.add_done_callback(self._open.pop)

    async def _end(self, ending: Ending) -> None:
        lines = dict(self._open)
        for task, line in lines.items():
            line.ending = ending
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)
        for line in lines.values():
            line.close()  # whose task had not begun

    def cut(self, ending: Ending = Ending.CLOSE) -> None:
        """Ends every connection that is open now, both directions."""
        asyncio.run_coroutine_threadsafe(self._end(ending), self._loop).result(CALL_LIMIT_S)

    def database(self, dbname: str = "app", **more: object) -> str:
        """A [databases] line that leads through this proxy."""
        facts = {"host": self.host, "port": self.port, "dbname": dbname, **more}
        return " ".join(f"{key}={value}" for key, value in facts.items())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(CALL_LIMIT_S)
        self._listener.close()
