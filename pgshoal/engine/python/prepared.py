"""Prepared statements under internal names: the store, a server's cache, the unnamed statement, resets and undo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from pgshoal.engine.python.frames import CLOSE_UNNAMED, VOID_PARSE, VOID_TEXT, named
from pgshoal.engine.python.queue import CLOSE, INJECTED, PARSE, Entry

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server

_RESET = re.compile(
    rb"[ \t\n\r\f\v]*(?:DEALLOCATE[ \t\n\r\f\v]+(?:PREPARE[ \t\n\r\f\v]+)?|DISCARD[ \t\n\r\f\v]+)ALL[ \t\n\r\f\v]*;?[ \t\n\r\f\v]*\Z",
    re.I,
)  # noqa: E501
_DEALLOCATE = re.compile(
    rb"[ \t\n\r\f\v]*DEALLOCATE(?:[ \t\n\r\f\v]+PREPARE)?"
    rb'(?:[ \t\n\r\f\v]*"((?:[^"]|"")+)"|[ \t\n\r\f\v]+([A-Za-z_\x80-\xff][A-Za-z0-9_$\x80-\xff]*))'
    rb"[ \t\n\r\f\v]*;?[ \t\n\r\f\v]*\Z",
    re.I,
)
_FIRST_LETTERS = frozenset(b"dD \t\n\r\f\v")

MISSING: Any = object()


def is_reset(text: bytes) -> bool:
    """True for a text that is only DEALLOCATE ALL or DISCARD ALL."""
    return bool(text) and text[0] in _FIRST_LETTERS and _RESET.match(text) is not None


def deallocated_name(text: bytes) -> bytes | None:
    """The name in a text that is only DEALLOCATE name."""
    if not text or text[0] not in _FIRST_LETTERS:
        return None
    match = _DEALLOCATE.match(text)
    if match is None:
        return None
    exact, bare = match.groups()
    return exact.replace(b'""', b'"') if exact is not None else bare.lower()


class Statement:
    """One text with its parameter types, under one internal name; it lives as long as something refers to it."""

    __slots__ = ("__weakref__", "mentions", "name", "reset", "tail")

    def __init__(self, number: int, tail: bytes, mentions: tuple[str, ...]) -> None:
        self.name = b"PGBOUNCER_%d" % number
        self.tail = tail
        self.mentions = mentions
        self.reset = is_reset(tail[: tail.index(0)])


class Mapping(NamedTuple):
    """A client's name: its statement, and the entry that made it while that waits."""

    statement: Statement
    entry: Entry | None


class UnnamedCopy(NamedTuple):
    """A client's last unnamed Parse: a serial number, the message, what it does, the extra names it mentions."""

    serial: int
    message: bytes
    special: bool | bytes
    mentions: tuple[str, ...]
    entry: Entry | None


class Store:
    """All statements of the process, by text and types."""

    def __init__(self) -> None:
        self._by_tail: WeakValueDictionary[bytes, Statement] = WeakValueDictionary()
        self._last = 0

    def get(self, tail: bytes, mentions: tuple[str, ...]) -> Statement:
        """The statement of this text, made now if there is none."""
        found = self._by_tail.get(tail)
        if found is None:
            self._last += 1
            found = self._by_tail[tail] = Statement(self._last, tail, mentions)
        return found

    def __len__(self) -> int:
        return len(self._by_tail)


def push(server: Server, entry: Entry, message: bytes) -> None:
    """Send a request of the pooler's own, or one made for the client, and expect its answer."""
    entry.gen = server.gen
    server.queue.append(entry)
    server.out.append(message)
    server.out_size += len(message)


def usable(server: Server, statement: Statement) -> bool:
    """True if the server surely has the statement when the next request reaches it."""
    entry = server.cache.get(statement, MISSING)
    return entry is None or (entry is not MISSING and entry.gen == server.gen)


def clear_way(server: Server, statement: Statement) -> None:
    """Close a statement that may stand on the server under this name but is not to be used."""
    uncertain = server.cache.pop(statement, None) is not None
    if server.stale.pop(statement, False) or uncertain:
        entry = Entry(CLOSE, INJECTED)
        entry.statement = statement
        entry.former = MISSING
        push(server, entry, named(b"C", b"S" + statement.name, b""))


def ensure(server: Server, statement: Statement) -> None:
    """Let the server have the statement; it becomes the most recently used."""
    if usable(server, statement):
        server.cache[statement] = server.cache.pop(statement)
        return
    clear_way(server, statement)
    entry = Entry(PARSE, INJECTED)
    entry.statement = statement
    push(server, entry, named(b"P", statement.name, statement.tail))
    added(server, statement, entry)


def added(server: Server, statement: Statement, entry: Entry) -> None:
    """A Parse of the statement has been sent: it is the most recently used, and the oldest have to go."""
    cache = server.cache
    cache.pop(statement, None)
    cache[statement] = entry
    pool = server.pool
    assert pool is not None
    pool.server_parses += 1
    while len(cache) > pool.max_prepared and len(cache) > 1:
        victim = next((st for st, waits in cache.items() if waits is None), None) or next(iter(cache))
        close = Entry(CLOSE, INJECTED)
        close.statement = victim
        close.former = cache.pop(victim)
        push(server, close, named(b"C", b"S" + victim.name, b""))


def ensure_void(server: Server) -> None:
    """Let the server have a statement that DEALLOCATE may drop in place of the client's."""
    if not server.void:
        entry = Entry(PARSE, INJECTED)
        entry.void = True
        push(server, entry, VOID_PARSE)
    server.void = False


def ensure_unnamed(client: Client, server: Server) -> None:
    """Before a use of the unnamed statement: the server must hold the client's, or none at all."""
    copy = client.unnamed
    if copy is None:
        if server.unnamed:
            entry = Entry(CLOSE, INJECTED)
            entry.unnamed = (None, server.unnamed)
            server.unnamed = 0
            push(server, entry, CLOSE_UNNAMED)
        return
    waits = copy.entry
    if server.unnamed == copy.serial and (waits is None or waits.gen == server.gen):
        return
    entry = Entry(PARSE, INJECTED)
    entry.unnamed = (copy, server.unnamed)
    entry.serial = copy.serial
    client.unnamed = copy._replace(entry=entry)
    server.unnamed = copy.serial
    push(server, entry, copy.message)


def rewritten(tail: bytes) -> bytes:
    """The tail of a Parse of DEALLOCATE name, made to speak of the statement that may be dropped."""
    return VOID_TEXT + tail[tail.index(0) :]


# Resets


def set_aside(client: Client, server: Server) -> tuple[Any, ...]:
    """Both maps as they are, leaving empty ones."""
    saved = (client.prepared, server.cache, server.stale, server.void)
    client.prepared, server.cache, server.stale, server.void = {}, {}, {}, False
    return saved


def give_back(client: Client, server: Server, saved: tuple[Any, ...]) -> None:
    """A reset has failed: the maps hold again what they held, below what they got since."""
    prepared, cache, stale, void = saved
    client.prepared = {**prepared, **client.prepared}
    newer = server.cache
    server.cache = {st: waits for st, waits in cache.items() if st not in newer} | newer
    server.stale = {st: True for st in stale if st not in newer} | server.stale
    server.void = server.void or void


def reset_done(client: Client, server: Server) -> None:
    """A tag says that the server has dropped all its statements: only what waits in the queue stays."""
    client.prepared = {name: mapping for name, mapping in client.prepared.items() if mapping.entry is not None}
    server.cache = {st: waits for st, waits in server.cache.items() if waits is not None}
    server.stale = {}
    server.void = False
    forget_former(server)


def forget_former(server: Server) -> None:
    """A completed reset: the Closes behind it have nothing to give back."""
    for entry in server.queue:
        if entry.kind == CLOSE and not entry.plain:
            entry.statement = None
            entry.mapping = None


# What happens to an entry's changes


def commit(client: Client, server: Server, entry: Entry) -> None:
    """The answer to this Parse has come."""
    statement = entry.statement
    if statement is not None and server.cache.get(statement) is entry:
        server.cache[statement] = None
    name = entry.name
    if name is not None:
        mapping = client.prepared.get(name)
        if mapping is not None and mapping.entry is entry:
            client.prepared[name] = Mapping(mapping.statement, None)
    if entry.void:
        server.void = True
    copy = client.unnamed
    if copy is not None and copy.entry is entry:
        client.unnamed = copy._replace(entry=None)


def undo(client: Client, server: Server, entry: Entry, failed: bool = False) -> None:
    """This request has failed, or will never be looked at."""
    if entry.saved is not None:
        give_back(client, server, entry.saved)
        entry.saved = None
    if entry.dealloc is not None:
        server.void = True
    if entry.kind == PARSE:
        _undo_parse(client, server, entry, failed)
    elif entry.kind == CLOSE:
        _undo_close(client, server, entry)


def _undo_parse(client: Client, server: Server, entry: Entry, failed: bool) -> None:
    statement = entry.statement
    if statement is not None and server.cache.get(statement) is entry:
        del server.cache[statement]
    if entry.name is not None:
        mapping = client.prepared.get(entry.name)
        if mapping is not None and mapping.entry is entry:
            del client.prepared[entry.name]
    if entry.unnamed is not None:
        copy, mark = entry.unnamed
        if client.unnamed is not None and client.unnamed.serial == entry.serial:
            client.unnamed = None if failed else copy
        if server.unnamed == entry.serial:
            server.unnamed = 0 if failed else mark


def _undo_close(client: Client, server: Server, entry: Entry) -> None:
    if entry.unnamed is not None and not server.unnamed:
        server.unnamed = entry.unnamed[1]
    statement = entry.statement
    if entry.origin == INJECTED and statement is not None and statement not in server.cache:
        if entry.former is MISSING:
            server.stale[statement] = True
        else:
            server.cache = {statement: entry.former, **server.cache}
    if entry.name is not None and entry.mapping is not None and entry.name not in client.prepared:
        client.prepared[entry.name] = entry.mapping
