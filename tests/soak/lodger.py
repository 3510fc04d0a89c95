"""A client in session mode that leaves as much behind as a session can hold; the next one must find a clean one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg

from tests.soak.world import CLEAN_SQL, USERS, World, clean

#: Everybody's have the same names.
FURNITURE = (
    "set work_mem to '99MB'",
    "set lock_timeout to '5min'",
    "set session characteristics as transaction isolation level serializable",
    "listen {tag}",
    "select pg_advisory_lock_shared(11)",
    "create temp table mine as select '{text}' as body",
    "prepare mine as select '{text}' as body",
    "declare mine scroll cursor with hold for select '{text}' as body",
    "set search_path to two",
    "set role to none",
)


class Lodger:
    """Takes a session, furnishes it, uses it, and leaves it as it is."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.tag = f"lodger{number:04}"
        self.dice = random.Random(number)
        self.turn = 0
        self.conn: psycopg.AsyncConnection[Any] | None = None

    @property
    def ways(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """One stay after another."""
        return (self.stay,)

    def forgiven(self, error: Exception) -> bool:
        """Nothing is."""
        return False

    async def drop(self) -> None:
        """Leaves without a word, whatever is under way."""
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.pgconn.finish()

    def hear(self, call: psycopg.Notify) -> None:
        """Calls for others must not come."""
        self.world.done["calls heard"] += 1
        good = (call.channel, call.payload) == (self.tag, self.tag)
        self.world.check(good, f"{self.tag} hears {call.channel}: {call.payload}")

    async def stay(self) -> None:
        """A clean session, then one's own things in it."""
        self.turn += 1
        user, text, end = self.dice.choice(USERS), f"{self.tag}-{self.turn}", self.dice.random()
        dsn = self.world.dsn("lodge", user, self.dice.random() < 0.5, application_name=self.tag)
        self.conn = conn = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        conn.add_notify_handler(self.hear)
        row = await (await conn.execute(CLEAN_SQL.encode())).fetchone()
        self.world.check(row == clean(user), f"{self.tag} finds {row}, not {clean(user)}")
        for sql in FURNITURE:
            await conn.execute(sql.format(tag=self.tag, text=text).encode())
        for _ in range(self.dice.randrange(1, 5)):
            for sql in ("select body from mine", "execute mine", "fetch absolute 1 from mine", "show application_name"):
                row = await (await conn.execute(sql.encode())).fetchone()
                self.world.check(row == (self.tag if sql.startswith("show") else text,), f"{text}: {row} by {sql}")
            await asyncio.sleep(self.dice.uniform(0, 0.1))
        if end < 0.2:
            await conn.execute("begin")
        elif end < 0.4:
            conn.pgconn.send_query(b"select pg_sleep(0.05)")
        if end < 0.7:
            await self.drop()
        else:
            await conn.close()
