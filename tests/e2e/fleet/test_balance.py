"""New clients end up on the worker that accept_balance says, and none is lost on the way there."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter

import pytest

from tests.e2e.conftest import MakePooler, until
from tests.e2e.fleet.crowd import Session, leave, visit
from tests.support import messages as m
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def fleet(make: MakePooler, pg: Postgres, how: str, workers: int = 4) -> Pooler:
    """A fleet of which every worker serves, and has forgotten who looked whether it does."""
    pooler = make({"app": database(pg)}, workers=workers, accept_balance=how, max_client_conn=1000)
    until(lambda: "process up" in pooler.log_text(), "the whole fleet")
    time.sleep(1)
    return pooler


def seats(pooler: Pooler, count: int, at_once: bool = False) -> Counter[int]:
    """How many of so many clients that stay are with each worker."""

    async def gather() -> Counter[int]:
        address = (pooler.host, pooler.port)
        if at_once:
            found = list(await asyncio.gather(*(Session.open(address) for _ in range(count))))
        else:
            found = [await Session.open(address) for _ in range(count)]
        await leave(found)
        return Counter(session.seat for session in found)

    return asyncio.run(gather())


@pytest.mark.parametrize("at_once", [False, True])
def test_least_spreads_clients_evenly(pg15: Postgres, make: MakePooler, at_once: bool) -> None:
    """Whether they come one by one or all together, no worker has many more than another."""
    found = seats(fleet(make, pg15, "least"), 80, at_once)
    assert sum(found.values()) == 80
    assert len(found) == 4
    assert max(found.values()) - min(found.values()) <= (8 if at_once else 3), found


def test_pack_fills_one_worker_before_the_next(pg15: Postgres, make: MakePooler) -> None:
    """Sixteen clients share a worker, further ones are on the next."""
    pooler = fleet(make, pg15, "pack")
    assert list(seats(pooler, 8).values()) == [8]
    until(lambda: len(pooler.admin("SHOW CLIENTS")) == 1, "all have left")
    found = seats(pooler, 24)
    assert sorted(found.values()) == [8, 16], found


def test_clients_of_the_unix_socket_are_spread_too(pg15: Postgres, make: MakePooler) -> None:
    """All workers accept from the one socket; what it gives to one of them is handed on."""
    pooler = fleet(make, pg15, "least")
    found: Counter[int] = Counter()
    clients = []
    for _ in range(20):
        client = socket.socket(socket.AF_UNIX)
        clients.append(client)
        client.settimeout(20)
        client.connect(f"{pooler.socket_dir}/.s.PGSQL.{pooler.port}")
        client.sendall(m.startup({"user": "alice", "database": "app"}))
        greeting = b""
        while greeting[-6:-1] != b"Z\0\0\0\5":
            piece = client.recv(65536)
            assert piece
            greeting += piece
        found[greeting[-14]] += 1
    for client in clients:
        client.close()
    assert len(found) == 4
    assert max(found.values()) - min(found.values()) <= 3, found


def test_clients_of_a_dying_worker_are_served_by_its_successor(pg15: Postgres, make: MakePooler) -> None:
    """A worker stands still; who is handed to it meanwhile, or waits at its port, is served once it is replaced."""
    pooler = fleet(make, pg15, "least", workers=2)
    victim = pooler.worker_pids()[1]

    async def story() -> Counter[str]:
        address = (pooler.host, pooler.port)
        assert await visit(address, "select 1") == "served"
        os.kill(victim, signal.SIGSTOP)
        crowd = [asyncio.create_task(visit(address, "select 1")) for _ in range(30)]
        await asyncio.sleep(0.5)
        assert not all(task.done() for task in crowd)
        os.kill(victim, signal.SIGKILL)
        return Counter(await asyncio.gather(*crowd))

    assert asyncio.run(story()) == {"served": 30}


def test_every_way_of_balancing_survives_a_reload(pg15: Postgres, make: MakePooler) -> None:
    """The setting changes under clients who come and go: all of them are served."""
    pooler = fleet(make, pg15, "least")

    async def crowd() -> Counter[str]:
        return Counter(await asyncio.gather(*(visit((pooler.host, pooler.port), "select 1") for _ in range(60))))

    for how in ("pack", "kernel", "least"):
        pooler.settings["accept_balance"] = how
        pooler.write_config()
        pooler.admin("RELOAD")
        assert asyncio.run(crowd()) == {"served": 60}
    assert "internal error" not in pooler.log_text()
