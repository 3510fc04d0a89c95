"""Delivers one cancel request to a PostgreSQL server, over a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Final

from pgshoal.wire import build

_YES: Final = b"S"
_NO: Final = b"N"


class SslRefused(OSError):
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
                raise SslRefused("the server refused SSL")
        writer.write(build.cancel_request(key))
        with contextlib.suppress(ConnectionError):  # a reset ends it as well
            await reader.read(1)
    finally:
        writer.transport.abort()
