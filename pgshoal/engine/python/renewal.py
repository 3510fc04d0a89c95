"""Statements whose result type has changed: what takes their place, and the one batch that is sent again."""

from __future__ import annotations

from struct import Struct, error, iter_unpack
from typing import TYPE_CHECKING, Final

from pgshoal.engine.python import prepared
from pgshoal.engine.python.frames import LENGTH, SYNC_MESSAGE, bind_names, error_fields, named
from pgshoal.engine.python.queue import BIND, DESCRIBE_PORTAL, EXECUTE, FORWARDED, PLAIN, PLAIN_SYNC, SYNC, Entry
from pgshoal.engine.python.reading import reading

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server
    from pgshoal.engine.python.core import Core
    from pgshoal.engine.python.pool import Pool
    from pgshoal.engine.python.prepared import Statement
    from pgshoal.engine.python.reading import Reading

#: A batch that may have to be sent again is kept up to this length.
BATCH_MAX: Final = 8 * 1024

_COUNT = Struct(">H")
_VALUE = Struct(">i")
_WORDS = b"cached plan must not change result type"
#: Where PostgreSQL says so. The words may be translated, the name of the function never is.
_ROUTINE = b"RevalidateCachedQuery"
#: Types that PostgreSQL chooses itself, anew at each Parse: unspecified, and `unknown`.
_CHOSEN = frozenset({0, 705})
_BATCH = (BIND, DESCRIBE_PORTAL, EXECUTE, SYNC)


def is_changed(message: bytes) -> bool:
    """True for the error by which a statement is known to have another result type now."""
    fields = error_fields(message)
    return fields.get(0x43) == b"0A000" and (fields.get(0x52) == _ROUTINE or fields.get(0x4D) == _WORDS)


# Heirs


def _current(core: Core, pool: Pool, tail: bytes, mentions: tuple[str, ...], how: Reading) -> Statement:
    """The statement that stands for a text in this pool."""
    own = core.store.get(tail, mentions, how)
    return pool.heirs.get(own, own)


def read(core: Core, server: Server, tail: bytes, how: Reading) -> Statement:
    """The statement of a text that is read so; one that nobody else gets if that is not known."""
    pool = server.pool
    assert pool is not None
    mentions = core.parameters_table.mentioned(tail[: tail.index(0)])
    if how.sure:
        return _current(core, pool, tail, mentions, how)
    return core.store.make(tail, mentions, how)


def supersede(core: Core, client: Client, server: Server, old: Statement) -> None:
    """Whoever prepares the text from now on gets another statement; so does this client, which has been told."""
    pool = server.pool
    assert pool is not None
    if old.reading.sure:
        old.superseded = True
        own = core.store.get(old.tail, old.mentions, old.reading)
        heir = pool.heirs.get(own, own)
        if heir is old:
            heir = pool.heirs[own] = core.store.make(old.tail, old.mentions, old.reading)
    else:
        heir = core.store.make(old.tail, old.mentions, old.reading)
    for name, statement in client.prepared.items():
        if statement is old:
            client.prepared[name] = heir


def renew(core: Core, client: Client, pool: Pool, name: bytes) -> Statement:
    """The client is about to learn what its statement returns now: it may as well have the newest."""
    old = client.prepared[name]
    client.prepared[name] = heir = _current(core, pool, old.tail, old.mentions, old.reading)
    return heir


def ensure(core: Core, client: Client, server: Server, statement: Statement, own: bytes | None = None) -> Statement:
    """Let the server have the statement, or the one to be used in its place; `own` is the name that is being used.

    It is parsed here only if it would be read as it was.
    """
    if prepared.usable(server, statement, own):
        return statement
    present = reading(server, statement.tail)
    if present == statement.reading and present.sure:
        prepared.inject(server, statement)
        return statement
    if own is not None and not statement.reading.has_words_of(present):
        # In other words it would be another text: the server shall say that it has no such statement.
        prepared.withdraw(server, statement)
        return statement
    newer = read(core, server, statement.tail, present)
    if own is not None:
        client.prepared[own] = newer
    if not prepared.usable(server, newer, own):
        prepared.inject(server, newer)
    return newer


def describes(data: bytes, at: int, end: int, statement: Statement) -> bool | None:
    """Whether the Bind at `at` is followed by a Describe of its portal and may use any plan; None: not seen yet."""
    total = LENGTH.unpack_from(data, at + 1)[0] + 1
    if total > BATCH_MAX:
        return False
    names = bind_names(data, at, end)
    if names is None:
        return None
    portal, _, used = names
    wanted = named(b"D", b"P" + portal, b"")
    seen = data[at + total : min(at + total + len(wanted), end)]
    if seen != wanted:
        return None if wanted.startswith(seen) else False
    return _is_free(data[at : at + total], used, statement.tail)


def _is_free(message: bytes, at: int, tail: bytes) -> bool:
    """A Bind that means the same whatever the columns are now.

    The types of its parameters were given with the text, so PostgreSQL chooses none anew, and no column has a format
    of its own. `at` is where its names end.
    """
    try:
        at += 2 + 2 * _COUNT.unpack_from(message, at)[0]
        (count,) = _COUNT.unpack_from(message, at)
        at += 2
        for _ in range(count):
            (length,) = _VALUE.unpack_from(message, at)
            at += 4 + max(length, 0)
        (formats,) = _COUNT.unpack_from(message, at)
    except error:
        return False
    if formats > 1 or at + 2 + 2 * formats != len(message):
        return False
    given = [oid for (oid,) in iter_unpack(">I", tail[tail.index(0) + 3 :])][:count]
    return len(given) == count and _CHOSEN.isdisjoint(given)


# The batch that is sent again


def opened(server: Server, head: bytes, total: int) -> bytearray | None:
    """A copy of a batch that has just begun, if it is one statement's; `head` is the Bind as far as it is here."""
    statement = server.queue[0].statement
    fits = total <= BATCH_MAX and len(server.queue) == 1 and statement is not None and not statement.reset
    return bytearray(head) if fits else None


def note(server: Server, piece: bytes) -> None:
    """The batch goes on."""
    batch = server.batch
    if batch is not None:
        if len(batch) + len(piece) > BATCH_MAX:
            server.batch = None
        else:
            batch += piece


def withhold(client: Client, server: Server, message: bytes) -> bool:
    """At the error of a Bind: the client need not see it, because its whole batch can be sent again."""
    queue = server.queue
    if server.batch is None or (client.skip and client.forwarding) or len(queue) != len(_BATCH):
        return False
    if any(entry.kind != kind or entry.origin != FORWARDED for entry, kind in zip(queue, _BATCH, strict=True)):
        return False
    statement = queue[0].statement
    batch = bytes(server.batch)
    names = bind_names(batch, 0, len(batch))
    if statement is None or names is None:
        return False
    portal, _, used = names
    total = LENGTH.unpack_from(batch, 1)[0] + 1
    rest = batch[total:]
    if rest != named(b"D", b"P" + portal, b"") + named(b"E", portal, rest[-9:-5]) + SYNC_MESSAGE:
        return False
    if not _is_free(batch[:total], used, statement.tail):
        return False
    server.withheld = message
    return True


def again(core: Core, client: Client, server: Server, status: int) -> bool:
    """ReadyForQuery after a withheld error: the batch goes out anew, or the client gets the error after all."""
    withheld, server.withheld = server.withheld, b""
    batch, server.batch = server.batch, None
    streaming = client.skip and client.forwarding
    names = bind_names(bytes(batch), 0, len(batch)) if batch else None
    statement = client.prepared.get(names[1]) if names else None
    if batch is None or names is None or statement is None or status != 0x49 or len(server.queue) != 1 or streaming:
        core.write(client, withheld)
        return False
    server.queue.popleft()
    portal, name, used = names
    total = LENGTH.unpack_from(batch, 1)[0] + 1
    statement = ensure(core, client, server, statement, name)
    entry = Entry(BIND)
    entry.statement = statement
    prepared.push(server, entry, named(b"B", portal, statement.name + b"\0" + bytes(batch[used:total])))
    prepared.push(server, PLAIN[DESCRIBE_PORTAL], bytes(batch[total:]))
    server.queue.append(PLAIN[EXECUTE])
    server.queue.append(PLAIN_SYNC)
    server.gen += 1
    core.touch(server)
    return True
