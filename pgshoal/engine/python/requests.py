"""What a linked client's requests become on the server: rewritten, skipped, with others put before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.python import prepared, reading, renewal
from pgshoal.engine.python.conn import UNNAMED_UNKNOWN
from pgshoal.engine.python.frames import CLOSE_COMPLETE, LENGTH, PARSE_COMPLETE, VOID_TEXT, named
from pgshoal.engine.python.prepared import UnnamedCopy
from pgshoal.engine.python.queue import (
    BIND,
    CLOSE,
    DESCRIBE_PORTAL,
    DESCRIBE_STATEMENT,
    EXECUTE,
    FORWARDED,
    PARSE,
    PLAIN,
    PLAIN_QUERY,
    QUERY,
    SKIPPED,
    Entry,
)
from pgshoal.engine.python.server import settle_head

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server
    from pgshoal.engine.python.core import Core
    from pgshoal.engine.python.pool import Pool


def begin(core: Core, server: Server, forwarded: bool = True) -> None:
    """A request joins the queue: note the times, and that the link is busy."""
    if not server.queue:
        server.query_us = core.now
    if not server.xact_us and server.status == "I":
        server.xact_us = core.now
    if forwarded:
        server.busy = True


def _send(server: Server, message: bytes) -> None:
    server.out.append(message)
    server.out_size += len(message)


def _linked(client: Client) -> tuple[Server, Pool]:
    server = client.link
    assert server is not None
    pool = server.pool
    assert pool is not None
    return server, pool


# Query


def long_query(core: Core, client: Client, server: Server) -> None:
    """A Query too long to be looked at: it may say anything."""
    _drop_unnamed(client, server)
    table = core.parameters_table
    if table.extra:
        table.doubt(server, table.extra)
    reading.note(server, reading.ALL | reading.END)
    server.queue.append(PLAIN_QUERY)


def _drop_unnamed(client: Client, server: Server) -> None:
    """A simple Query ends the unnamed statement, if the server gets to look at it."""
    client.unnamed = None
    if server.unnamed:
        server.unnamed = UNNAMED_UNKNOWN if server.queue else 0


def query(core: Core, client: Client, message: bytes) -> None:
    """A short Query: a reset and DEALLOCATE name act on the maps."""
    server, pool = _linked(client)
    begin(core, server)
    table = core.parameters_table
    if table.extra:
        table.doubt(server, table.mentioned(message[5:-1] if message[-1] == 0 else b""))
    entry = PLAIN_QUERY
    if pool.pooled:
        _drop_unnamed(client, server)
        reading.note(server, reading.changes(message[5:-1] if message[-1] == 0 else b""))
        if pool.max_prepared and len(message) > 5 and message[5] in b"dD \t\n\r\f\v" and message[-1] == 0:
            text = message[5:-1]
            if prepared.is_reset(text):
                entry = Entry(QUERY)
                entry.saved = prepared.set_aside(client, server)
            else:
                name = prepared.deallocated_name(text)
                if name is not None and name in client.prepared:
                    prepared.ensure_void(server)
                    entry = Entry(QUERY)
                    entry.dealloc = name
                    message = named(b"Q", VOID_TEXT, b"")
    _send(server, message)
    server.queue.append(entry)


# Parse


def parse_parts(message: bytes) -> tuple[bytes, bytes] | None:
    """Name, and the text with its parameter types; None for a Parse that is broken."""
    name_end = message.find(b"\0", 5)
    if name_end < 0:
        return None
    text_end = message.find(b"\0", name_end + 1)
    left = len(message) - text_end - 1
    if text_end < 0 or left < 2 or left != 2 + 4 * int.from_bytes(message[text_end + 1 : text_end + 3], "big"):
        return None
    return message[5:name_end], message[name_end + 1 :]


def parse(core: Core, client: Client, message: bytes, name: bytes, tail: bytes) -> None:
    """Parse: under an internal name, or skipped because the server has the statement."""
    server, pool = _linked(client)
    table = core.parameters_table
    mentions = table.mentioned(tail[: tail.index(0)]) if table.extra else ()
    if not pool.pooled or (name and not pool.max_prepared):
        begin(core, server)
        table.doubt(server, mentions)
        _send(server, message)
        server.queue.append(PLAIN[PARSE])
        return
    if not name:
        begin(core, server)
        table.doubt(server, mentions)
        _parse_unnamed(core, client, server, pool, message, tail, mentions)
        return
    pool.client_parses += 1
    mapped = client.prepared.get(name)
    if mapped is not None:
        begin(core, server)
        table.doubt(server, mentions)
        how = reading.reading(server, tail)
        mapped = renewal.ensure(core, client, server, mapped)
        pool.server_parses += 1
        entry = Entry(PARSE)
        entry.duplicate = (name, tail, mapped, how)
        _send(server, named(b"P", mapped.name, tail))
        server.queue.append(entry)
        return
    statement = renewal.read(core, server, tail, reading.reading(server, tail))
    client.prepared[name] = statement
    has = prepared.usable(server, statement)
    begin(core, server, not has)
    table.doubt(server, mentions)
    entry = Entry(PARSE, SKIPPED if has else FORWARDED)
    entry.name = name
    entry.mapping = statement
    if has:
        entry.answer = PARSE_COMPLETE
        server.queue.append(entry)
        settle_head(core, client, server)
        return
    prepared.clear_way(server, statement)
    entry.statement = statement
    _send(server, named(b"P", statement.name, tail))
    server.queue.append(entry)
    prepared.added(server, statement, name)


def _parse_unnamed(
    core: Core, client: Client, server: Server, pool: Pool, message: bytes, tail: bytes, mentions: tuple[str, ...]
) -> None:
    special: bool | bytes = False
    if pool.max_prepared:
        text = tail[: tail.index(0)]
        if prepared.is_reset(text):
            special = True
        else:
            dropped = prepared.deallocated_name(text)
            if dropped is not None and dropped in client.prepared:
                special = dropped
                message = named(b"P", b"", prepared.rewritten(tail))
    before = client.unnamed
    how = reading.reading(server, message[6:])
    same = before is not None and before.message == message and before.reading == how and how.sure
    if before is not None and same and not server.unnamed_waits:
        copy = before
    else:
        core.serial += 1
        changes = reading.changes(message[6 : message.index(0, 6)])
        copy = UnnamedCopy(core.serial, message, special, mentions, how, changes)
    entry = Entry(PARSE)
    entry.unnamed = (before, server.unnamed)
    client.unnamed = copy
    prepared.unnamed_sent(server, entry, copy.serial)
    _send(server, message)
    server.queue.append(entry)


# Bind, Describe, Execute, Close


def bind(core: Core, client: Client, portal: bytes, name: bytes, rest: int) -> None:
    """Bind up to its names; `rest` bytes of it follow."""
    server, pool = _linked(client)
    begin(core, server)
    entry = PLAIN[BIND]
    special: bool | bytes = False
    mentions: tuple[str, ...] = ()
    if pool.pooled and not name:
        prepared.ensure_unnamed(client, server)
        if client.unnamed is not None:
            special = client.unnamed.special
            mentions = client.unnamed.mentions
            reading.note(server, client.unnamed.changes)
    elif pool.max_prepared:
        pool.binds += 1
        statement = client.prepared.get(name)
        if statement is not None:
            statement = renewal.ensure(core, client, server, statement, name)
            name = statement.name
            reading.note(server, statement.changes)
            special = statement.reset
            mentions = statement.mentions
            entry = Entry(BIND)
            entry.statement = statement
    if pool.pooled and name and entry.plain:
        # Prepared in SQL, it may be anything.
        reading.note(server, reading.ALL | reading.END)
    if mentions:
        core.parameters_table.doubt(server, mentions)
    if special:
        client.portals[portal] = special
    elif client.portals:
        client.portals.pop(portal, None)
    head = b"%b\0%b\0" % (portal, name)
    _send(server, b"B" + LENGTH.pack(len(head) + rest + 4) + head)
    server.queue.append(entry)


def describe(core: Core, client: Client, message: bytes) -> None:
    """Describe of a statement or a portal."""
    server, pool = _linked(client)
    begin(core, server)
    entry = PLAIN[DESCRIBE_PORTAL]
    if message[5] == 0x53:
        entry = PLAIN[DESCRIBE_STATEMENT]
        name = message[6:-1]
        if pool.pooled and not name:
            prepared.ensure_unnamed(client, server)
        elif pool.max_prepared:
            statement = client.prepared.get(name)
            if statement is not None:
                if statement.superseded:
                    statement = renewal.renew(core, client, pool, name)
                statement = renewal.ensure(core, client, server, statement, name)
                entry = Entry(DESCRIBE_STATEMENT)
                entry.statement = statement
                message = named(b"D", b"S" + statement.name, b"")
    _send(server, message)
    server.queue.append(entry)


def execute(core: Core, client: Client, message: bytes) -> None:
    """A short Execute: its portal may be bound to a reset or a DEALLOCATE."""
    server, _ = _linked(client)
    begin(core, server)
    entry = PLAIN[EXECUTE]
    if client.portals:
        end = message.find(b"\0", 5)
        special = client.portals.get(message[5:end]) if end > 0 else None
        if special is True:
            entry = Entry(EXECUTE)
            entry.saved = prepared.set_aside(client, server)
        elif special:
            prepared.ensure_void(server)
            entry = Entry(EXECUTE)
            entry.dealloc = special
    _send(server, message)
    server.queue.append(entry)


def forget_statement(client: Client, name: bytes) -> None:
    """Close of a statement by a parked client: the name is free again."""
    if name:
        client.prepared.pop(name, None)
    else:
        client.unnamed = None


def close(core: Core, client: Client, message: bytes) -> None:
    """Close: of a named statement it never reaches the server while tracking is on."""
    server, pool = _linked(client)
    name = message[6:-1]
    named_statement = message[5] == 0x53 and name != b""
    if named_statement and pool.max_prepared:
        begin(core, server, False)
        entry = Entry(CLOSE, SKIPPED)
        entry.answer = CLOSE_COMPLETE
        entry.name = name
        entry.mapping = client.prepared.pop(name, None)
        server.queue.append(entry)
        settle_head(core, client, server)
        return
    begin(core, server)
    entry = PLAIN[CLOSE]
    if message[5] == 0x53 and not name and pool.pooled:
        entry = Entry(CLOSE)
        entry.unnamed = (client.unnamed, server.unnamed)
        client.unnamed = None
        server.unnamed = 0
    _send(server, message)
    server.queue.append(entry)
