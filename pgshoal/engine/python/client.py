"""Bytes from clients: when a server is needed, what is forwarded, and what is expected back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.python import reading, renewal, requests
from pgshoal.engine.python.conn import FROZEN, LINKED, PARKED
from pgshoal.engine.python.frames import (
    CLIENT_FIXED,
    CLIENT_TYPES,
    CLOSE_COMPLETE,
    COLLECT_MAX,
    HEADER,
    LENGTH,
    READY_IDLE,
    SMALL_REQUEST,
    bind_names,
)
from pgshoal.engine.python.queue import COPY_END, DESCRIBE_PORTAL, EXECUTE, FUNCTION, PLAIN, PLAIN_COPY_END, PLAIN_SYNC

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server
    from pgshoal.engine.python.core import Core

_COPY = frozenset(b"dcf")
_STOP = -1


def client_input(core: Core, client: Client, data: bytes) -> None:
    """Take what a client sent, or look again at what is kept."""
    inbuf = client.inbuf
    if inbuf:
        inbuf += data
        if (client.mode is not PARKED and client.mode is not LINKED) or len(inbuf) < client.need:
            return
        data = bytes(inbuf)
        inbuf.clear()
    client.need = 0
    at = 0
    end = len(data)
    while at < end and (client.mode is LINKED or client.mode is PARKED):
        if client.skip:
            joined = client.link
            at += _streamed(core, client, data, at, end)
            if client.link is not joined:
                # Released: the next waiter goes before the rest of this.
                break
            continue
        server = client.link
        if server is not None and not client.errored and not server.copy_in:
            step = _quick(core, client, server, data, at, end)
            if step:
                at += step
                continue
        batch = server.batch if server is not None else None
        step = _message(core, client, data, at, end)
        if step < 0:
            break
        at += step
        if batch is not None and server is not None and server.batch is batch:
            server.batch = None
    if client.gone or client.mode is FROZEN:
        return
    server = client.link
    if server is not None and server.out:
        core.touch(server)
    if at < end:
        client.inbuf += data[at:] if at else data
        if core.freed and client.mode is PARKED:
            core.unread.append(client)


def _quick(core: Core, client: Client, server: Server, data: bytes, at: int, end: int) -> int:
    """Sync, Execute and Describe of portals on a link without anything special: 0 if it is not such a case."""
    code = data[at]
    if end - at < 5 or (code != 0x53 and code != 0x45 and code != 0x44):
        return 0
    length = LENGTH.unpack_from(data, at + 1)[0]
    if code == 0x53:
        if length != 4:
            return 0
        entry = PLAIN_SYNC
        server.gen += 1
    elif length > SMALL_REQUEST or end - at <= length or length > core.limits.max_packet_size or length < 6:
        return 0
    elif code == 0x45:
        if client.portals:
            return 0
        entry = PLAIN[EXECUTE]
    else:
        if data[at + 5] != 0x50 or data.find(b"\0", at + 6) != at + length:
            return 0
        entry = PLAIN[DESCRIBE_PORTAL]
    requests.begin(core, server)
    server.queue.append(entry)
    message = data[at : at + length + 1]
    server.out.append(message)
    server.out_size += length + 1
    if server.batch is not None:
        renewal.note(server, message)
    return int(length) + 1


def _streamed(core: Core, client: Client, data: bytes, at: int, end: int) -> int:
    """Part of a message whose way is decided."""
    step = min(client.skip, end - at)
    client.skip -= step
    if client.forwarding:
        server = client.link
        assert server is not None
        server.out.append(data[at : at + step])
        server.out_size += step
        if server.batch is not None:
            server.batch += data[at : at + step]
        core.touch(server)
        pool = server.pool
        over = not client.skip and not server.queue and not server.busy and server.status == "I"
        if over and pool is not None and pool.pooled:
            core.release(client, server)
    return step


def _message(core: Core, client: Client, data: bytes, at: int, end: int) -> int:
    """One message from its header. Returns how many bytes are done with; _STOP if it has to wait."""
    if end - at < 5:
        return _STOP
    code, length = HEADER.unpack_from(data, at)
    if length < 4 or length > core.limits.max_packet_size or (code in CLIENT_FIXED and length != 4):
        core.fault(client, "bad_packet_header", data[at : at + 5].hex())
        return _STOP
    if code not in CLIENT_TYPES:
        core.fault(client, "unknown_pkt")
        return _STOP
    if code == 0x58:
        core.lost(client, "client close request")
        return _STOP
    server = client.link
    if server is None:
        if code in _COPY or code == 0x48:
            return _stream(client, length, False)
        if code == 0x53:
            core.write(client, READY_IDLE)
            return 5
    elif client.errored:
        if code != 0x53:
            return _stream(client, length, False)
    elif server.copy_in and code not in _COPY and not any(entry.kind == COPY_END for entry in server.queue):
        if code == 0x53 or code == 0x48:
            return 5
        # The server answers this with an error and is out of COPY.
        server.copy_in = False
        return _stream(client, length, True)
    if code == 0x51 and core.limits.disable_pqexec and (length > SMALL_REQUEST or end - at > length):
        core.fault(client, "pqexec_disallowed")
        return _STOP
    if code in b"PDCB" or ((code == 0x51 or code == 0x45) and length <= SMALL_REQUEST):
        return _collected(core, client, data, at, end, code, length)
    if server is None and not core.acquire(client):
        return _STOP
    assert client.link is not None
    return _uncollected(core, client, client.link, code, length)


def _stream(client: Client, length: int, forward: bool) -> int:
    """Nothing is used up yet: the header goes the way of the rest."""
    client.forwarding = forward
    client.skip = length + 1
    return 0


def _uncollected(core: Core, client: Client, server: Server, code: int, length: int) -> int:
    """d c f H S F, and long Q and E, of a linked client."""
    if code == 0x64:
        return _stream(client, length, bool(server.queue))
    if code == 0x63 or code == 0x66:
        if server.queue:
            server.queue.append(PLAIN_COPY_END)
        return _stream(client, length, bool(server.queue))
    if code == 0x48:
        server.busy = True
        return _stream(client, length, True)
    requests.begin(core, server)
    if code == 0x53:
        client.errored = False
        server.gen += 1
        server.queue.append(PLAIN_SYNC)
    elif code == 0x51:
        requests.long_query(core, client, server)
    else:
        if code == 0x46:
            reading.note(server, reading.ALL)
        server.queue.append(PLAIN[FUNCTION] if code == 0x46 else PLAIN[EXECUTE])
    return _stream(client, length, True)


def _collected(core: Core, client: Client, data: bytes, at: int, end: int, code: int, length: int) -> int:
    """P D C B, and short Q and E: judged as a whole, a Bind by its two names."""
    total = length + 1
    if code == 0x42:
        have = min(end - at, total)
        names = bind_names(data, at, at + min(have, COLLECT_MAX + 5))
        if names is None:
            if have == total or have >= COLLECT_MAX + 5:
                core.fault(client, "broken_bind")
            return _STOP
        return _bind(core, client, data, at, end, names)
    if (code == 0x44 or code == 0x43) and length > COLLECT_MAX:
        core.fault(client, "broken_describe" if code == 0x44 else "broken_close")
        return _STOP
    if end - at < total:
        client.need = total
        return _STOP
    message = data[at : at + total]
    if code == 0x50:
        if client.link is None and not core.acquire(client):
            return _STOP
        parsed = requests.parse_parts(message)
        if parsed is None:
            core.fault(client, "broken_parse")
            return _STOP
        requests.parse(core, client, message, *parsed)
        return total
    tracking_close = code == 0x43 and client.link is None and client.pool is not None and client.pool.max_prepared > 0
    if not tracking_close and client.link is None and not core.acquire(client):
        return _STOP
    if code == 0x44 or code == 0x43:
        if length < 6 or message[5] not in b"SP" or message.find(b"\0", 6) != length:
            core.fault(client, "broken_describe" if code == 0x44 else "broken_close")
            return _STOP
        if tracking_close and message[5] == 0x53:
            requests.forget_statement(client, message[6:-1])
            core.write(client, CLOSE_COMPLETE)
            return total
        if tracking_close and not core.acquire(client):
            return _STOP
    if code == 0x51:
        requests.query(core, client, message)
    elif code == 0x45:
        requests.execute(core, client, message)
    elif code == 0x44:
        requests.describe(core, client, message)
    else:
        requests.close(core, client, message)
    return total


def _bind(core: Core, client: Client, data: bytes, at: int, end: int, names: tuple[bytes, bytes, int]) -> int:
    """The names of a Bind are known: they are forwarded, the rest streams by."""
    if client.link is None and not core.acquire(client):
        return _STOP
    server = client.link
    assert server is not None
    portal, name, used = names
    if server.status == "T" and not _renewed(core, client, server, data, at, end, name):
        return _STOP
    total = LENGTH.unpack_from(data, at + 1)[0] + 1
    alone = not server.queue and not server.busy and server.status == "I"
    requests.bind(core, client, portal, name, total - used)
    server.batch = renewal.opened(server, data[at : at + used], total) if alone else None
    client.forwarding = True
    client.skip = total - used
    return used


def _renewed(core: Core, client: Client, server: Server, data: bytes, at: int, end: int, name: bytes) -> bool:
    """In a transaction an error would be its end: who describes gets the newest. False: more must be seen first."""
    statement = client.prepared.get(name)
    pool = server.pool
    if statement is None or not statement.superseded or pool is None or not pool.max_prepared:
        return True
    described = renewal.describes(data, at, end, statement)
    if described:
        renewal.renew(core, client, pool, name)
    return described is not None
