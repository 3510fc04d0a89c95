"""The checker itself: whatever promise is broken on purpose, it says so, and of the right one."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import psycopg

from tests.e2e.conftest import MakePooler
from tests.soak.crowd import run
from tests.soak.world import World, context, create, entries, settings
from tests.support.certs import Authority
from tests.support.postgres import Postgres
from tests.support.proxy import BrokenProxy, Fault

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

DBNAME = "checker"


@dataclass
class Searched(World):
    """Ends when it has complained of all that is `told`."""

    told: Sequence[str] = ()

    @property
    def missed(self) -> list[str]:
        """What it has not complained of."""
        return [told for told in self.told if not any(re.search(told, what) for what in self.wrong)]

    @property
    def over(self) -> bool:
        """For clients."""
        return self.missed == [] or time.monotonic() > self.begun + self.seconds


@dataclass
class Ripe(Searched):
    """Ends when there are transfers for those vandals who take some away and make some up."""

    @property
    def over(self) -> bool:
        """For clients."""
        lost = any(move.endswith("7") and not move.startswith("person0000") for move in self.committed)
        back = any(move.startswith("person0000") and not move.endswith("7") for move in self.undone)
        return (lost and back) or time.monotonic() > self.begun + self.seconds


class Vandal:
    """Breaks one promise again and again, the last time when it leaves, by SQL past the pooler or through it."""

    def __init__(self, world: World, sql: str, past: bool = True) -> None:
        self.world, self.sql, self.past = world, sql, past
        self.tag, self.dice = "vandal", random.Random(1)

    @property
    def ways(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """One."""
        return (self.break_it,)

    def forgiven(self, error: Exception) -> bool:
        """Whatever is in its way."""
        return True

    async def drop(self) -> None:
        """Nothing is kept, and nothing that others did before stays as it was."""
        if self.past:
            await self.break_it()

    async def break_it(self) -> None:
        """Once more."""
        await asyncio.sleep(0.1)
        dsn = self.world.pg.dsn(DBNAME) if self.past else self.world.dsn("app", "alice", False)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute(self.sql.encode())


#: What a vandal leaves behind in transaction mode, and what those say who find it.
LEFT = {
    "set work_mem to '55MB'": r"person.* finds \('55MB'",
    "listen lodger0001": r"person.* finds \(('[^']*', ){5}[1-9]",
    "select pg_advisory_lock_shared(3)": r"person.* finds \(('[^']*', ){5}\d, [1-9]",
    "create temp table if not exists left_over(x int)": r"person.* finds \(('[^']*', ){5}\d, \d, [1-9]",
}
#: What one does behind the pooler's back, and what the verdict says.
DONE = {
    "update accounts set balance = balance + 1 where id = 1": "accounts are",
    "delete from moves where id ~ '7$'": "confirmed, but lost",
    "insert into moves select 'person0000-' || n, 1, 2, 0 from generate_series(1, 900) n on conflict do nothing": (
        "taken back, but there"
    ),
    "insert into notes values('x', 'x:never')": "never sent whole",
    "insert into notes values('x', 'y:1')": "wrong name",
}
CANCELS = "select pg_cancel_backend(pid) from pg_stat_activity where usename in ('alice', 'bob') and state = 'active'"


def test_what_stays_with_a_server_is_noticed(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Settings, channels, locks and tables of others; sessions that were not reset; cancels that nobody asked for."""
    create(pg15, DBNAME)
    pooler = make(entries(pg15, DBNAME), server_reset_query="select 1", **settings(authority))
    told = (*LEFT.values(), "lodger.* finds", "QueryCanceled|57014")
    world = Searched(pg15, pooler, DBNAME, 30, context(authority), settle_s=1, told=told)
    run(world, 8, [*(Vandal(world, sql, past=False) for sql in LEFT), Vandal(world, CANCELS)])
    assert world.missed == []


def test_what_is_left_in_the_end_is_noticed(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Money from nowhere, transfers lost or made up, rows half sent or under another's name, a client that stays."""
    create(pg15, DBNAME)
    pooler = make(entries(pg15, DBNAME), **settings(authority))
    world = Ripe(pg15, pooler, DBNAME, 30, context(authority), settle_s=0.5, told=(*DONE.values(), "left over: "))
    with pooler.connect() as kept:
        kept.execute("begin")
        run(world, 8, [Vandal(world, sql) for sql in DONE])
    assert world.missed == []


def test_answers_that_are_swapped_are_noticed(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """When one server's words come from another, somebody sees a name that is not its own."""
    seen: dict[int, bytes] = {}

    def swap(number: int, block: bytes) -> bytes:
        others = [name for other, name in seen.items() if other != number]
        found = re.search(rb"(person|stranger)\d{4}", block)
        if found is None:
            return block
        seen[number] = found[0]
        return block.replace(found[0], others[-1]) if others and len(others[-1]) == len(found[0]) else block

    create(pg15, DBNAME)
    with BrokenProxy((pg15.host, pg15.port), down=Fault(rewrite=swap)) as network:
        pooler = make(entries(pg15, DBNAME, network), server_tls_sslmode="disable", **settings(authority))
        told = (r"person0.*person0", r"stranger0.*stranger0")
        world = Searched(pg15, pooler, DBNAME, 30, context(authority), told=told)
        run(world, 8)
    assert world.missed == []


def test_who_waits_for_ever_is_noticed(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """A pool that serves nobody any more is a broken promise like any other."""
    create(pg15, DBNAME)
    pooler = make(entries(pg15, DBNAME), **settings(authority))
    told = ("person.*TimeoutError", "stranger.*TimeoutError")
    world = Searched(pg15, pooler, DBNAME, 30, context(authority), patience_s=1, settle_s=1, told=told)
    with psycopg.connect(pooler.dsn("pgbouncer", "admin"), autocommit=True) as admin:
        admin.execute("PAUSE app")
        run(world, 8)
    assert world.missed == []
