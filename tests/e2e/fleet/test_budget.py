"""Limits hold for the whole fleet at every instant, and no worker keeps what another needs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.e2e.fleet.crowd import Monitor, Session, leave, settled, visit
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

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
            ends.append(asyncio.create_task(visit(address, sql, middle)))
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
    dice = random.Random(7)
    ends: Counter[str] = Counter()
    hunt = asyncio.create_task(_assassin(pooler, dice, seconds))
    while not hunt.done():
        ends += await _crowd(pooler, dice, min(seconds, 10.0))
    return ends, await hunt


def test_a_siege_never_sees_one_server_too_many(pg15: Postgres, make: MakePooler) -> None:
    """400 clients in bursts, a third reset in mid-query, workers killed: never more than max_db_connections."""
    pooler = make({"app": database(pg15)}, workers=4, max_db_connections=7, default_pool_size=20, max_client_conn=1000)
    with Monitor(pg15) as monitor:
        ends, killed = asyncio.run(_siege(pooler, SIEGE_S))
        until(lambda: len(pooler.worker_pids()) == 4, "all workers back")
        # Not one slot has leaked: seven queries at once need all of them.
        asyncio.run(_at_once(pooler, 14))
        until(lambda: _counted(pooler, "clients") == {1}, "nobody is counted but the console")
        assert _counted(pooler, "database") == {monitor.count()}
        most = monitor.end()
    assert "internal error" not in pooler.log_text()
    print(f"ends {dict(ends)}, {killed} workers killed, backends {dict(sorted(monitor.seen.items()))}")
    assert most == 7
    assert killed >= SIEGE_S * 0.8
    assert set(ends) <= {"served", "reset", "lost"} | _TOLD, ends
    assert ends["lost"] <= 60 * killed
    assert ends["served"] > CROWD / 3


_FULL = "no more connections allowed (max_client_conn)"
#: What a client may be told while workers die around it.
_TOLD = {"server conn crashed?", "terminating connection due to administrator command"}


def _counted(pooler: Pooler, kind: str) -> set[int]:
    """What the ledger says is used of all rows of a kind."""
    return {row["used"] for row in pooler.admin("show ledger") if row["kind"] == kind}


async def _at_once(pooler: Pooler, count: int) -> None:
    started = time.monotonic()
    clients = [visit((pooler.host, pooler.port), "select pg_sleep(0.5)") for _ in range(count)]
    assert set(await asyncio.gather(*clients)) == {"served"}
    assert time.monotonic() - started < 10


async def _busy(sessions: list[Session], sql: str, seconds: float) -> list[float]:
    """All of them ask again and again; how long each answer took, the fastest first."""
    end = time.monotonic() + seconds

    async def one(session: Session) -> list[float]:
        times = []
        while (begun := time.monotonic()) < end:
            await session.ask(sql)
            times.append(time.monotonic() - begun)
        return times

    return sorted(each for times in await asyncio.gather(*map(one, sessions)) for each in times)


def test_clients_that_all_land_on_two_workers(pg15: Postgres, make: MakePooler) -> None:
    """Elastic: they use every slot of the fleet. Static: only the parts of their two workers."""
    answers = {}
    for budget in ("static", "elastic"):
        pooler = make({"app": database(pg15)}, workers=4, default_pool_size=8, budget=budget)
        with Monitor(pg15) as monitor:
            times = asyncio.run(_on_two_workers(pooler))
            assert monitor.end() <= 8
        seen = dict(sorted(monitor.seen.items()))
        p50, p99 = (times[int(len(times) * part)] * 1e3 for part in (0.5, 0.99))
        print(f"{budget}: {len(times)} answers in 2 s, p50 {p50:.0f} ms, p99 {p99:.0f} ms, backends {seen}")
        answers[budget] = len(times)
        pooler.stop()
        until(lambda: backends(pg15, "alice") == 0, "all servers gone")
    assert answers["elastic"] > 1.5 * answers["static"]


async def _on_two_workers(pooler: Pooler) -> list[float]:
    async with settled((pooler.host, pooler.port), {0: 16, 1: 16}) as places:
        return await _busy([*places[0], *places[1]], "select pg_sleep(0.05)", 2.0)


def test_a_waiting_worker_gets_an_idle_slot_soon(pg15: Postgres, make: MakePooler) -> None:
    """One worker holds all servers idle; a query in another one waits for hardly more than a login."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=4)

    async def rounds() -> list[float]:
        waits = []
        async with settled((pooler.host, pooler.port), {0: 4, 1: 4}) as places:
            for turn in range(20):
                rich, poor = places[turn % 2], places[1 - turn % 2]
                await _busy(rich, "select pg_sleep(0.02)", 0.1)
                await asyncio.sleep(0.05)
                begun = time.monotonic()
                await poor[0].ask("select 1")
                waits.append(time.monotonic() - begun)
        return sorted(waits)

    waits = asyncio.run(rounds())
    print(f"waited {waits[0] * 1e3:.1f} to {waits[-1] * 1e3:.1f} ms, median {waits[10] * 1e3:.1f} ms")
    assert waits[10] < 0.25  # far more than it takes, for machines that are busy


def test_a_server_that_becomes_idle_later_is_given_too(pg15: Postgres, make: MakePooler) -> None:
    """All servers are busy when the other worker begins to wait; the first that rests for a moment goes to it."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=2)

    async def later() -> float:
        async with settled((pooler.host, pooler.port), {0: 2, 1: 1}) as places:
            busy = asyncio.gather(*(session.ask("select pg_sleep(0.5)") for session in places[0]))
            await asyncio.sleep(0.1)
            poor = asyncio.create_task(places[1][0].ask("select 1"))
            await busy
            begun = time.monotonic()
            await poor
            return time.monotonic() - begun

    waited_s = asyncio.run(later())
    print(f"{waited_s * 1e3:.1f} ms after it became idle")
    assert waited_s < 1


def test_workers_get_their_fair_share(pg15: Postgres, make: MakePooler) -> None:
    """A worker that came first and holds all slots shares them with one whose clients come later."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=8)

    async def both() -> tuple[int, int]:
        async with settled((pooler.host, pooler.port), {0: 16, 1: 16}) as places:
            first = asyncio.create_task(_busy(places[0], "select pg_sleep(0.01)", 4.0))
            await asyncio.sleep(1.0)
            second = asyncio.create_task(_busy(places[1], "select pg_sleep(0.01)", 3.0))
            return len(await first), len(await second)

    first, second = asyncio.run(both())
    print(f"{first} answers in 4 s, of which 1 s alone; {second} in 3 s")
    assert second > 0.6 * first * 3 / 5


def test_users_in_different_workers_share_a_database(pg15: Postgres, make: MakePooler) -> None:
    """max_db_connections: one user's idle servers in one worker make room for another user in another worker."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=4, max_db_connections=4)

    async def turns() -> float:
        address = (pooler.host, pooler.port)
        longest = 0.0
        async with settled(address, {0: 4}, "alice") as alice, settled(address, {1: 4}, "bob") as bob:
            for turn in range(6):
                sessions = alice[0] if turn % 2 else bob[1]
                begun = time.monotonic()
                await asyncio.gather(*(session.ask("select pg_sleep(0.02)") for session in sessions))
                longest = max(longest, time.monotonic() - begun)
                await asyncio.sleep(0.1)
        return longest

    with Monitor(pg15) as monitor:
        longest = asyncio.run(turns())
        assert monitor.end() <= 4
    print(f"at most {longest * 1e3:.1f} ms for four queries of 20 ms")
    assert longest < 1.0


def test_nobody_starves_when_slots_are_few(pg15: Postgres, make: MakePooler) -> None:
    """As many slots as workers, one user busy in all of them, another in one: everybody is served again and again."""
    pooler = make({"app": database(pg15)}, workers=4, max_db_connections=4, default_pool_size=20)
    address = (pooler.host, pooler.port)

    async def rivals() -> list[list[int]]:
        async with (
            settled(address, dict.fromkeys(range(4), 3), "alice") as alice,
            settled(address, {0: 3}, "bob") as bob,
        ):
            groups = [*alice.values(), *bob.values()]
            work = [_busy([one], "select pg_sleep(0.02)", 4.0) for group in groups for one in group]
            answers = list(map(len, await asyncio.gather(*work)))
            return [answers[at : at + 3] for at in range(0, len(answers), 3)]

    answers = asyncio.run(rivals())
    print(f"answers of alice's clients by worker {answers[:4]}, of bob's {answers[4]}")
    assert min(min(group) for group in answers) >= 3


def test_who_leaves_in_mid_query_frees_the_slot(pg15: Postgres, make: MakePooler) -> None:
    """The query is cancelled, and its slot serves the next client, in whatever worker, when the backend is gone."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=1)
    address = (pooler.host, pooler.port)

    async def turns() -> float:
        longest = 0.0
        for _ in range(6):
            assert await visit(address, "select pg_sleep(30)", 0.2) == "reset"
            begun = time.monotonic()
            assert await visit(address, "select 1") == "served"
            longest = max(longest, time.monotonic() - begun)
        return longest

    with Monitor(pg15) as monitor:
        longest = asyncio.run(turns())
        assert monitor.end() == 1
    print(f"the next client waited {longest * 1e3:.0f} ms at most")
    assert longest < 5


def test_a_worker_that_dies_with_a_long_query(pg15: Postgres, make: MakePooler) -> None:
    """Its backend is cancelled and its slot goes to another worker, not before."""
    pooler = make({"app": database(pg15)}, workers=2, default_pool_size=1)

    async def story() -> float:
        async with settled((pooler.host, pooler.port), {0: 1, 1: 1}) as places:
            long = asyncio.create_task(places[0][0].ask("select pg_sleep(30)"))
            await asyncio.sleep(0.3)
            os.kill(pooler.worker_pids()[0], signal.SIGKILL)
            begun = time.monotonic()
            await places[1][0].ask("select 1")
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await long
            return time.monotonic() - begun

    with Monitor(pg15) as monitor:
        waited_s = asyncio.run(story())
        assert monitor.end() == 1
    print(f"the other worker's client waited {waited_s * 1e3:.0f} ms")
    assert waited_s < 5


def test_client_limits_are_for_the_fleet(pg15: Postgres, make: MakePooler) -> None:
    """Exactly max_client_conn get in, wherever they land; the death of a worker frees the places of its clients."""
    pooler = make({"app": database(pg15)}, workers=4, max_client_conn=20, default_pool_size=2)
    address = (pooler.host, pooler.port)

    async def rush() -> list[Session]:
        opened = await asyncio.gather(*(Session.open(address) for _ in range(40)), return_exceptions=True)
        assert {str(each) for each in opened if not isinstance(each, Session)} == {_FULL}
        return [each for each in opened if isinstance(each, Session)]

    async def story() -> tuple[int, int]:
        first = await rush()
        # Workers that were quick may have taken all places, and others none.
        victim = max(pooler.admin("show workers"), key=lambda worker: int(worker["clients"]))["pid"]
        os.kill(victim, signal.SIGKILL)
        while victim in pooler.worker_pids() or len(pooler.worker_pids()) < 4:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        second = await rush()
        await leave([*first, *second])
        return len(first), len(second)

    first, second = asyncio.run(story())
    print(f"{first} got in, then {second} for those of the dead worker")
    assert first == 20
    assert 0 < second <= 20
    until(lambda: _counted(pooler, "clients") == {1}, "nobody is counted but the console")
