"""A raw connection for asyncio: every byte is the caller's, and it leaves in whatever way it likes."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from typing import Self

from tests.support import messages as m
from tests.support.fakeclient import LoginRefused, Message

Address = tuple[str, int]


class Wire:
    """Logged in by trust; the end of the stream is an IncompleteReadError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.key = b""

    @classmethod
    async def reach(cls, address: Address, tls: ssl.SSLContext | None) -> Self:
        """Connected, with TLS if there is a context; no startup packet was sent."""
        made = cls(*await asyncio.open_connection(*address))
        try:
            if tls is not None:
                made.send(m.SSL_REQUEST)
                await made._reader.readexactly(1)
                await made._writer.start_tls(tls, server_hostname="localhost")
        except BaseException:
            made.leave(reset=True)
            raise
        return made

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext | None, parameters: dict[str, str]) -> Self:
        """Logged in."""
        made = await cls.reach(address, tls)
        try:
            made.send(m.startup(parameters))
            (made.key,) = [message.payload for message in await made.until() if message.kind == "K"]
        except BaseException:
            made.leave(reset=True)
            raise
        return made

    def send(self, *parts: bytes) -> None:
        """In one piece."""
        self._writer.write(b"".join(parts))

    async def send_cut(self, dice: random.Random, *parts: bytes) -> None:
        """In pieces of any size."""
        whole = b"".join(parts)
        while whole:
            size = dice.randrange(1, len(whole) + 1)
            self._writer.write(whole[:size])
            whole = whole[size:]
            await self._writer.drain()
            await asyncio.sleep(0)

    async def read(self) -> Message:
        """The next message."""
        kind, length = struct.unpack("!cI", await self._reader.readexactly(5))
        return Message(kind.decode("latin-1"), await self._reader.readexactly(length - 4))

    async def until(self, kinds: str = "Z") -> list[Message]:
        """All messages up to one of these; a FATAL is a LoginRefused."""
        found: list[Message] = []
        while not found or found[-1].kind not in kinds:
            found.append(await self.read())
            if found[-1].kind == "E" and (fields := m.error_fields(found[-1].payload))["S"] == "FATAL":
                raise LoginRefused(fields)
        return found

    async def ask(self, *parts: bytes) -> list[Message]:
        """Sends, and reads up to ReadyForQuery."""
        self.send(*parts)
        return await self.until()

    async def cancel(self, address: Address, tls: ssl.SSLContext | None) -> None:
        """Asks for the end of what runs, and waits until the request has been dealt with."""
        other = await Wire.reach(address, tls)
        other.send(m.cancel_request(self.key))
        await other._reader.read()
        other.leave()

    def leave(self, *, reset: bool = False) -> None:
        """Without a word, by the end of the stream or by a reset."""
        sock = self._writer.get_extra_info("socket")
        if reset and sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def values(found: list[Message]) -> list[bytes]:
    """The first column of each row."""
    return [row.payload[6 : 6 + struct.unpack("!i", row.payload[2:6])[0]] for row in found if row.kind == "D"]


def errors(found: list[Message]) -> list[str]:
    """SQLSTATE and text of each error."""
    fields = [m.error_fields(message.payload) for message in found if message.kind == "E"]
    return [f"{each['C']} {each['M']}" for each in fields]
