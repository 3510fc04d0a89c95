"""Drivers at the same time on `pgshoal-bouncer`, where hba lines say how and auth_query says who."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.e2e.conftest import until
from tests.e2e.scenario import SCRIPTS, Target, Transcript
from tests.support.invoking import LIMIT_S, Ours
from tests.support.postgres import PASSWORDS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

HBA = """\
host app alice 127.0.0.1/32 scram-sha-256
host app bob,md5_user all md5
host all plain_user all reject
"""
#: They use no table, or tables of their own names.
AT_ONCE = ("psycopg pipeline", "psycopg async", "asyncpg", "pg8000")


@pytest.fixture
def target(pg15: Postgres, engine: str) -> Iterator[Target]:
    """The way through a pooler of few servers that knows nobody but the one who looks others up."""
    run = Ours.in_a_folder()
    files = {"hba.conf": HBA, "users.txt": f'"{pg15.superuser}" ""\n'}
    files["x.ini"] = f"""\
[databases]
app = host={pg15.host} port={pg15.port} dbname=app
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {run.port}
unix_socket_dir = {run.folder}
logfile = {run.log}
auth_type = hba
auth_hba_file = {run.folder}/hba.conf
auth_file = {run.folder}/users.txt
auth_user = {pg15.superuser}
pool_mode = transaction
default_pool_size = 3
engine = {engine}
"""
    for name, text in files.items():
        (run.folder / name).write_text(text)
        (run.folder / name).chmod(0o644)
    process = run.start(["-q", "x.ini"], stderr=subprocess.DEVNULL)
    try:
        until(run.accepts, "a pooler that serves")
        yield Target("127.0.0.1", run.port)
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)
        run.remove()


async def pool_story(target: Target) -> Transcript:
    """Sixty pieces of work on a pool of eight connections, and what each has seen."""
    pool = asyncpg.create_pool(
        host=target.host, port=target.port, user=target.user, password=target.password, database=target.dbname,
        ssl=False, min_size=2, max_size=8,
    )  # fmt: skip

    async def work(number: int) -> list[Any]:
        async with pool.acquire() as conn:
            seen = [await conn.fetchval("select $1::int + 1", number)]
            async with conn.transaction():
                await conn.execute(f"set local statement_timeout = {1000 + number}")
                seen.append(await conn.fetchval("select current_user::text || current_setting('statement_timeout')"))
            if number % 9 == 0:
                with pytest.raises(asyncpg.DivisionByZeroError):
                    await conn.fetchval("select 1 / $1::int", 0)
            return seen

    async with pool:
        return list(await asyncio.gather(*(work(number) for number in range(60))))


def of(target: Target, user: str) -> Target:
    """The same way for another user."""
    return replace(target, user=user, password=PASSWORDS[user])


def everything(target: Target) -> list[Transcript]:
    """All drivers and two pools, at once."""
    with ThreadPoolExecutor(8) as threads:
        scripts = [threads.submit(SCRIPTS[name], target) for name in AT_ONCE]
        pools = [threads.submit(asyncio.run, pool_story(of(target, user))) for user in ("bob", "md5_user")]
        return [future.result(LIMIT_S * 3) for future in (*scripts, *pools)]


def test_drivers_and_pools_see_what_they_see_directly(target: Target, pg15: Postgres) -> None:
    """Each under its own name and method, all at once on three servers a user; others stay out meanwhile."""
    assert everything(target) == everything(Target(pg15.host, pg15.port))
    told = {
        "plain_user": "login rejected",
        "scram_user": "no authentication method is found",
        "alice": "SASL authentication failed",
    }
    for user, text in told.items():
        wrong = replace(target, user=user, password=PASSWORDS[user] + ("x" if user == "alice" else ""))
        with pytest.raises(psycopg.OperationalError, match=text):
            psycopg.connect(wrong.libpq())
