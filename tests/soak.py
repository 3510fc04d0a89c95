"""A long isolation soak: many clients misbehave for minutes, and nothing of one client may reach another."""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import psutil
import psycopg

from tests.support.certs import Authority
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import Postgres

ACCOUNTS = 20
FORTUNE = 1000 * ACCOUNTS
ZONES = ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York")
#: What a client may hear when a server goes away under it.
LOST = re.compile(
    "server conn|terminat|closed the connection|server closed|shutting down|starting up|recovery mode|connect"
    "|query_wait_timeout|EOF|lost|in failed sql|timed out|invalid server parameter"
    # what drivers make of two errors in a row
    "|mix COPY|cannot be mixed|while busy|another operation|too many values|received 2 results"
)

SETUP = f"""
create table accounts(id int primary key, balance int not null);
insert into accounts select n, 1000 from generate_series(1, {ACCOUNTS}) n;
create table notes(tag text not null, body text not null);
grant all on accounts, notes to public;
create schema one; create schema two; grant usage on schema one, two to public;
"""


@dataclass
class World:
    """What all clients share."""

    pg: Postgres
    pooler: Pooler
    major: int
    chaos: bool
    tls: bool
    deadline: float
    #: A server started by a thread ends with that thread, so one thread stays for all of it.
    hand: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def check(self, good: bool, what: str) -> None:
        """Note a broken promise."""
        if not good:
            self.wrong.append(what)
            print("WRONG:", what, file=sys.stderr)

    @property
    def over(self) -> bool:
        """Whether the clients should leave."""
        return time.monotonic() > self.deadline or len(self.wrong) > 20


class Person:
    """One client: a name that no other has, and settings of its own that must follow it everywhere."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.tag = f"person{number:04}"
        self.dice = random.Random(number)
        self.turn = 0
        self.zone = self.dice.choice(ZONES)
        self.path = self.dice.choice(("one", "two", "public"))
        self.conn: psycopg.AsyncConnection[Any] | None = None

    def next(self) -> str:
        """A text that was never used before."""
        self.turn += 1
        return f"{self.tag}-{self.turn}"

    async def connected(self) -> psycopg.AsyncConnection[Any]:
        """The connection, opened again if it was lost."""
        if self.conn is None or self.conn.closed:
            options = f"-c timezone={self.zone}"
            more = {"application_name": self.tag, "options": options, "connect_timeout": 60}
            dsn = self.world.pooler.dsn("app", "alice", sslmode="require" if self.world.tls else "disable", **more)
            self.conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
            if self.world.major >= 18:
                await self.conn.execute(f"set search_path to {self.path}, public".encode())
            self.conn.prepare_threshold = self.dice.choice((None, 0, 3))
        return self.conn

    async def drop(self) -> None:
        """Leaves without a word, whatever is under way."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.pgconn.finish()

    async def settings(self) -> None:
        """Nobody else's settings are seen."""
        conn = await self.connected()
        if self.dice.random() < 0.2:
            self.zone = self.dice.choice(ZONES)
            await conn.execute(f"set timezone to '{self.zone}'".encode())
        asked = (
            "select current_setting('application_name'), current_setting('timezone'), current_setting('search_path')"
        )
        row = await (await conn.execute(asked)).fetchone()
        assert row is not None
        self.world.check(row[0] == self.tag, f"{self.tag} has application_name {row[0]}")
        self.world.check(row[1] == self.zone, f"{self.tag} has timezone {row[1]}, not {self.zone}")
        if self.world.major >= 18:
            self.world.check(row[2] == f"{self.path}, public", f"{self.tag} has search_path {row[2]}")

    async def rows(self) -> None:
        """Rows come back with the tag they were asked for."""
        conn, text, count = await self.connected(), self.next(), self.dice.choice((1, 1, 10, 2000))
        cursor = await conn.execute("select %s::text, n from generate_series(1, %s) n", (text, count))
        found = await cursor.fetchall()
        self.world.check(len(found) == count and {row[0] for row in found} == {text}, f"{text}: {found[:3]}")

    async def pipeline(self) -> None:
        """Answers of a pipeline come in its order, an error in it included."""
        conn, texts = await self.connected(), [self.next() for _ in range(self.dice.randrange(2, 20))]
        broken = self.dice.random() < 0.3
        try:
            async with conn.pipeline():
                cursors = [await conn.execute("select %s::text", (text,)) for text in texts]
                if broken:
                    await conn.execute("select 1/0")
                found = [await cursor.fetchone() for cursor in cursors]
        except psycopg.errors.DivisionByZero:
            return
        self.world.check(found == [(text,) for text in texts], f"{texts[:2]}: {found[:2]}")
        self.world.check(not broken, f"{texts[0]}: no error came")

    async def transfer(self) -> None:
        """Money moves from one account to another, or not at all."""
        conn = await self.connected()
        giver, taker = sorted(self.dice.sample(range(1, ACCOUNTS + 1), 2))
        amount, end = self.dice.randrange(-50, 50), self.dice.random()
        await conn.execute("begin")
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
        await conn.execute("commit" if end < 0.8 else "rollback")
        return None

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
        conn.pgconn.send_query(
            f"select '{self.next()}', repeat('x', {self.dice.choice((1, 1000, 5_000_000))})".encode()
        )
        if self.dice.random() < 0.5:
            await asyncio.sleep(self.dice.uniform(0, 0.01))
        await self.drop()

    async def guest(self) -> None:
        """asyncpg prepares, binds and pages in binary."""
        pooler = self.world.pooler
        facts: dict[str, Any] = {
            "host": pooler.host,
            "port": pooler.port,
            "user": "alice",
            "database": "app",
            "timeout": 60,
        }
        facts["ssl"] = "require" if self.world.tls else "disable"
        conn = await asyncpg.connect(**facts, server_settings={"application_name": self.tag})
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

    async def live(self) -> None:
        """One thing after another until the end."""
        ways: Sequence[Callable[[], Awaitable[None]]] = (
            self.settings, self.rows, self.rows, self.pipeline, self.transfer, self.transfer, self.transfer,
            self.mistakes, self.cancelled, self.copied, self.rude, self.guest,
        )  # fmt: skip
        while not self.world.over:
            way = self.dice.choice(ways)
            try:
                await asyncio.wait_for(way(), 90)
                self.world.done[way.__name__] += 1
            except Exception as error:
                if self.conn is None and isinstance(error, psycopg.OperationalError):
                    continue  # COPY's context notices that we have left
                text = f"{self.tag} {way.__name__}: {type(error).__name__}: {error}"
                self.world.check(self.world.chaos and bool(LOST.search(str(error))), text)
                self.world.done["lost"] += 1
                await self.drop()
                await asyncio.sleep(0.05)
        await self.drop()


async def trouble(world: World) -> None:
    """The server dies and comes back, the configuration is read again, servers are replaced, the pooler pauses."""
    dice = random.Random()

    def strike() -> None:
        way = dice.choice(("terminate", "kill", "restart", "reload", "reconnect", "pause"))
        world.done[f"trouble: {way}"] += 1
        if way == "terminate":
            sql = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice' and random() < 0.5"
            world.pg.query(sql)
        elif way == "kill":
            for child in psutil.Process(world.pg.pid).children():
                if "alice" in " ".join(child.cmdline()):
                    child.kill()
                    break
        elif way == "restart":
            world.pg.stop()
            world.pg.start()
        elif way == "pause":
            world.pooler.admin("PAUSE")
            world.pooler.admin("RESUME")
        else:
            world.pooler.admin(way.upper())

    while not world.over:
        await asyncio.sleep(dice.uniform(0.5, 4))
        try:
            await asyncio.get_running_loop().run_in_executor(world.hand, strike)
        except psycopg.Error as error:
            print("trouble:", error, file=sys.stderr)


async def cycle(world: World, clients: int) -> None:
    """All clients, and the trouble if it is wanted."""
    people = [Person(world, number).live() for number in range(clients)]
    await asyncio.gather(*people, *([trouble(world)] if world.chaos else []))


def settled(world: World) -> None:
    """After everybody has left the pooler has forgotten them, and what the server holds is right."""
    time.sleep(2.5)
    total = world.pg.query("select sum(balance) from accounts", dbname="app")[0][0]
    world.check(total == FORTUNE, f"the money is {total}, not {FORTUNE}")
    strange = world.pg.query("select count(*) from notes where body not like tag || ':%'", dbname="app")[0][0]
    world.check(strange == 0, f"{strange} rows under a wrong name")
    lists = {row["list"]: row["items"] for row in world.pooler.admin("SHOW LISTS")}
    world.check(lists["used_clients"] == 1, f"clients are left: {lists}")
    for row in world.pooler.admin("SHOW POOLS"):
        if row["database"] != "pgbouncer":
            left = {key: row[key] for key in ("cl_active", "cl_waiting", "sv_active", "sv_login", "sv_being_canceled")}
            world.check(not any(left.values()), f"the pool is not empty: {row}")
    there = world.pg.query("select count(*) from pg_stat_activity where usename = 'alice'")[0][0]
    servers = len([row for row in world.pooler.admin("SHOW SERVERS") if row["database"] == "app"])
    world.check(there == servers, f"{there} backends, but SHOW SERVERS has {servers}")
    workers = map(psutil.Process, world.pooler.worker_pids())
    sockets = [c for worker in workers for c in worker.net_connections() if c.status != "LISTEN"]
    world.check(len(sockets) <= servers + 1, f"{len(sockets)} sockets for {servers} servers")
    log = world.pooler.log_text()
    world.check("Traceback" not in log and "internal error" not in log, "a traceback in the log")
    world.check(world.pooler.running, "the pooler has died")


def soak(engine: str, given: argparse.Namespace) -> bool:
    """One engine, one server version; true if every promise held."""
    authority = Authority() if given.tls else None
    # Committed at once: what was confirmed survives a crash.
    with Postgres(given.major, settings={"synchronous_commit": "on"}, tls=authority) as pg:
        with pg.connect(dbname="app") as conn:
            conn.execute(SETUP.encode())
        settings: dict[str, Any] = {
            "pool_mode": "transaction",
            "default_pool_size": 8,
            "server_login_retry": 1,
            "max_client_conn": 500,
        }
        if authority is not None:
            settings.update(tls_client_side(authority.server), server_tls_sslmode="require")
        with Pooler({"app": database(pg)}, engine=engine, **settings) as pooler:
            world = World(pg, pooler, given.major, given.chaos, given.tls, time.monotonic() + given.seconds)
            asyncio.run(cycle(world, given.clients))
            settled(world)
            if world.wrong:
                log = pooler.log_text()
                start = max(0, log.find("Traceback") - 500) if "Traceback" in log else -2000
                print(log[start:][:4000], file=sys.stderr)
    facts = ", ".join(f"{name} {count}" for name, count in sorted(world.done.items()))
    print(f"{engine} on PostgreSQL {given.major}: {'FAILED' if world.wrong else 'held'} ({facts})")
    return not world.wrong


def main() -> int:
    """Every engine in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="uring,epoll,python")
    parser.add_argument("--major", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120, help="for each engine")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--tls", action="store_true", help="on both sides; PostgreSQL 15")
    parser.add_argument("--chaos", action="store_true", help="the server dies, servers are killed, the pooler pauses")
    given = parser.parse_args()
    failed = [engine for engine in given.engines.split(",") if not soak(engine, given)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
