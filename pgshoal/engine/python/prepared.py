"""Prepared statements under internal names: the store, a server's cache, the unnamed statement, resets and undo."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from pgshoal.engine.python.frames import CLOSE_UNNAMED, VOID_PARSE, VOID_TEXT, named
from pgshoal.engine.python.queue import CLOSE, INJECTED, PARSE, Entry
from pgshoal.engine.python.reading import Reading, changes, reading

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server

_RESET = re.compile(
    rb"[ \t\n\r\f\v]*(?:DEALLOCATE[ \t\n\r\f\v]+(?:PREPARE[ \t\n\r\f\v]+)?|DISCARD[ \t\n\r\f\v]+)ALL"
    rb"[ \t\n\r\f\v]*;?[ \t\n\r\f\v]*\Z",
    re.I,
)
_DEALLOCATE = re.compile(
    rb"[ \t\n\r\f\v]*DEALLOCATE(?:[ \t\n\r\f\v]+PREPARE)?"
    rb'(?:[ \t\n\r\f\v]*"((?:[^"]|"")+)"|[ \t\n\r\f\v]+([A-Za-z_\x80-\xff][A-Za-z0-9_$\x80-\xff]*))'
    rb"[ \t\n\r\f\v]*;?[ \t\n\r\f\v]*\Z",
    re.I,
)
_FIRST_LETTERS = frozenset(b"dD \t\n\r\f\v")


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

    __slots__ = ("__weakref__", "changes", "mentions", "name", "reading", "reset", "superseded", "tail")

    def __init__(self, number: int, tail: bytes, mentions: tuple[str, ...], reading: Reading) -> None:
        self.name = b"PGBOUNCER_%d" % number
        self.tail = tail
        self.mentions = mentions
        #: How its text is read, on whatever server.
        self.reading = reading
        text = tail[: tail.index(0)]
        #: What its execution may change of how texts are read.
        self.changes = changes(text)
        self.reset = is_reset(text)
        #: Some pool has another in its place, because the result type has changed.
        self.superseded = False


class Cached:
    """A statement on a server."""

    __slots__ = ("gen", "owner", "stale", "waits")

    def __init__(self, stale: bool = False) -> None:
        #: It must be closed and parsed again before its next use.
        self.stale = stale
        #: Parses of it in the queue; how many Syncs had been sent at the last; the client's name it was for.
        self.waits = 0
        self.gen = 0
        self.owner: bytes | None = None


class UnnamedCopy(NamedTuple):
    """A client's last unnamed Parse: a serial number, the message, what it does, the extra names it mentions.

    Then how its text was read, and what its execution may change of how texts are read.
    """

    serial: int
    message: bytes
    special: bool | bytes
    mentions: tuple[str, ...]
    reading: Reading
    changes: int


class Store:
    """All statements of the process, by text and types, and how they are read."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[bytes, Reading], Statement] = WeakValueDictionary()
        self._last = 0

    def get(self, tail: bytes, mentions: tuple[str, ...], reading: Reading) -> Statement:
        """The statement of this text, made now if there is none."""
        key = (tail, reading)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.make(tail, mentions, reading)
        return found

    def make(self, tail: bytes, mentions: tuple[str, ...], reading: Reading) -> Statement:
        """One under a new name, which is not found by its text."""
        self._last += 1
        return Statement(self._last, tail, mentions, reading)

    def __len__(self) -> int:
        return len(self._known)


def push(server: Server, entry: Entry, message: bytes) -> None:
    """Send a request and expect its answer."""
    server.queue.append(entry)
    server.out.append(message)
    server.out_size += len(message)


# A server's cache: least recently used first


def usable(server: Server, statement: Statement, owner: bytes | None = None) -> bool:
    """True if the server surely has the statement when the next request reaches it; it becomes the newest."""
    cached = server.cache.pop(statement, None)
    if cached is None:
        return False
    server.cache[statement] = cached
    if cached.stale:
        return False
    certain = not cached.waits or cached.gen == server.gen
    return certain or (owner is not None and cached.owner == owner)


def clear_way(server: Server, statement: Statement) -> None:
    """Close a statement that may stand on the server under this name but is not to be used."""
    if statement in server.cache:
        _inject_close(server, statement, True)


def _inject_close(server: Server, statement: Statement, stale: bool) -> None:
    entry = Entry(CLOSE, INJECTED)
    entry.statement = statement
    entry.stale = stale
    push(server, entry, named(b"C", b"S" + statement.name, b""))


def withdraw(server: Server, statement: Statement) -> None:
    """The server shall not have the statement."""
    if statement in server.cache:
        del server.cache[statement]
        _inject_close(server, statement, True)


def inject(server: Server, statement: Statement) -> None:
    """Parse a statement here."""
    clear_way(server, statement)
    entry = Entry(PARSE, INJECTED)
    entry.statement = statement
    push(server, entry, named(b"P", statement.name, statement.tail))
    added(server, statement, None)


def added(server: Server, statement: Statement, owner: bytes | None) -> None:
    """A Parse of the statement has been sent: it is the most recently used, and the oldest have to go."""
    cache = server.cache
    pool = server.pool
    assert pool is not None
    pool.server_parses += 1
    cached = cache.pop(statement, None) or Cached()
    cache[statement] = cached
    cached.stale = False
    cached.waits += 1
    cached.gen = server.gen
    cached.owner = owner
    while len(cache) > pool.max_prepared:
        victim = next((st for st, held in cache.items() if not held.waits), None) or next(iter(cache))
        gone = cache.pop(victim)
        _inject_close(server, victim, gone.stale or gone.waits > 0)


def restore(server: Server, statement: Statement, stale: bool) -> None:
    """Put a statement back as the least recently used, unless it is there again."""
    if statement not in server.cache:
        server.cache = {statement: Cached(stale), **server.cache}


def mark_stale(server: Server, statement: Statement) -> None:
    """The server holds something else under this name."""
    restore(server, statement, True)
    server.cache[statement].stale = True


# PGBOUNCER_VOID and the unnamed statement


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
    held = server.unnamed
    uncertain = server.unnamed_waits > 0 and server.unnamed_gen != server.gen
    if copy is not None and held == copy.serial and not uncertain:
        return
    if copy is None or not copy.reading.has_words_of(reading(server, copy.message[6:])):
        if held:
            entry = Entry(CLOSE, INJECTED)
            entry.unnamed = (None, held)
            server.unnamed = 0
            push(server, entry, CLOSE_UNNAMED)
        return
    entry = Entry(PARSE, INJECTED)
    entry.unnamed = (None, held)
    unnamed_sent(server, entry, copy.serial)
    push(server, entry, copy.message)


def unnamed_sent(server: Server, entry: Entry, serial: int) -> None:
    """A Parse of the unnamed statement goes out."""
    entry.serial = serial
    server.unnamed = serial
    server.unnamed_waits += 1
    server.unnamed_gen = server.gen


def rewritten(tail: bytes) -> bytes:
    """The tail of a Parse of DEALLOCATE name, made to speak of the statement that may be dropped."""
    return VOID_TEXT + tail[tail.index(0) :]


# Resets


def set_aside(client: Client, server: Server) -> tuple[Any, ...]:
    """Both maps as they are, leaving empty ones."""
    saved = (client.prepared, server.cache, server.void)
    client.prepared, server.cache, server.void = {}, {}, False
    return saved


def give_back(client: Client, server: Server, saved: tuple[Any, ...]) -> None:
    """A reset has failed: the maps hold again what they held, below what they got since."""
    prepared, cache, void = saved
    client.prepared = {**prepared, **client.prepared}
    newer = server.cache
    server.cache = {st: held for st, held in cache.items() if st not in newer} | newer
    server.void = server.void or void


def reset_done(client: Client, server: Server, ahead: bool) -> None:
    """A tag says that the server has dropped all its statements: only what waits in the queue stays.

    `ahead`: the maps were set aside when the request was read.
    """
    names: set[bytes] = set()
    void = False
    for entry in islice(server.queue, 1, None):
        if entry.kind == CLOSE and not entry.plain:
            entry.statement = entry.mapping = None
        if entry.kind == PARSE and not entry.plain:
            void = void or entry.void
            if entry.name is not None and entry.duplicate is None:
                names.add(entry.name)
    if not ahead:
        client.prepared = {name: st for name, st in client.prepared.items() if name in names}
        server.cache = {st: held for st, held in server.cache.items() if held.waits}
        server.void = server.void and void


# What happens to an entry's changes


def commit(server: Server, entry: Entry) -> None:
    """The answer to this Parse has come."""
    if entry.unnamed is not None:
        server.unnamed_waits -= 1
    elif entry.statement is not None:
        cached = server.cache.get(entry.statement)
        if cached is not None and cached.waits:
            cached.waits -= 1


def undo(client: Client, server: Server, entry: Entry, failed: bool) -> None:
    """This request has failed, or will never be looked at."""
    if entry.saved is not None:
        give_back(client, server, entry.saved)
        entry.saved = None
    if entry.dealloc is not None:
        server.void = True
        entry.dealloc = None
    if entry.kind == PARSE:
        _undo_parse(client, server, entry, failed)
    elif entry.kind == CLOSE:
        _undo_close(client, server, entry, failed)


def _undo_parse(client: Client, server: Server, entry: Entry, failed: bool) -> None:
    if entry.void:
        server.void = False
    if entry.unnamed is not None:
        server.unnamed_waits -= 1
        if entry.origin != INJECTED and client.unnamed is not None and client.unnamed.serial == entry.serial:
            client.unnamed = None if failed else entry.unnamed[0]
        _take_mark_back(server, entry, failed)
        return
    mapped = entry.mapping
    if entry.name is not None and mapped is not None and client.prepared.get(entry.name) is mapped:
        del client.prepared[entry.name]
    statement = entry.statement
    if statement is not None:
        cached = server.cache.get(statement)
        if cached is not None:
            cached.waits = max(cached.waits - 1, 0)
            if not cached.waits:
                del server.cache[statement]


def _undo_close(client: Client, server: Server, entry: Entry, failed: bool) -> None:
    if entry.unnamed is not None:
        if client.unnamed is None:
            client.unnamed = entry.unnamed[0]
        _take_mark_back(server, entry, failed)
    elif entry.statement is not None:
        restore(server, entry.statement, entry.stale)
    if entry.name is not None and entry.mapping is not None and entry.name not in client.prepared:
        client.prepared[entry.name] = entry.mapping


def _take_mark_back(server: Server, entry: Entry, failed: bool) -> None:
    assert entry.unnamed is not None
    if server.unnamed == entry.serial:
        server.unnamed = 0 if failed else entry.unnamed[1]
