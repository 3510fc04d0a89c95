"""What all clients of the checker share: the servers, the facts they noted, and the promises that were broken."""

from __future__ import annotations

import asyncio
import random
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.certs import Authority
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import Postgres
from tests.support.proxy import BrokenProxy

ACCOUNTS = 20
BALANCE = 1000
USERS = ("alice", "bob")
LODGERS = 6

SETUP = f"""
create table accounts(id int primary key, balance int not null);
insert into accounts select n, {BALANCE} from generate_series(1, {ACCOUNTS}) n;
create table moves(id text primary key, giver int not null, taker int not null, amount int not null);
create table notes(tag text not null, body text not null);
grant all on accounts, moves, notes to public;
create schema one; create schema two; grant usage on schema one, two to public;
"""

#: What a session shows that has nothing of another's: settings that nobody may leave behind, the user, channels,
#: advisory locks, temporary tables, cursors that outlive a transaction, statements prepared in SQL.
CLEAN_SQL = """
select current_setting('work_mem'), current_setting('lock_timeout'), current_setting('default_transaction_isolation'),
  current_user::text, session_user::text,
  (select count(*) from pg_listening_channels()),
  (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
  (select count(*) from pg_class where relnamespace = pg_my_temp_schema()),
  (select count(*) from pg_cursors where is_holdable),
  (select count(*) from pg_prepared_statements where from_sql)
"""


def clean(user: str) -> tuple[object, ...]:
    """The answer to CLEAN_SQL."""
    return ("4MB", "0", "read committed", user, user, 0, 0, 0, 0, 0)


@dataclass
class World:
    """One run of the checker."""

    pg: Postgres
    pooler: Pooler
    #: the database on the server; the pooler's are "app" (transaction mode), "single" (statement), "lodge" (session)
    dbname: str
    seconds: float
    #: what half of all connections of clients are made with
    tls: ssl.SSLContext
    #: servers die and the network breaks: connections may be lost, everything else holds as ever
    chaos: bool = False
    network: BrokenProxy | None = None
    #: how many broken promises end the run
    enough: int = 20
    patience_s: float = 90.0
    settle_s: float = 20.0
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    #: transfers that were confirmed, and those that can never have been
    committed: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)

    def check(self, good: bool, what: str) -> None:
        """Note a broken promise."""
        if not good:
            self.wrong.append(what)
            print("WRONG:", what, file=sys.stderr)

    @property
    def over(self) -> bool:
        """Whether the clients should leave."""
        return time.monotonic() > self.begun + self.seconds or len(self.wrong) >= self.enough

    def dsn(self, dbname: str, user: str, sealed: bool, **more: Any) -> str:
        """For psycopg, with TLS or without."""
        mode = "require" if sealed else "disable"
        return self.pooler.dsn(dbname, user, sslmode=mode, connect_timeout=60, **more)


class Client(Protocol):
    """Somebody who does one thing after another."""

    tag: str
    dice: random.Random

    @property
    def ways(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What it may do next."""

    async def drop(self) -> None:
        """Leave without a word."""

    def forgiven(self, error: Exception) -> bool:
        """Whether this is what becomes of somebody who has left."""


async def live(world: World, client: Client, lost: Callable[[Exception], bool]) -> None:
    """One thing after another until the end; an error that `lost` does not know is a broken promise."""
    while not world.over:
        way = client.dice.choice(client.ways)
        name = f"{type(client).__name__.lower()}: {way.__name__}"
        try:
            await asyncio.wait_for(way(), world.patience_s)
            world.done[name] += 1
        except Exception as error:
            if client.forgiven(error):
                world.done[name] += 1
                continue
            world.check(world.chaos and lost(error), f"{client.tag} {name}: {type(error).__name__}: {error}")
            world.done["lost"] += 1
            await client.drop()
            await asyncio.sleep(0.05)
    await client.drop()


def create(pg: Postgres, dbname: str) -> None:
    """The database of a run, afresh."""
    pg.query(f"drop database if exists {dbname} with (force)")
    pg.query(f"create database {dbname}")
    pg.query(SETUP, dbname)


def entries(pg: Postgres, dbname: str, network: BrokenProxy | None = None) -> dict[str, str]:
    """One database in all three modes; the servers are few."""

    def entry(**more: object) -> str:
        return network.database(dbname, **more) if network is not None else database(pg, dbname, **more)

    return {
        "app": entry(pool_size=5),
        "single": entry(pool_size=2, pool_mode="statement"),
        "lodge": entry(pool_size=2, pool_mode="session"),
    }


def settings(authority: Authority) -> dict[str, Any]:
    """Few prepared statements for many clients, TLS for those who want it."""
    wanted: dict[str, Any] = {"pool_mode": "transaction", "server_login_retry": 1, "max_client_conn": 500}
    wanted.update(max_prepared_statements=6, track_extra_parameters="IntervalStyle, search_path")
    return {**wanted, **tls_client_side(authority.server, "allow")}


def context(authority: Authority) -> ssl.SSLContext:
    """What clients trust."""
    return ssl.create_default_context(cafile=str(authority.ca_file))
