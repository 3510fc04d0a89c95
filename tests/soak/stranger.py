"""A client that speaks bytes, in transaction or statement mode: halves, resets, pipelines, portals, late cancels."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence

from tests.soak.wire import Wire, errors, values
from tests.soak.world import USERS, World
from tests.support import messages as m
from tests.support.fakeclient import LoginRefused

#: Everybody's statements have these names.
NAMES = ("", "s1", "s2", "s3")
#: One text that all share; the answer tells who asked.
SHARED = "select $1::text || ':' || current_setting('application_name')"
DEFAULTS = {"search_path": '"$user", public', "timezone": "UTC", "datestyle": "ISO, MDY", "work_mem": "4MB"}
ENCODINGS = ("UTF8", "LATIN1")
CANCELLED = "57014 canceling statement due to user request"
TOO_LONG = "08P01: transaction blocks not allowed in statement pooling mode"


class Stranger:
    """A name that no other has; one connection at a time, kept from one thing to the next."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.dice = random.Random(number)
        self.dbname = "single" if number % 3 == 0 else "app"
        self.user = self.dice.choice(USERS)
        self.tag = f"stranger{number:04}"
        self.encoding = self.dice.choice(ENCODINGS)
        self.turn = 0
        self.wire: Wire | None = None
        self.texts: dict[str, str] = {}

    @property
    def ways(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What its mode allows."""
        own = (self.blocks,) if self.dbname == "single" else (self.portals, self.portals)
        return (
            *own,
            self.defaults,
            self.named,
            self.named,
            self.pipelined,
            self.halves,
            self.gone,
            self.big,
            self.late,
            self.copies,
        )

    def forgiven(self, error: Exception) -> bool:
        """Nothing is."""
        return False

    def next(self) -> str:
        """A text that was never used before; LATIN1 and UTF8 spell it in other bytes."""
        self.turn += 1
        return f"{self.tag}-{self.turn}-é"

    def bytes_of(self, text: str) -> bytes:
        """As this client spells it."""
        return text.encode("utf-8" if self.encoding == "UTF8" else "latin-1")

    def check(self, found: Sequence[bytes], expected: Sequence[str], what: str) -> None:
        """Rows are those that were asked for."""
        same = list(found) == [self.bytes_of(text) for text in expected]
        self.world.check(same, f"{self.tag} {what}: {[*map(bytes.__len__, found)]} {[*found][:2]}, not {expected[:2]}")

    def query(self, sql: str) -> bytes:
        """A simple query in its own encoding; it ends the unnamed statement."""
        self.texts.pop("", None)
        return m.message(b"Q", self.bytes_of(sql) + b"\0")

    @property
    def address(self) -> tuple[str, int]:
        """Where the pooler is."""
        return self.world.pooler.host, self.world.pooler.port

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For every other connection."""
        return self.dice.choice((None, self.world.tls))

    async def connected(self) -> Wire:
        """The connection, opened again if it was left."""
        if self.wire is None:
            facts = {"user": self.user, "database": self.dbname, "application_name": self.tag}
            facts["client_encoding"] = self.encoding
            self.wire, self.texts = await Wire.open(self.address, self.tls, facts), {}
        return self.wire

    async def drop(self) -> None:
        """Leaves without a word, by the end of the stream or by a reset."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.leave(reset=self.dice.random() < 0.5)
            await asyncio.sleep(0)

    async def defaults(self) -> None:
        """Where it has no wishes it finds what a new session has, whatever others have set."""
        wire, names = await self.connected(), (*DEFAULTS, "application_name", "client_encoding")
        shown = ", ".join(f"current_setting('{name}')" for name in names)
        found = await wire.ask(self.query(f"select concat_ws('|', current_user, {shown})"))
        self.check(values(found), ["|".join((self.user, *DEFAULTS.values(), self.tag, self.encoding))], "defaults")

    async def named(self) -> None:
        """Everybody's statement names are the same; each gets the statement it has prepared under that name."""
        wire, name, parts = await self.connected(), self.dice.choice(NAMES), list[bytes]()
        if name not in self.texts or self.dice.random() < 0.3:
            if name in self.texts:
                parts.append(m.close("S", name))
            self.texts[name] = text = self.dice.choice((SHARED, self.next()))
            sql = SHARED if text == SHARED else f"select '{text}:' || $1::text"
            parts.append(m.message(b"P", m.text(name, self.bytes_of(sql)) + b"\0\0"))
        for _ in range(self.dice.randrange(1, 5)):
            expected = []
            for _ in range(self.dice.randrange(1, 4)):
                value, text = self.next(), self.texts[name]
                parts += [m.bind(name, "", (self.bytes_of(value),)), m.execute()]
                expected.append(f"{value}:{self.tag}" if text == SHARED else f"{text}:{value}")
            found = await wire.ask(*parts, m.SYNC)
            self.check(values(found), expected, f"named {errors(found)}")
            parts.clear()

    async def pipelined(self) -> None:
        """Many requests at once, cut anywhere, errors among them: each answer is the next request's."""
        wire, units = await self.connected(), [(self.dice.randrange(4), self.next()) for _ in range(12)]
        self.texts.pop("", None)
        await wire.send_cut(self.dice, *(self.unit(*unit) for unit in units))
        for kind, text in units:
            found = await wire.until()
            told = errors(found)
            if kind == 2:
                good = len(told) == 1 and text[:-2] in told[0] and not values(found)
                self.world.check(good, f"{text} should have failed: {told} {values(found)}")
            else:
                self.check(values(found), [text] * (2 if kind == 3 else 1), f"pipelined {told}")

    def unit(self, kind: int, text: str) -> bytes:
        """A request that ends with one ReadyForQuery."""
        if kind == 0:
            return self.query(f"select '{text}'")
        if kind == 3:
            return self.query(f"select '{text}'; select '{text}'")
        sql = f"select '{text}'" if kind == 1 else f"select '{text}'::int"
        parse = m.message(b"P", m.text("", self.bytes_of(sql)) + b"\0\0")
        return b"".join((parse, m.bind(""), m.describe("P", ""), m.execute(), m.SYNC))

    async def portals(self) -> None:
        """Everybody's portal has the same name; it is read in parts, without a Sync, and may be left in the middle."""
        wire, text, end = await self.connected(), self.next(), self.dice.random()
        await wire.ask(self.query("begin"))
        sql = f"select '{text}' from generate_series(1, 40)"
        wire.send(m.message(b"P", m.text("", self.bytes_of(sql)) + b"\0\0"), m.bind("", "portal"))
        self.texts.pop("", None)
        count = 0
        while count < 40:
            wire.send(m.execute("portal", 15), m.FLUSH)
            found = await wire.until("sCE")
            count += len(values(found))
            self.check(values(found), [text] * len(values(found)), f"portals {errors(found)}")
            if end < 0.3 or found[-1].kind == "E":
                return await self.drop()
        found = await wire.ask(m.close("P", "portal"), m.SYNC) + await wire.ask(self.query("commit"))
        self.world.check(errors(found) == [] and found[-1].payload == b"I", f"{text}: {found}")
        return None

    async def halves(self) -> None:
        """What was sent by halves is never done."""
        tag, way = f"{self.tag}-{self.turn}", self.dice.randrange(4)
        sql = f"insert into notes values('{tag}', '{tag}:never')"
        if way == 0:
            other = await Wire.reach(self.address, self.tls)
            whole = m.startup({"user": self.user, "database": self.dbname})
            other.send(whole[: self.dice.randrange(len(whole))])
            await asyncio.sleep(self.dice.choice((0, 0.01)))
            return other.leave(reset=self.dice.random() < 0.5)
        wire = await self.connected()
        if way == 1:
            whole = m.query(sql)
        elif way == 2:
            whole = m.parse("", sql) + m.bind("") + m.execute() + m.SYNC
        else:
            wire.send(self.query("copy notes from stdin"))
            await wire.until("GE")
            whole = m.message(b"d", f"{tag}\t{tag}:never\n".encode()) + m.COPY_DONE
        await wire.send_cut(self.dice, whole[: self.dice.randrange(1, len(whole))])
        await asyncio.sleep(self.dice.choice((0, 0.01)))
        return await self.drop()

    async def gone(self) -> None:
        """Leaves somewhere in a long answer, with more requests behind it."""
        wire, text = await self.connected(), self.next()
        sql = f"select repeat('{text}', 1000) from generate_series(1, 500)"
        wire.send(*(self.query(sql) for _ in range(self.dice.randrange(1, 4))))
        for _ in range(self.dice.randrange(4)):
            await wire.read()
        await self.drop()

    async def big(self) -> None:
        """A long row and a long parameter are one's own to the last byte."""
        wire, text = await self.connected(), self.next()
        long = text * self.dice.choice((1, 2000, 60_000))
        self.texts.pop("", None)
        found = await wire.ask(
            m.parse("", "select $1::text"), m.bind("", "", (self.bytes_of(long),)), m.execute(), m.SYNC
        )
        self.check(values(found), [long], f"big {errors(found)}")

    async def late(self) -> None:
        """Cancels that come when a query ends may end the next of the same client, and nobody else's."""
        wire = await self.connected()
        cancels = [asyncio.create_task(self.cancel(wire)) for _ in range(5)]
        for _ in range(6):
            text = self.next()
            found = await wire.ask(self.query(f"select '{text}' from pg_sleep(0.002)"))
            if errors(found) != [CANCELLED]:
                self.check(values(found), [text], f"late {errors(found)}")
        await asyncio.gather(*cancels)

    async def cancel(self, wire: Wire) -> None:
        """In a moment."""
        await asyncio.sleep(self.dice.uniform(0, 0.03))
        await wire.cancel(self.address, self.tls)

    async def copies(self) -> None:
        """COPY in that ends well, in a failure, or with requests behind its end."""
        wire, text, fails = await self.connected(), self.next(), self.dice.random() < 0.5
        tag, count = text[:-2], self.dice.choice((1, 40))
        body = "never" if fails else "kept"
        rows = [m.message(b"d", f"{tag}\t{tag}:{body}\n".encode()) for _ in range(count)]
        end = m.message(b"f", b"enough\0") if fails else m.COPY_DONE
        asked = f"select count(*)::text from notes where tag = '{tag}'"
        wire.send(self.query("copy notes from stdin"))
        await wire.until("GE")
        wire.send(*rows, end, self.query(asked))
        found = await wire.until() + await wire.until()
        self.check(values(found), [str(0 if fails else count)], f"copies {errors(found)}")
        self.world.check(len(errors(found)) == int(fails), f"{tag}: {errors(found)}")

    async def blocks(self) -> None:
        """In statement mode a transaction block is refused, and costs the connection."""
        wire = await self.connected()
        try:
            await wire.ask(self.query("begin"))
        except LoginRefused as refused:
            if str(refused) != TOO_LONG:
                raise
        else:
            self.world.check(False, f"{self.tag} got a transaction in statement mode")
        await self.drop()
