"""A table changes under prepared statements: what drivers see of `cached plan must not change result type`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.e2e.reports.conftest import MakePooler
from tests.support.pooler import Pooler
from tests.support.postgres import PASSWORDS, Postgres

Connection = psycopg.Connection[Any]
INT, BIGINT = 23, 20


class Table:
    """A table of its own with one row, which can be changed behind the pooler's back."""

    def __init__(self, pg: Postgres) -> None:
        self.pg = pg
        self.name = f"changed_{uuid.uuid4().hex}"
        self.run(f"create table {self.name}(x int, runs int); insert into {self.name} values (7, 0)")
        self.run(f"grant all on {self.name} to public")

    def run(self, sql: str) -> None:
        """Runs SQL on a direct connection."""
        self.pg.query(sql, "app")

    def change(self, kind: str = "bigint") -> None:
        """Gives the column another type."""
        self.run(f"alter table {self.name} alter x type {kind}")

    @property
    def select(self) -> str:
        """What is prepared."""
        return f"select x from {self.name}"


@pytest.fixture
def table(pg15: Postgres) -> Iterator[Table]:
    """A fresh table."""
    made = Table(pg15)
    yield made
    made.run(f"drop table {made.name}")


@pytest.fixture
def connect(make_pooler: MakePooler) -> Iterator[Callable[..., Connection]]:
    """Opens connections of psycopg, in autocommit, to a pool of so many servers."""
    with ExitStack() as stack:

        def opened(servers: int = 1) -> Connection:
            return stack.enter_context(make_pooler(default_pool_size=servers).connect(password=PASSWORDS["alice"]))

        yield opened


def fetch(conn: Connection, sql: str, *values: Any) -> tuple[Any, int]:
    """One row by a prepared statement, and the type of its first column."""
    cursor = conn.execute(sql.encode(), values or None, prepare=True)
    assert cursor.description is not None
    return cursor.fetchone(), cursor.description[0].type_code


def test_a_client_that_describes_sees_no_error(connect: Callable[..., Connection], table: Table) -> None:
    """psycopg asks for a description with each execution: it just gets the new type, change after change."""
    one, two = connect(), connect()
    for conn in (one, two):
        assert fetch(conn, table.select) == ((7,), INT)
    for kind, code, value in (("bigint", BIGINT, 7), ("text", 25, "7"), ("int using x::int", INT, 7)):
        table.change(kind)
        for conn in (one, two, one):
            assert fetch(conn, table.select) == ((value,), code)


def test_parameters_whose_types_were_given(connect: Callable[..., Connection], table: Table) -> None:
    """A batch with typed parameters is sent again; one whose types PostgreSQL has chosen gets the error, once."""
    conn = connect()
    typed, chosen = f"{table.select} where x = %s::int", f"{table.select} where x::text = %s"
    assert fetch(conn, typed, 7) == fetch(conn, chosen, "7") == ((7,), INT)
    table.change()
    assert fetch(conn, typed, 7) == ((7,), BIGINT)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
        fetch(conn, chosen, "7")
    assert fetch(conn, chosen, "7") == ((7,), BIGINT)


def test_nothing_runs_twice(connect: Callable[..., Connection], table: Table) -> None:
    """A statement that writes and returns rows writes once, although its batch is sent again."""
    conn = connect()
    sql = f"update {table.name} set runs = runs + 1 returning x, runs"
    assert fetch(conn, sql) == ((7, 1), INT)
    table.change()
    assert fetch(conn, sql) == ((7, 2), BIGINT)
    assert fetch(conn, sql) == ((7, 3), BIGINT)


def test_in_a_transaction_the_error_comes_once(connect: Callable[..., Connection], table: Table) -> None:
    """Inside a transaction it is PostgreSQL's error; when one client has had it, those that describe are spared."""
    one, two = connect(2), connect(2)
    with two.transaction():
        assert fetch(one, table.select) == fetch(two, table.select) == ((7,), INT)
    table.change()
    one.execute("begin")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
        fetch(one, table.select)
    one.execute("rollback")
    for conn in (one, two):
        with conn.transaction():
            conn.execute("select 1")
            assert fetch(conn, table.select) == ((7,), BIGINT)


def test_every_server_of_a_pool(connect: Callable[..., Connection], table: Table) -> None:
    """Each server holds the old plan, and none of them shows it."""
    conns = [connect(3) for _ in range(3)]
    with ExitStack() as stack:
        for conn in conns:
            stack.enter_context(conn.transaction())
            assert fetch(conn, table.select) == ((7,), INT)
    table.change()
    for conn in conns * 2:
        assert fetch(conn, table.select) == ((7,), BIGINT)


def test_a_pipeline_gets_the_error(connect: Callable[..., Connection], table: Table) -> None:
    """Of several statements under way none is sent again: the error comes, nothing was done, the next try works."""
    conn = connect()
    count = f"update {table.name} set runs = runs + 1"
    assert fetch(conn, table.select) == ((7,), INT)
    table.change()

    def both() -> Any:
        with conn.pipeline():
            conn.execute(count.encode())
            return conn.execute(table.select.encode(), prepare=True).fetchone()

    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
        both()
    assert both() == (7,)
    assert fetch(conn, f"select runs from {table.name}") == ((1,), INT)


def test_describe_prepared(connect: Callable[..., Connection], table: Table) -> None:
    """PQdescribePrepared gets the error once at most; afterwards every client that asks gets the new description."""
    one, two = connect().pgconn, connect().pgconn
    for pgconn in (one, two):
        pgconn.prepare(b"d", table.select.encode())
        assert pgconn.describe_prepared(b"d").ftype(0) == INT
    table.change()
    first = one.describe_prepared(b"d")
    assert first.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"0A000"
    for pgconn in (one, two):
        assert pgconn.describe_prepared(b"d").ftype(0) == BIGINT
        assert pgconn.exec_prepared(b"d", []).get_value(0, 0) == b"7"


async def with_asyncpg(pooler: Pooler, story: Callable[[Any, Any], Awaitable[None]]) -> None:
    """Runs a story on two connections of asyncpg, which keep their statements and what they return."""
    login = {"host": pooler.host, "port": pooler.port, "user": "alice", "database": "app"}
    conns = [await asyncpg.connect(**login, password=PASSWORDS["alice"], ssl=False, timeout=20) for _ in range(2)]
    try:
        await story(*conns)
    finally:
        for conn in conns:
            await conn.close()


def test_clients_that_remember_descriptions(make_pooler: MakePooler, table: Table) -> None:
    """asyncpg decodes by what it was told when it prepared: each client is told, and heals by its own retry."""

    async def story(one: Any, two: Any) -> None:
        for conn in (one, two):
            assert await conn.fetchval(table.select) == 7
        await asyncio.to_thread(table.change, "text")
        for conn in (one, two, one, two):
            assert await conn.fetchval(table.select) == "7"

    asyncio.run(with_asyncpg(make_pooler(), story))


def test_clients_that_remember_in_a_transaction(make_pooler: MakePooler, table: Table) -> None:
    """In a transaction each such client gets the error once, as on a direct connection, and none a wrong value."""

    async def story(one: Any, two: Any) -> None:
        for conn in (one, two):
            assert await conn.fetchval(table.select) == 7
        await asyncio.to_thread(table.change, "float8")
        for conn in (one, two):
            with pytest.raises(asyncpg.InvalidCachedStatementError):
                async with conn.transaction():
                    await conn.fetchval(table.select)
            async with conn.transaction():
                assert await conn.fetchval(table.select) == 7.0

    asyncio.run(with_asyncpg(make_pooler(), story))
