"""Runs queries and cancels them, each over a connection of its own, and counts how many were really cancelled."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable

import psycopg

from tests.support.postgres import Postgres

LIMIT_S = 15.0
Connection = psycopg.AsyncConnection[tuple[object, ...]]


async def cancelled(
    dsn: str,
    pg: Postgres,
    count: int,
    rounds: int = 1,
    patience_s: float = LIMIT_S,
    at_once: bool = True,
    between: Callable[[], object] = lambda: None,
) -> list[int]:
    """How many of `count` clients' queries each round's cancels ended; these come all at once, or one by one.

    `between` is called after each round, in a thread.
    After `patience_s` what still runs is ended on the server itself, and does not count.
    """
    conns = await asyncio.gather(
        *(psycopg.AsyncConnection.connect(dsn, autocommit=True, connect_timeout=20) for _ in range(count))
    )
    try:
        found = []
        for _ in range(rounds):
            found.append(await _round(conns, pg, patience_s, count if at_once else 1))
            await asyncio.to_thread(between)
        return found
    finally:
        for conn in conns:
            await conn.close()


async def _round(conns: list[Connection], pg: Postgres, patience_s: float, at_once: int) -> int:
    tag = f"cancel {uuid.uuid4()}"
    ended = 0
    gate = asyncio.Semaphore(at_once)

    async def cancel(conn: Connection) -> None:
        async with gate:
            await conn.cancel_safe(timeout=LIMIT_S)

    async def run(conn: Connection) -> None:
        nonlocal ended
        try:
            await conn.execute(f"select pg_sleep(60) -- {tag}".encode())
        except psycopg.errors.QueryCanceled:
            ended += 1

    tasks = [asyncio.create_task(run(conn)) for conn in conns]
    async with await psycopg.AsyncConnection.connect(pg.dsn(), autocommit=True) as watcher:
        where = f"from pg_stat_activity where state = 'active' and query like 'select pg_sleep%{tag}'"
        async with asyncio.timeout(LIMIT_S):
            while (await (await watcher.execute(f"select count(*) {where}")).fetchone()) != (len(conns),):
                await asyncio.sleep(0.02)
        # In another order than that of the logins, or a balancer that takes turns would bring each home.
        told = await asyncio.gather(*map(cancel, random.sample(conns, len(conns))), return_exceptions=True)
        for error in filter(None, told):
            print(f"a cancel request failed: {error}")
        await asyncio.wait(tasks, timeout=patience_s)
        found = ended
        await watcher.execute(f"select pg_cancel_backend(pid) {where}")
        await asyncio.gather(*tasks)
    return found
