"""Random settings, clients, commands and deaths: no limit is exceeded at any instant, and nothing is left over."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.e2e.conftest import MakePooler, until
from tests.e2e.fleet.crowd import Monitor, visit
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

#: More seeds: PGSHOAL_SIEGE_SEEDS=1,2,3
SEEDS = tuple(map(int, os.environ.get("PGSHOAL_SIEGE_SEEDS", "16").split(",")))
SIEGE_S = 8.0
COMMANDS = ("reconnect", "kill app;resume app", "pause app;resume app", "reload", "")


def settings(dice: random.Random) -> dict[str, Any]:
    """Limits that are in each other's way."""
    return {
        "workers": dice.choice((2, 3, 4)),
        "pool_mode": dice.choice(("session", "transaction", "statement")),
        "max_db_connections": dice.choice((3, 7, 9)),
        "max_user_connections": dice.choice((0, 4, 5)),
        "default_pool_size": dice.choice((2, 4, 20)),
        "reserve_pool_size": dice.choice((0, 1)),
        "reserve_pool_timeout": dice.choice((0.2, 1)),
        "min_pool_size": dice.choice((0, 2)),
        "budget": dice.choice(("elastic", "elastic", "static")),
        "server_idle_timeout": dice.choice((1, 600)),
        "server_lifetime": dice.choice((0, 2, 3600)),
        "query_timeout": dice.choice((0, 0.3)),
        "server_check_delay": dice.choice((0, 30)),
        "server_tls_sslmode": dice.choice(("disable", "prefer")),
        "max_client_conn": 2000,
    }


async def _clients(pooler: Pooler, dice: random.Random) -> Counter[str]:
    visits: list[asyncio.Task[str]] = []
    for _ in range(int(SIEGE_S / 0.2)):
        for _ in range(dice.randrange(25)):
            kind, user = dice.random(), dice.choice(("alice", "alice", "bob"))
            sql = "select 1" if kind < 0.5 else "select pg_sleep(0.1)" if kind < 0.7 else "select pg_sleep(0.5)"
            if kind > 0.95 and pooler.settings["pool_mode"] != "statement":
                sql = "begin; select pg_sleep(0.05)"
            leaves = dice.uniform(0.02, 0.4) if kind >= 0.7 else None
            visits.append(asyncio.create_task(visit((pooler.host, pooler.port), sql, leaves, user)))
        await asyncio.sleep(0.2)
    return Counter(await asyncio.gather(*visits))


async def _fate(pooler: Pooler, dice: random.Random) -> None:
    """Every second a worker dies; every other second an operator does something."""
    for turn in range(int(SIEGE_S)):
        await asyncio.sleep(dice.uniform(0.7, 1.3))
        if pids := pooler.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(dice.choice(pids), signal.SIGKILL)
        for command in filter(None, dice.choice(COMMANDS).split(";") if turn % 2 else ()):
            # The worker that answers may be the next to die.
            with suppress(Exception):
                await asyncio.wait_for(asyncio.to_thread(pooler.admin, command), 10)
    for command in ("resume app", "resume"):
        with suppress(Exception):
            await asyncio.to_thread(pooler.admin, command)


@pytest.mark.parametrize("seed", SEEDS)
def test_siege(pg15: Postgres, make: MakePooler, seed: int) -> None:
    """Whatever the limits are and whoever dies, PostgreSQL never sees more than they allow."""
    dice = random.Random(seed)
    chosen = settings(dice)
    pooler = make({"app": database(pg15)}, **chosen)

    async def both() -> Counter[str]:
        fate = asyncio.create_task(_fate(pooler, dice))
        ends = await _clients(pooler, dice)
        await fate
        return ends

    with Monitor(pg15) as all_users, Monitor(pg15, user="alice") as alice, Monitor(pg15, user="bob") as bob:
        ends = asyncio.run(both())
        until(lambda: len(pooler.worker_pids()) == chosen["workers"], "all workers back")
        until(lambda: _counted(pooler, "clients") == 1, "nobody is counted but the console")
        until(lambda: _counted(pooler, "database") == all_users.count(), "what is counted is there")
        most, users = all_users.end(), [alice.end(), bob.end()]
    print(f"{chosen}\nends {dict(ends)}, at most {most}, by user {users}")
    each = min(chosen["default_pool_size"] + chosen["reserve_pool_size"], chosen["max_user_connections"] or 99)
    assert most <= chosen["max_db_connections"]
    assert max(users) <= each
    text = pooler.log_text()
    at = text.find("internal error")
    assert at < 0, text[at : at + 2000]
    assert "never answered" not in ends
    assert "refused" not in ends


def _counted(pooler: Pooler, kind: str) -> int:
    started = time.monotonic()
    while True:
        try:
            return sum(int(row["used"]) for row in pooler.admin("show ledger") if row["kind"] == kind)
        except Exception:
            # A worker may have been killed a moment ago.
            if time.monotonic() - started > 5:
                raise
