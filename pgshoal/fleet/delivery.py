"""Cancel requests in the supervisor: to the worker in the key's seat, or to a server that nobody else looks after."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final, Protocol

from pgshoal.fleet.channel import Message
from pgshoal.fleet.children import Child
from pgshoal.policy.cancel import NOBODY, made_by, seat_of
from pgshoal.wire import build

_YES: Final = b"S"
_NO: Final = b"N"


class Refused(OSError):
    """The server answers, but not so that the key may be sent."""


async def deliver(host: str, port: int, key: bytes, context: ssl.SSLContext | None, strict: bool) -> None:
    """Returns when the server has closed the connection, as PostgreSQL does when it has signalled the backend.

    `context` is for TLS, `strict` forbids to go on without. A refused connection is a ConnectionRefusedError: the host
    lives. Without an answer it takes for ever; the caller has the patience.
    """
    if host.startswith(("/", "@")):
        path = f"{host}/.s.PGSQL.{port}"
        opening = asyncio.open_unix_connection("\0" + path[1:] if host.startswith("@") else path)
        context = None
    else:
        opening = asyncio.open_connection(host, port)
    reader, writer = await opening
    try:
        if context is not None:
            writer.write(build.ssl_request())
            answer = await reader.read(1)
            if answer == _YES:
                await writer.start_tls(context, server_hostname=host)
            elif answer != _NO or strict:
                raise Refused("the server refused SSL")
        writer.write(build.cancel_request(key))
        with contextlib.suppress(ConnectionError):  # a reset ends it as well
            await reader.read(1)
    finally:
        writer.transport.abort()


class Roster(Protocol):
    """What of the supervisor is needed to find a worker."""

    def worker_for(self, seat: int) -> Child | None:
        """The process in a seat."""


class Cancels:
    """A duty of the supervisor: `cancel` goes to the seat that is named in the key, and the answer back.

    Nothing waits here: the worker that asks and the one that delivers have their limits.
    """

    def __init__(self, supervisor: Roster) -> None:
        self._roster = supervisor

    def attach(self, child: Child) -> None:
        """Listen to a worker."""
        child.channel.on("cancel", lambda message: self._route(child, message))

    def is_ready(self, child: Child) -> None:
        """Nothing to do."""

    def died(self, child: Child) -> None:
        """Its channel has ended, and so has every request that waited for it."""

    def _route(self, child: Child, message: Message) -> None:
        key = bytes.fromhex(message["key"])
        target = self._roster.worker_for(seat_of(key))
        if target is None or target is child or not target.ready or not made_by(key, target.generation):
            child.channel.reply(message, {"reason": NOBODY})
            return

        def answered(answer: Message | None) -> None:
            child.channel.reply(message, {"reason": NOBODY} if answer is None else answer.fields)

        target.channel.ask("cancel", answered, {"key": key.hex()})
