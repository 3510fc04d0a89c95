"""Cancels in a fleet: they arrive wherever they land, and a storm of them harms nobody."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import Iterator

import psycopg
import pytest

from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.cancelling import cancelled
from tests.support.fakeclient import Closed, FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

CLIENTS = 50
SENT = "successfully sent cancel request"


@pytest.fixture
def fleet(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """Four workers."""
    with Pooler(
        {"app": database(pg15)}, engine=engine, workers=4, pool_mode="transaction", default_pool_size=60
    ) as pooler:
        yield pooler


def logged_in(pooler: Pooler, protocol: int = m.PROTOCOL_3_0) -> FakeClient:
    """A client as alice; its key is known."""
    c = FakeClient((pooler.host, pooler.port))
    c.login("alice", "app", protocol=protocol)
    return c


def bring(pooler: Pooler, key: bytes) -> None:
    """A cancel request, and the end of its connection."""
    with FakeClient((pooler.host, pooler.port)) as c:
        c.send(m.cancel_request(key))
        with pytest.raises(Closed):
            c.read_bytes(1)


def workers_of(pooler: Pooler) -> list[int]:
    """The process ids of the workers."""
    with open(f"/proc/{pooler.pid}/task/{pooler.pid}/children") as found:
        return [int(pid) for pid in found.read().split()]


def pids_in(pooler: Pooler, text: str) -> set[int]:
    """The processes that have logged such a line."""
    return {int(pid) for pid in re.findall(rf"\[(\d+)\] \S+ [^\n]*{re.escape(text)}", pooler.log_text())}


@pytest.mark.parametrize(("protocol", "rounds"), [("3.0", 20), ("latest", 4)])
def test_every_cancel_arrives(pg15: Postgres, fleet: Pooler, protocol: str, rounds: int) -> None:
    """Short and long keys, each over a connection of its own that any of four workers may get."""
    dsn = fleet.dsn("app", "alice", max_protocol_version=protocol)
    found = asyncio.run(cancelled(dsn, pg15, CLIENTS, rounds))
    print(f"protocol {protocol}: {sum(found)} of {CLIENTS * rounds} cancels arrived")
    assert found == [CLIENTS] * rounds
    until(lambda: len(pids_in(fleet, SENT)) == 4, "each worker had some of them")


def test_keys_name_the_seat_of_their_worker(fleet: Pooler) -> None:
    """Short keys in their first byte, long ones behind the peer id; no two are alike."""
    clients = [logged_in(fleet, protocol) for protocol in (m.PROTOCOL_3_0, 0x30002) for _ in range(40)]
    try:
        short = [c.key for c in clients if len(c.key) == 8]
        long = [c.key for c in clients if len(c.key) == 32]
        assert (len(short), len(long)) == (40, 40)
        assert len({c.key for c in clients}) == 80
        seats = {key[0] for key in short} | {key[7] for key in long}
        assert 1 < len(seats) <= 4
    finally:
        for c in clients:
            c.close()


def test_old_keys_of_a_worker_that_was_replaced_fail_quietly(pg15: Postgres, fleet: Pooler) -> None:
    """Nobody is cancelled, nobody is told anything, and the log says so; new keys work at once."""
    held = [logged_in(fleet, protocol) for protocol in (m.PROTOCOL_3_0, 0x30002) for _ in range(20)]
    keys = [c.key for c in held]
    for pid in workers_of(fleet):
        os.kill(pid, signal.SIGKILL)
    for c in held:
        c.read_to_end()
        c.close()
    until(lambda: fleet.accepts() and len(workers_of(fleet)) == 4, "four workers again")
    with fleet.connect() as conn:
        conn.execute("select 1")
        before = fleet.log_text().count("failed cancel request")
        for key in keys:
            bring(fleet, key)
        until(lambda: fleet.log_text().count("failed cancel request") == before + len(keys), "a line for each")
        assert conn.execute("select 1").fetchall() == [(1,)]
    assert asyncio.run(cancelled(fleet.dsn("app", "alice"), pg15, 10, 2)) == [10, 10]


@pytest.mark.parametrize("protocol", ["3.0", "latest"])
def test_keys_are_good_after_a_move(pg15: Postgres, fleet: Pooler, protocol: str) -> None:
    """Clients keep their keys when RESTART and UPGRADE give them to other processes, whoever sits in the old seats."""
    commands = iter(["RESTART", "RESTART", "UPGRADE", "SHOW VERSION"])

    def replace() -> None:
        before = set(workers_of(fleet))
        command = next(commands)
        fleet.admin(command)
        if command != "SHOW VERSION":
            until(lambda: len(set(workers_of(fleet)) - before) == 4, f"new processes after {command}")

    dsn = fleet.dsn("app", "alice", max_protocol_version=protocol)
    found = asyncio.run(cancelled(dsn, pg15, CLIENTS, 4, between=replace))
    print(f"protocol {protocol}, with restarts: {sum(found)} of {CLIENTS * 4} cancels arrived")
    assert found == [CLIENTS] * 4


def test_a_storm_of_cancels_starves_nobody(pg15: Postgres, fleet: Pooler) -> None:
    """While connections bring forged and repeated keys as fast as they can, logins and queries go on."""

    over = asyncio.Event()

    async def storm(keys: list[bytes]) -> int:
        sent = 0
        while not over.is_set():
            reader, writer = await asyncio.open_connection(fleet.host, fleet.port)
            writer.write(m.cancel_request(keys[sent % len(keys)]))
            await reader.read()
            writer.close()
            sent += 1
        return sent

    async def work() -> None:
        for _ in range(30):
            conn = await psycopg.AsyncConnection.connect(fleet.dsn("app", "bob", connect_timeout=20))
            await conn.execute("select 1")
            await conn.close()
        over.set()

    async def main(own: list[bytes]) -> int:
        forged = [bytes((seat,)) + os.urandom(7) for seat in range(10)]
        async with asyncio.timeout(60):
            *sent, _ = await asyncio.gather(*(storm(own + forged) for _ in range(20)), work())
        return sum(filter(None, sent))

    targets = [logged_in(fleet) for _ in range(4)]
    try:
        for c in targets:
            c.send(m.query("select pg_sleep(60)"))
        sent = asyncio.run(main([c.key for c in targets]))
        print(f"{sent} cancel requests while 30 clients came and went")
        assert sent > 100
        for c in targets:
            assert m.error_fields(c.read_until("E")[-1].payload)["C"] == "57014"
    finally:
        for c in targets:
            c.close()
    assert len(workers_of(fleet)) == 4
    assert asyncio.run(cancelled(fleet.dsn("app", "alice"), pg15, 10)) == [10]


def test_start_and_cancel_many_times(fleet: Pooler) -> None:
    """Queries that end just as they are cancelled: each is done or cancelled, and no answer is another's."""
    outcomes: list[str] = []

    async def client(seed: int) -> None:
        pick = random.Random(seed)
        async with await psycopg.AsyncConnection.connect(fleet.dsn("app", "alice"), autocommit=True) as conn:
            for step in range(30):
                mark = f"{seed}-{step}"
                query = asyncio.create_task(conn.execute(f"select '{mark}', pg_sleep(0.1)"))
                await asyncio.sleep(pick.uniform(0, 0.12))
                await conn.cancel_safe(timeout=10)
                try:
                    row = await (await query).fetchone()
                    assert row is not None
                    assert row[0] == mark
                    outcomes.append("done")
                except psycopg.errors.QueryCanceled:
                    outcomes.append("cancelled")

    async def main() -> None:
        await asyncio.gather(*map(client, range(16)))

    before = workers_of(fleet)
    asyncio.run(main())
    print(f"{outcomes.count('done')} done, {outcomes.count('cancelled')} cancelled")
    assert len(outcomes) == 16 * 30
    assert {"done", "cancelled"} == set(outcomes)
    assert workers_of(fleet) == before
