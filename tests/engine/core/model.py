"""A small model of a PostgreSQL backend, and of clients that talk to it, for random tests."""

from __future__ import annotations

import random
import re
import struct

from tests.support.messages import (
    COPY_DONE,
    FLUSH,
    SYNC,
    TERMINATE,
    bind,
    close,
    command_complete,
    data_row,
    describe,
    error,
    execute,
    message,
    parameter_status,
    parse,
    query,
    row_description,
)

NAMES = ("a", "b", "c", "")
TEXTS = ("select 1", "select 2", "fail", "copy in", "begin", "commit", "DEALLOCATE ALL", "DEALLOCATE a", "set work_mem")
QUERIES = (*TEXTS, "discard all;", "copy out", "stale", "set timezone", "x" * 1500, "", "select 1; copy in")
COPY_IN = message(b"G", b"\0\0\0")


def client_messages(rng: random.Random) -> list[bytes]:
    """What a client might send in one go."""
    kind = rng.random()
    if kind < 0.3:
        return [query(rng.choice(QUERIES)) for _ in range(1 if rng.random() < 0.8 else 2)]
    if kind < 0.37:
        rows = [message(b"d", b"x" * rng.randrange(300)) for _ in range(2)]
        return rows + [rng.choice([COPY_DONE, COPY_DONE, message(b"f", b"no\0"), SYNC])] * (rng.random() < 0.8)
    if kind < 0.4:
        return [rng.choice([message(b"f", b"no\0"), COPY_DONE, SYNC, FLUSH, message(b"F", b"\0\0\0\x01\0\0\0\0\0\0")])]
    if kind < 0.41:
        return [TERMINATE]
    if kind > 0.9:
        return whole_batch(rng, rng.choice(NAMES[:3]))
    batch = [_extended(rng) for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.85:
        batch.append(SYNC)
    elif rng.random() < 0.5:
        batch.append(FLUSH)
    return batch


def whole_batch(rng: random.Random, name: str) -> list[bytes]:
    """What libpq sends for one prepared statement, or nearly so."""
    portal = rng.choice(["", "", "p"])
    count = rng.choice([0, 0, 1, 1, 30])
    values = (b"v" * rng.choice([0, 5, 5, 300]),) * count
    batch = [bind(name, portal, values), describe("P", portal), execute(portal), SYNC]
    if rng.random() < 0.15:
        batch.insert(rng.randrange(5), _extended(rng))
    if rng.random() < 0.2:
        batch.insert(0, parse(name, rng.choice(TEXTS), rng.choice([(), (23,)])))
    return batch * rng.choice([1, 1, 1, 1, 1, 2])


def _extended(rng: random.Random) -> bytes:
    name = rng.choice(NAMES)
    kind = rng.randrange(12)
    if kind < 4:
        return parse(name, rng.choice(TEXTS), rng.choice([(), (23,)]))
    if kind < 7:
        return bind(name, rng.choice(["", "p"]), (b"v" * rng.randrange(40),))
    if kind == 7:
        return describe("S", name)
    if kind == 8:
        return describe("P", rng.choice(["", "p"]))
    if kind == 9:
        return close(rng.choice("SSP"), name)
    if kind == 10 and rng.random() < 0.3:
        return SYNC
    return execute(rng.choice(["", "p"]), rng.choice([0, 0, 2]))


class Backend:
    """Answers the messages it was sent as PostgreSQL would, roughly, with errors now and then."""

    #: Reports come when nobody has asked for anything.
    noisy = True

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.input = b""
        self.status = b"I"
        self.skipping = False
        self.copying = b""
        self.statements: dict[bytes, bytes] = {}
        self.portals: dict[bytes, bytes] = {}
        #: Statements whose result type has changed since they were parsed.
        self.outdated: set[bytes] = set()
        self.seen: set[int] = set()

    def hear(self, data: bytes) -> None:
        """Bytes from the pooler."""
        self.input += data

    def answer(self, count: int) -> bytes:
        """Handles up to `count` messages and returns the answers; sometimes something nobody asked for."""
        parts = []
        for _ in range(count):
            if len(self.input) < 5:
                break
            (length,) = struct.unpack_from("!I", self.input, 1)
            if len(self.input) < length + 1:
                break
            kind, body = self.input[:1], self.input[5 : length + 1]
            self.input = self.input[length + 1 :]
            self.seen.add(kind[0])
            parts.append(self._one(kind, body))
            if self.rng.random() < 0.04:
                parts.append(self.rng.choice([message(b"N", b"note\0"), message(b"A", b"\0\0\0\x01c\0\0")]))
            if self.noisy and self.rng.random() < 0.02:
                parts.append(parameter_status("TimeZone", self.rng.choice(["UTC", "CET"])))
        return b"".join(parts)

    def _ready(self) -> bytes:
        return message(b"Z", self.status)

    def _fail(self, code: str = "22012", words: str = "failed") -> bytes:
        if self.status == b"T":
            self.status = b"E"
        return error(code, words)

    def _one(self, kind: bytes, body: bytes) -> bytes:
        if self.copying:
            return self._copy(kind)
        if self.skipping:
            if kind != b"S":
                return b""
            self.skipping = False
            return self._ready()
        if kind == b"Q":
            self.statements.pop(b"", None)
            return self._query(body[:-1])
        if kind == b"S":
            return self._ready()
        if kind == b"F":
            return message(b"V", b"\0\0\0\x011") + self._ready()
        if kind in b"dcfH":
            return b""
        answer = self._extended(kind, body)
        if answer[:1] == b"E":
            self.skipping = True
        return answer

    def _copy(self, kind: bytes) -> bytes:
        if kind in b"dHS":
            return b""
        simple = self.copying == b"Q"
        self.copying = b""
        if kind == b"c" and self.rng.random() < 0.9:
            answer = command_complete("COPY 1")
        else:
            answer = self._fail("57014", "COPY failed")
            self.skipping = not simple
        return answer + (self._ready() if simple else b"")

    def _query(self, text: bytes) -> bytes:
        answer = self._run(text, b"Q")
        if self.copying:
            return answer
        return answer + self._ready()

    def _run(self, text: bytes, how: bytes) -> bytes:
        text = text.strip(b" ;")
        lower = text.lower()
        if text == b"":
            return b"I\0\0\0\x04"
        if self.status == b"E" and lower not in (b"commit", b"rollback"):
            return self._fail("25P02", "aborted")
        if lower == b"fail" or self.rng.random() < 0.05:
            return self._fail()
        if b"copy in" in lower:
            self.copying = how
            return COPY_IN
        if lower == b"copy out":
            rows = message(b"H", b"\0\0\0") + message(b"d", b"row") * 3 + COPY_DONE
            return rows + command_complete("COPY 3")
        if lower == b"begin":
            self.status = b"T"
            return command_complete("BEGIN")
        if lower == b"commit":
            self.status = b"I"
            return command_complete("COMMIT")
        if lower in (b"deallocate all", b"discard all"):
            if lower == b"discard all" and self.status == b"T":
                return self._fail("25001", "in a block")
            self.statements.clear()
            return command_complete(lower.decode().upper())
        if lower.startswith(b"deallocate "):
            known = self.statements.pop(text[11:].strip(b'"'), None)
            return self._fail("26000", "no such statement") if known is None else command_complete("DEALLOCATE")
        if lower == b"set timezone":
            return command_complete("SET") + parameter_status("TimeZone", "CET")
        if lower.startswith((b"set ", b"select pg_catalog.set_config")):
            found = re.findall(rb"SET (TimeZone|application_name)='(\w*)';", text + b";")
            reports = [parameter_status(name.decode(), value.decode()) for name, value in found]
            return command_complete("SET") + b"".join(reports)
        rows = data_row("1") * self.rng.randrange(4)
        described = row_description("column", "second") if how == b"Q" else b""
        return described + rows + command_complete("SELECT 1")

    def _extended(self, kind: bytes, body: bytes) -> bytes:
        first, _, rest = body.partition(b"\0")
        if kind == b"P":
            return self._parse(first, rest)
        if kind == b"B":
            return self._bind(first, rest.partition(b"\0")[0])
        name = first[1:]
        if kind == b"C":
            (self.statements if first[:1] == b"S" else self.portals).pop(name, None)
            return b"3\0\0\0\x04"
        if kind == b"D":
            known = name in (self.statements if first[:1] == b"S" else self.portals)
            if not known:
                return self._fail("26000", "unknown")
            if first[:1] == b"S" and name in self.outdated:
                return message(b"t", b"\0\0") + self._changed()
            shape = row_description("a", "bb") if self.rng.random() < 0.7 else b"n\0\0\0\x04"
            return (message(b"t", b"\0\0") if first[:1] == b"S" else b"") + shape
        if first not in self.portals:
            return self._fail("34000", "no portal")
        if rest != b"\0\0\0\0" and self.rng.random() < 0.6:
            return data_row("1") + b"s\0\0\0\x04"
        return self._run(self.portals[first], b"E")

    def _parse(self, name: bytes, rest: bytes) -> bytes:
        if name and name in self.statements:
            return self._fail("42P05", "exists")
        self.statements.pop(name, None)
        text = rest.partition(b"\0")[0]
        if text == b"fail" or self.rng.random() < 0.03:
            return self._fail("42P01", "bad text")
        self.statements[name] = text
        self.outdated.discard(name)
        return b"1\0\0\0\x04"

    def _changed(self) -> bytes:
        """The error in English, in a translation, or in one that does not say where it comes from."""
        self.skipping = True
        words = self.rng.choice(["cached plan must not change result type"] * 3 + ["anders als sonst"])
        place = self.rng.choice([b"RRevalidateCachedQuery\0"] * 3 + [b""])
        plain = self._fail("0A000", words)
        return message(b"E", plain[5:-1] + place + b"\0")

    def _bind(self, portal: bytes, name: bytes) -> bytes:
        if name not in self.statements:
            return self._fail("26000", "unknown")
        if self.rng.random() < 0.1:
            self.outdated |= self.statements.keys()
        if name in self.outdated:
            return self._changed()
        self.portals[portal] = self.statements[name]
        return b"2\0\0\0\x04"
