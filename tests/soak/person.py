"""A client of a driver in transaction mode: settings of its own that must follow it, rows, money, mistakes, cancels."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg

from tests.soak.world import ACCOUNTS, CLEAN_SQL, LODGERS, USERS, World, clean

ZONES = ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York")
DATE_STYLES = ("ISO, MDY", "German, DMY", "SQL, DMY", "Postgres, MDY")
PATHS = ("one", "two")
OWN = ("application_name", "timezone", "datestyle", "search_path")
OWN_SQL = "select " + ", ".join(f"current_setting('{name}')" for name in OWN)
ROW_SQL = "select %s::text, current_setting('search_path')"


class Person:
    """A name that no other has; `drop` leaves whatever is under way."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.tag = f"person{number:04}"
        self.dice = random.Random(number)
        self.user = self.dice.choice(USERS)
        self.turn = 0
        self.zone = self.dice.choice(ZONES)
        self.dates = self.dice.choice(DATE_STYLES)
        self.path = self.dice.choice(PATHS)
        self.conn: psycopg.AsyncConnection[Any] | None = None

    @property
    def ways(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Everything, money most often."""
        return (
            self.settings, self.settings, self.scruffy, self.local, self.rows, self.rows, self.pipeline, self.transfer,
            self.transfer, self.transfer, self.temporary, self.mistakes, self.cancelled, self.copied, self.rude,
            self.guest, self.call,
        )  # fmt: skip

    def forgiven(self, error: Exception) -> bool:
        """COPY's context notices that we have left."""
        return self.conn is None and isinstance(error, psycopg.OperationalError)

    def next(self) -> str:
        """A text that was never used before."""
        self.turn += 1
        return f"{self.tag}-{self.turn}"

    async def connected(self) -> psycopg.AsyncConnection[Any]:
        """The connection, opened again if it was lost."""
        if self.conn is None or self.conn.closed:
            options = f"-c timezone={self.zone} -c search_path={self.path},public"
            sealed = self.dice.random() < 0.5
            dsn = self.world.dsn("app", self.user, sealed, application_name=self.tag, options=options)
            self.conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
            await self.conn.execute(f"set datestyle to {self.dates}".encode())
            self.conn.prepare_threshold = self.dice.choice((None, 0, 3))
        return self.conn

    async def drop(self) -> None:
        """Leaves without a word, whatever is under way."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.pgconn.finish()

    async def own(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Its settings are those it made."""
        row = await (await conn.execute(OWN_SQL.encode())).fetchone()
        assert row is not None
        wanted = (self.tag, self.zone, self.dates, f"{self.path},public")
        for name, found, expected in zip(OWN, row, wanted, strict=True):
            same = found.replace(" ", "") == expected.replace(" ", "")
            self.world.check(same, f"{self.tag} has {name} {found}, not {expected}")

    async def settings(self) -> None:
        """It sees its own settings, and nothing that another has left behind."""
        conn = await self.connected()
        if self.dice.random() < 0.2:
            self.zone = self.dice.choice(ZONES)
            await conn.execute(f"set timezone to '{self.zone}'".encode())
        await self.own(conn)
        row = await (await conn.execute(CLEAN_SQL.encode())).fetchone()
        self.world.check(row == clean(self.user), f"{self.tag} finds {row}, not {clean(self.user)}")

    async def scruffy(self) -> None:
        """Sets a tracked parameter that PostgreSQL 15 does not report: nobody may inherit it, and it is not kept."""
        conn, path = await self.connected(), self.dice.choice(PATHS)
        await conn.execute(f"set search_path to {path}, public".encode())
        if self.world.pg.programs.major >= 18:
            self.path = path
        await self.settings()

    async def local(self) -> None:
        """What is set for a transaction ends with it, whatever the end is."""
        conn, end = await self.connected(), self.dice.random()
        await conn.execute("begin isolation level serializable")
        await conn.execute("set local work_mem to '77MB'")
        await conn.execute("set local lock_timeout to '7min'")
        await conn.execute("set local search_path to one, two")
        await conn.execute("set local application_name to 'for a moment'")
        await conn.execute(f"listen {self.tag}")
        await conn.execute("select pg_advisory_xact_lock_shared(7)")
        row = await (await conn.execute("show work_mem")).fetchone()
        self.world.check(row == ("77MB",), f"{self.tag} has work_mem {row}")
        if end < 0.2:
            return await self.drop()
        if end < 0.4:
            with suppress(psycopg.errors.DivisionByZero):
                await conn.execute("select 1/0")
        await conn.execute("rollback")
        return None

    async def rows(self) -> None:
        """Rows come back with the tag they were asked for."""
        conn, text, count = await self.connected(), self.next(), self.dice.choice((1, 1, 10, 2000))
        cursor = await conn.execute(f"{ROW_SQL} from generate_series(1, %s)", (text, count))
        found = await cursor.fetchall()
        good = len(found) == count and all(self.is_row(row, text) for row in found)
        self.world.check(good, f"{text} of {self.path}: {found[:3]}")

    def is_row(self, row: Any, text: str) -> bool:
        """The answer to ROW_SQL: the text that was sent, and the search path that is its own."""
        return row is not None and (row[0], row[1].replace(" ", "")) == (text, f"{self.path},public")

    async def pipeline(self) -> None:
        """Answers of a pipeline come in its order, an error in it included."""
        conn, texts = await self.connected(), [self.next() for _ in range(self.dice.randrange(2, 20))]
        broken = self.dice.random() < 0.3
        try:
            async with conn.pipeline():
                cursors = [await conn.execute(ROW_SQL, (text,)) for text in texts]
                if broken:
                    await conn.execute("select 1/0")
                found = [await cursor.fetchone() for cursor in cursors]
        except psycopg.errors.DivisionByZero:
            return
        good = all(self.is_row(*pair) for pair in zip(found, texts, strict=True))
        self.world.check(good, f"{texts[:2]} of {self.path}: {found[:2]}")
        self.world.check(not broken, f"{texts[0]}: no error came")

    async def transfer(self) -> None:
        """Money moves from one account to another, or not at all; what is known of it is noted."""
        conn, name = await self.connected(), self.next()
        giver, taker = sorted(self.dice.sample(range(1, ACCOUNTS + 1), 2))
        amount, end = self.dice.randrange(-50, 50), self.dice.random()
        if end < 0.45:
            self.world.undone.add(name)
        await conn.execute("begin")
        await self.own(conn)
        await conn.execute("insert into moves values(%s, %s, %s, %s)", (name, giver, taker, amount))
        await conn.execute("update accounts set balance = balance - %s where id = %s", (amount, giver))
        if end < 0.1:
            return await self.drop()
        if end < 0.2:
            with suppress(psycopg.errors.DivisionByZero):
                await conn.execute("select 1/0")
            if end < 0.15:
                return await self.drop()
            await conn.execute("commit")
            return None
        await conn.execute("update accounts set balance = balance + %s where id = %s", (amount, taker))
        if end < 0.45:
            await conn.execute("rollback")
        elif end < 0.5:
            conn.pgconn.send_query(b"commit")  # nobody will know
            await self.drop()
        else:
            await conn.execute("commit")
            self.world.committed.add(name)
        return None

    async def temporary(self) -> None:
        """Everybody's temporary table has the same name, and one's own rows."""
        conn, text = await self.connected(), self.next()
        await conn.execute("begin")
        await self.own(conn)
        await conn.execute("create temp table mine(body text) on commit drop")
        await conn.execute("insert into mine select %s from generate_series(1, 3)", (text,))
        found = await (await conn.execute("select body from mine")).fetchall()
        self.world.check(found == [(text,)] * 3, f"{text}: {found}")
        await conn.execute(self.dice.choice((b"commit", b"rollback")))

    async def mistakes(self) -> None:
        """Errors belong to those who made them."""
        conn, text = await self.connected(), self.next()
        for sql in (f'select 1 as x from "{text}"', f"select '{text}'::int", f"do $$ begin raise '{text}'; end $$"):
            try:
                await conn.execute(sql.encode())
            except (psycopg.errors.UndefinedTable, psycopg.errors.DataError, psycopg.errors.RaiseException) as error:
                self.world.check(text in str(error), f"{text} got the error {error}")
            else:
                self.world.check(False, f"{text} got no error")

    async def cancelled(self) -> None:
        """A cancel ends the query it was meant for, or comes too late and does nothing."""
        conn, text = await self.connected(), self.next()
        late = self.dice.random() < 0.5
        task = asyncio.create_task(conn.execute(f"select '{text}', pg_sleep({0.02 if late else 20})".encode()))
        await asyncio.sleep(self.dice.uniform(0.0, 0.04) if late else 0.1)
        for _ in range(40):
            await conn.cancel_safe()
            if (await asyncio.wait((task,), timeout=0.3))[0]:
                break
        with suppress(psycopg.errors.QueryCanceled):
            row = await (await task).fetchone()
            self.world.check(row is not None and row[0] == text, f"{text}: {row}")
            self.world.check(late, f"{text} was not cancelled")

    async def copied(self) -> None:
        """COPY in and out carry one client's rows; a COPY that breaks leaves none."""
        conn, text, end = await self.connected(), self.next(), self.dice.random()
        count = self.dice.choice((1, 50, 3000))
        cursor = conn.cursor()
        try:
            async with cursor.copy("copy notes from stdin") as copy:
                for number in range(count):
                    await copy.write_row((text, f"{text}:{number}"))
                if end < 0.1:
                    return await self.drop()
                if end < 0.2:
                    await copy.write(b"too\tmany\tcolumns\n")
                if end > 0.9:
                    raise KeyError(text)
        except psycopg.errors.BadCopyFileFormat:
            self.world.check(end < 0.2, f"{text}: COPY failed")
            count = 0
        except KeyError:
            count = 0
        out = b""
        async with cursor.copy(f"copy (select * from notes where tag = '{text}') to stdout".encode()) as back:
            async for piece in back:
                out += piece
                if end < 0.25:
                    return await self.drop()
        lines = out.splitlines()
        self.world.check(len(lines) == count, f"{text}: {len(lines)} lines of {count}")
        self.world.check(all(line.startswith(text.encode() + b"\t") for line in lines), f"{text}: {lines[:2]}")
        return None

    async def rude(self) -> None:
        """Leaves in the middle of a query."""
        conn = await self.connected()
        size = self.dice.choice((1, 1000, 5_000_000))
        conn.pgconn.send_query(f"select '{self.next()}', repeat('x', {size})".encode())
        if self.dice.random() < 0.5:
            await asyncio.sleep(self.dice.uniform(0, 0.01))
        await self.drop()

    async def call(self) -> None:
        """Calls a lodger by its name; whoever else hears of it will say so."""
        conn, name = await self.connected(), f"lodger{self.dice.randrange(LODGERS):04}"
        await conn.execute(f"notify {name}, '{name}'".encode())

    async def guest(self) -> None:
        """asyncpg prepares, binds and pages in binary."""
        pooler = self.world.pooler
        facts: dict[str, Any] = {"host": pooler.host, "port": pooler.port, "user": self.user, "database": "app"}
        facts["ssl"] = self.dice.choice(("disable", "require"))
        conn = await asyncpg.connect(**facts, timeout=60, server_settings={"application_name": self.tag})
        try:
            for _ in range(self.dice.randrange(1, 6)):
                text = self.next()
                found = await conn.fetch("select $1::text, $2::int, current_setting('application_name')", text, 7)
                self.world.check(tuple(found[0]) == (text, 7, self.tag), f"{text}: {found}")
            async with conn.transaction():
                text = self.next()
                pages = [r[0] async for r in conn.cursor("select $1::text from generate_series(1, 120)", text)]
            self.world.check(pages == [text] * 120, f"{text}: {pages[:2]}")
        finally:
            if self.dice.random() < 0.3:
                conn.terminate()
            else:
                await conn.close(timeout=60)
