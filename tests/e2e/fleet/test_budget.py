"""Limits hold for the whole fleet at every instant, and no worker keeps what another needs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from tests.e2e.conftest import MakePooler, until
from tests.e2e.fleet.crowd import Client, Monitor
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: How long workers are killed; the full siege is 60 s.
SIEGE_S = float(os.environ.get("PGSHOAL_SIEGE_S", "10"))
CROWD = 400


async def _crowd(pooler: Pooler, dice: random.Random, seconds: float) -> Counter[str]:
    """Bursts of short clients; a third resets its connection in the middle of a query of half a second."""
    address = (pooler.host, pooler.port)
    ends: list[asyncio.Task[str]] = []
    bursts = 10
    for _ in range(bursts):
        for _ in range(CROWD // bursts):
            middle = dice.uniform(0.05, 0.4) if dice.random() < 1 / 3 else None
            sql = "select 1" if middle is None else "select pg_sleep(0.5)"
            ends.append(asyncio.create_task(Client(address).run(sql, middle)))
        await asyncio.sleep(seconds / bursts)
    return Counter(await asyncio.gather(*ends))


async def _assassin(pooler: Pooler, dice: random.Random, seconds: float) -> int:
    """Kills one worker every second."""
    killed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(1)
        if pids := pooler.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(dice.choice(pids), signal.SIGKILL)
                killed += 1
    return killed


async def _siege(pooler: Pooler, seconds: float) -> tuple[Counter[str], int]:
    dice = random.Random(7)  # noqa: S311 - the same siege each time
    ends: Counter[str] = Counter()
    hunt = asyncio.create_task(_assassin(pooler, dice, seconds))
    while not hunt.done():
        ends += await _crowd(pooler, dice, min(seconds, 10.0))
    return ends, await hunt


def test_a_siege_never_sees_one_server_too_many(pg15: Postgres, make: MakePooler) -> None:
    """400 clients in bursts, a third reset in mid-query, workers killed: never more than max_db_connections."""
    pooler = make({"app": database(pg15)}, workers=4, max_db_connections=7, default_pool_size=20)
    with Monitor(pg15) as monitor:
        ends, killed = asyncio.run(_siege(pooler, SIEGE_S))
        until(lambda: len(pooler.worker_pids()) == 4, "all workers back")
        # Not one slot has leaked: seven queries at once need all of them.
        asyncio.run(_at_once(pooler, 14))
        most = monitor.end()
    print(f"ends {dict(ends)}, {killed} workers killed, backends {dict(sorted(monitor.seen.items()))}")
    assert most == 7
    assert killed >= SIEGE_S * 0.8
    assert set(ends) <= {"served", "reset", "lost"} | _TOLD, ends
    assert ends["lost"] <= 60 * killed
    assert ends["served"] > CROWD / 3


#: What a client may be told while workers die around it.
_TOLD = {"server conn crashed?", "terminating connection due to administrator command"}


async def _at_once(pooler: Pooler, count: int) -> None:
    started = time.monotonic()
    clients = [Client((pooler.host, pooler.port)).run("select pg_sleep(0.5)") for _ in range(count)]
    assert set(await asyncio.gather(*clients)) == {"served"}
    assert time.monotonic() - started < 10


def busy_workers(pooler: Pooler) -> dict[str, Any]:
    """Clients of each worker."""
    return {str(row["worker"]): row for row in pooler.admin("show workers")}
