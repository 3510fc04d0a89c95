"""One script per client program, run directly and through the pooler, so that the two transcripts can be compared."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import asyncpg
import pg8000.dbapi
import psycopg
from psycopg import sql

Transcript = list[Any]
ROWS = 3000


@dataclass(frozen=True, slots=True)
class Target:
    """Where a script runs: the server itself, or a pooler in front of it."""

    host: str
    port: int
    user: str = "alice"
    password: str = "alice-secret"
    dbname: str = "app"
    tls_ca: str = ""  # "" = no TLS

    def libpq(self) -> str:
        """A libpq connection string that verifies the server when TLS is on."""
        tls = f"sslmode=verify-full sslrootcert={self.tls_ca}" if self.tls_ca else "sslmode=disable"
        host = "localhost" if self.tls_ca else self.host
        return f"host={host} port={self.port} user={self.user} password={self.password} dbname={self.dbname} {tls}"

    def context(self) -> ssl.SSLContext | None:
        """The same for drivers that take an SSLContext."""
        return ssl.create_default_context(cafile=self.tls_ca) if self.tls_ca else None


@contextmanager
def table(run: Any) -> Iterator[str]:
    """A scratch table, dropped at the end; `run` executes one statement."""
    name = "scenario_rows"
    run(f"drop table if exists {name}")
    run(f"create table {name}(id int primary key, body text)")
    try:
        yield name
    finally:
        run(f"drop table if exists {name}")


def psycopg_sync(target: Target) -> Transcript:
    """Simple and prepared statements, transactions, errors, COPY both ways, notices, big rows."""
    out: Transcript = []
    with psycopg.connect(target.libpq(), autocommit=True) as conn:
        conn.add_notice_handler(lambda diagnostic: out.append(("notice", diagnostic.message_primary)))
        with table(conn.execute) as name:
            for index in range(12):  # past psycopg's prepare threshold
                out.append(conn.execute("select %s::int + 1, %s::text", (index, f"t{index}")).fetchone())
            with conn.cursor().copy(f"copy {name} from stdin") as copy:
                for index in range(ROWS):
                    copy.write_row((index, "x" * (index % 97)))
            with conn.cursor().copy(f"copy {name} to stdout") as copy:
                out.append(sum(len(chunk) for chunk in copy))
            out.append(conn.execute(f"select count(*), sum(length(body)) from {name}").fetchone())
            for statement in ("select 1/0", "selec 1", f"insert into {name} values (1, 'again')"):
                try:
                    conn.execute(statement.encode())
                except psycopg.Error as error:
                    out.append((error.sqlstate, error.diag.message_primary))
            with conn.transaction():
                conn.execute(f"update {name} set body = 'y' where id < 10")
            try:
                with conn.transaction():
                    conn.execute(f"delete from {name}")
                    conn.execute("select 1/0")
            except psycopg.Error as error:
                out.append(error.sqlstate)
            out.append(conn.execute(f"select count(*) from {name} where body = 'y'").fetchone())
            conn.execute("do $$ begin raise notice 'hello'; end $$")
            out.append(len(conn.execute("select repeat('z', 5000000)").fetchone()[0]))  # type: ignore[index]
            with conn.transaction(), conn.cursor("named", scrollable=False) as cursor:
                cursor.itersize = 100
                cursor.execute(f"select id from {name} order by id")
                out.append(sum(row[0] for row in cursor))
    return out


def psycopg_pipeline(target: Target) -> Transcript:
    """Pipeline mode with an error in the middle of a batch."""
    out: Transcript = []
    with psycopg.connect(target.libpq(), autocommit=True) as conn, table(conn.execute) as name:
        insert = sql.SQL("insert into {} values (%s, %s) returning id").format(sql.Identifier(name))
        with conn.pipeline():
            cursors = [conn.execute(insert, (index, "p"), prepare=True) for index in range(200)]
        out.append([cursor.fetchone() for cursor in cursors])
        try:
            with conn.pipeline() as pipe:
                conn.execute(insert, (1000, "p"))
                conn.execute("select 1/0")
                conn.execute(insert, (1001, "p"))
                pipe.sync()
        except psycopg.Error as error:
            out.append(error.sqlstate)
        out.append(conn.execute(f"select count(*) from {name}").fetchone())
    return out


def psycopg_async(target: Target) -> Transcript:
    """Twenty concurrent sessions with prepared statements and transactions."""

    async def session(number: int) -> Transcript:
        out: Transcript = []
        async with await psycopg.AsyncConnection.connect(target.libpq(), autocommit=True) as conn:
            for step in range(15):
                cursor = await conn.execute("select %s::int * %s::int", (number, step))
                out.append(await cursor.fetchone())
            async with conn.transaction():
                cursor = await conn.execute("select current_setting('transaction_isolation'), %s::int", (number,))
                out.append(await cursor.fetchone())
        return out

    async def main() -> Transcript:
        return list(await asyncio.gather(*(session(number) for number in range(20))))

    return asyncio.run(main())


def asyncpg_script(target: Target) -> Transcript:
    """asyncpg prepares everything, uses binary formats, cursors, COPY and executemany."""

    async def main() -> Transcript:
        out: Transcript = []
        conn = await asyncpg.connect(
            host="localhost" if target.tls_ca else target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.dbname,
            ssl=target.context() or False,
        )
        try:
            await conn.execute("drop table if exists asyncpg_rows")
            await conn.execute("create table asyncpg_rows(id int primary key, body text, at timestamptz)")
            await conn.executemany(
                "insert into asyncpg_rows values ($1, $2, now())", [(i, f"b{i}") for i in range(500)]
            )
            for index in range(20):
                out.append(tuple(await conn.fetchrow("select id, body from asyncpg_rows where id = $1", index)))
            prepared = await conn.prepare("select count(*) from asyncpg_rows where id < $1")
            out.append([await prepared.fetchval(limit) for limit in (10, 100, 1000)])
            async with conn.transaction():
                out.append(
                    [row["id"] async for row in conn.cursor("select id from asyncpg_rows order by id", prefetch=50)]
                )
            for statement in ("select 1/0", "insert into asyncpg_rows values (1, 'again', now())"):
                try:
                    await conn.fetch(statement)
                except asyncpg.PostgresError as error:
                    out.append((error.sqlstate, error.message))
            await conn.copy_records_to_table("asyncpg_rows", records=[(1000 + i, "c", None) for i in range(1000)])
            out.append(await conn.fetchval("select count(*) from asyncpg_rows"))
            await conn.execute("drop table asyncpg_rows")
        finally:
            await conn.close()
        return out

    return asyncio.run(main())


def pg8000_script(target: Target) -> Transcript:
    """pg8000 prepares by name, describes and closes statements over the protocol."""
    out: Transcript = []
    conn = pg8000.dbapi.connect(
        user=target.user,
        password=target.password,
        host="localhost" if target.tls_ca else target.host,
        port=target.port,
        database=target.dbname,
        ssl_context=target.context(),
    )
    try:
        with nullcontext(conn.cursor()) as cursor:
            for index in range(10):
                cursor.execute("select %s + 1, cast(%s as text)", (index, f"t{index}"))
                out.append(tuple(cursor.fetchone()))
            conn.commit()
            try:
                cursor.execute("select 1/0")
            except pg8000.dbapi.Error as error:
                out.append(error.args[0]["C"])
            conn.rollback()
            cursor.executemany("select cast(%s as int)", [(1,), (2,), (3,)])
            out.append(cursor.fetchall())
            conn.commit()
    finally:
        conn.close()
    return out


SCRIPTS = {
    "psycopg": psycopg_sync,
    "psycopg pipeline": psycopg_pipeline,
    "psycopg async": psycopg_async,
    "asyncpg": asyncpg_script,
    "pg8000": pg8000_script,
}
