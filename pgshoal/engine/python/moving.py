"""The state of a client that moves to another process: written here, read there (docs/topics/link.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.python.conn import Client
from pgshoal.engine.python.frames import LENGTH, named
from pgshoal.engine.python.prepared import UnnamedCopy
from pgshoal.engine.python.reading import PLAIN_READING, Reading, changes
from pgshoal.wire.params import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgshoal.engine.python.core import Core

#: What the state begins with; the last byte is its version.
MAGIC = b"PGSM\x02"

_NONE, _PLAIN, _RESET, _DEALLOCATE = range(4)


def _block(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    blocks = [_block(one) + _block(two) for one, two in pairs]
    return LENGTH.pack(len(blocks)) + b"".join(blocks)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def state_of(client: Client) -> bytes:
    """Everything of a client that another engine needs to go on with it."""
    values = sorted(client.values.items())
    parts = [MAGIC, LENGTH.pack(client.skip)]
    parts.append(_pairs((_raw(canonical_name(name)), _raw(value)) for name, (_, value) in values))
    parts.append(LENGTH.pack(len(client.prepared)))
    for name, statement in sorted(client.prepared.items()):
        parts += [_block(name), _block(statement.tail), *map(_block, statement.reading)]
    copy = client.unnamed
    if copy is None:
        parts.append(bytes([_NONE]))
    else:
        kind = _RESET if copy.special is True else _DEALLOCATE if copy.special else _PLAIN
        parts += [bytes([kind]), _block(copy.message[6:]), *map(_block, copy.reading)]
        if isinstance(copy.special, bytes):
            parts.append(_block(copy.special))
    parts.append(_block(bytes(client.inbuf)))
    return b"".join(parts)


class _Reader:
    """Takes a state apart; ValueError where it ends too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) != count:
            raise ValueError("not the state of a client")
        self._at += count
        return found

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def block(self) -> bytes:
        return self.take(self.number())

    def pairs(self) -> list[tuple[bytes, bytes]]:
        return [(self.block(), self.block()) for _ in range(self.number())]

    def statement(self) -> tuple[bytes, Reading]:
        return _statement(self.block()), Reading(self.block(), self.block())

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError("not the state of a client")


def _statement(body: bytes) -> bytes:
    """A text, its end, and as many types as it says."""
    types = body[body.find(b"\0") + 1 :] if b"\0" in body else b""
    if len(types) < 2 or len(types) != 2 + 4 * int.from_bytes(types[:2], "big"):
        raise ValueError("not the state of a client")
    return body


def client_from(core: Core, listener: int, state: bytes) -> Client:
    """A client that comes from elsewhere, in dialogue; ValueError if the state is not one."""
    reader = _Reader(state)
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("not the state of a client, or of another version")
    skip = reader.number()
    values = reader.pairs()
    names = [(reader.block(), *reader.statement()) for _ in range(reader.number())]
    kind = reader.take(1)[0]
    body, how = reader.statement() if kind in (_PLAIN, _RESET, _DEALLOCATE) else (b"", PLAIN_READING)
    special: bool | bytes = reader.block() if kind == _DEALLOCATE else kind == _RESET
    unread = reader.block()
    reader.end()
    if kind > _DEALLOCATE:
        raise ValueError("not the state of a client")
    table = core.parameters_table
    statements = {}
    for name, tail, read in names:
        found = core.store.get if read.sure else core.store.make
        statements[name] = found(tail, table.mentioned(tail[: tail.index(0)]), read)
    client = Client(core.next_id(), listener)
    client.announced = client.awaiting = True
    client.fresh = client.framing_startup = False
    client.skip = skip
    client.last_us = core.now
    client.inbuf += unread
    client.prepared = statements
    if body:
        core.serial += 1
        text = body[: body.index(0)]
        message = named(b"P", b"", body)
        client.unnamed = UnnamedCopy(core.serial, message, special, table.mentioned(text), how, changes(text))
    table.admit(client, [(_text(name), _text(value)) for name, value in values])
    core.conns[client.id] = client
    return client


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
