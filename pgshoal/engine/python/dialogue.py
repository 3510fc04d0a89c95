"""Dialogue mode: whole messages for Python, every length judged before anything is kept for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.contract import Event
from pgshoal.engine.python.conn import FROZEN, UNNAMED_UNKNOWN
from pgshoal.engine.python.frames import GSSENC_REQUEST, HEADER, LENGTH, SSL_REQUEST, STARTUP_MAX, STARTUP_MIN
from pgshoal.engine.python.params import status_pair

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Conn, Server
    from pgshoal.engine.python.core import Core


def _oversize(core: Core, conn: Conn, size: int) -> None:
    conn.mode = FROZEN
    core.emit((Event.OVERSIZE, conn.id, bytes(conn.inbuf[:size])))


def client_dialogue(core: Core, client: Client) -> None:
    """At most one packet or message; then Python must say how to go on."""
    buffer = client.inbuf
    if client.awaiting or not buffer:
        return
    if not client.framing_startup:
        _client_message(core, client)
        return
    if client.fresh and buffer[0] == 0x16:
        client.awaiting = True
        core.announce(client)
        core.emit((Event.DIRECT_TLS, client.id))
        return
    if len(buffer) < 4:
        return
    (length,) = LENGTH.unpack_from(buffer)
    if length < STARTUP_MIN or length > STARTUP_MAX:
        core.announce(client)
        _oversize(core, client, 8)
    elif len(buffer) >= length:
        if length == STARTUP_MIN and core.limits.refuse_encryption and _refused(core, client):
            return
        payload = bytes(buffer[4:length])
        del buffer[:length]
        client.fresh = False
        client.awaiting = True
        core.announce(client)
        core.emit((Event.PACKET, client.id, payload))


def _refused(core: Core, client: Client) -> bool:
    """Answer a request for encryption of a client Python need not know yet; never if something stands behind it."""
    request = bytes(client.inbuf)
    if client.announced or request in client.answered or request not in (SSL_REQUEST, GSSENC_REQUEST):
        return False
    client.answered += request
    client.inbuf.clear()
    client.fresh = False
    core.write(client, b"N")
    return True


def _client_message(core: Core, client: Client) -> None:
    buffer = client.inbuf
    if len(buffer) < 5:
        return
    code, length = HEADER.unpack_from(buffer)
    # Type 0 is how a second startup packet begins: waiting for the length it seems to have would be to wait for ever.
    if code == 0 or length < 4 or length + 1 > client.limit:
        _oversize(core, client, 5)
    elif len(buffer) > length:
        payload = bytes(buffer[5 : length + 1])
        del buffer[: length + 1]
        client.awaiting = True
        core.emit((Event.MESSAGE, client.id, code, payload))


def server_asked(core: Core, server: Server, data: bytes) -> None:
    """Python has sent something: what it asks ends the unnamed statement, or parses one of its own."""
    server.unnamed = UNNAMED_UNKNOWN
    server.answer_due = data == SSL_REQUEST
    if server.answered:
        server.answered = False
        server_dialogue(core, server)


def server_dialogue(core: Core, server: Server) -> None:
    """Every complete message at once; an enrolled server's reports and resets are noted on the way."""
    buffer = server.inbuf
    if server.answered or not buffer:
        return
    if server.answer_due:
        server.answer_due = False
        server.answered = True
        code = buffer[0]
        del buffer[:1]
        core.emit((Event.MESSAGE, server.id, code, b""))
        return
    at = 0
    size = len(buffer)
    while size - at >= 5:
        code, length = HEADER.unpack_from(buffer, at)
        if length < 4 or length + 1 > server.limit:
            del buffer[:at]
            _oversize(core, server, 5)
            return
        end = at + 1 + length
        if end > size:
            break
        message = bytes(buffer[at:end])
        at = end
        if server.enrolled:
            _note(core, server, code, message)
        core.emit((Event.MESSAGE, server.id, code, message[5:]))
    if at:
        del buffer[:at]


def _note(core: Core, server: Server, code: int, message: bytes) -> None:
    if code == 0x53:
        pair = status_pair(message)
        if pair is not None:
            core.parameters_table.report(server, *pair)
    elif code == 0x43:
        tag = message[5:-1]
        if tag in (b"DEALLOCATE ALL", b"DISCARD ALL"):
            server.cache, server.void = {}, False
            if tag == b"DISCARD ALL":
                core.forget_extras(server)
