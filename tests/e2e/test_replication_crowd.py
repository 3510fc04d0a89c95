"""Replication clients that come and go at random beside ordinary ones: the limit holds, and nothing is left behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database
from tests.support.walstreams import ROLE, replicating, start_stream

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

SIZE, RESERVE = 3, 1
THREADS, ROUNDS = 4, 25


def visit(pooler: Pooler, chance: random.Random, name: str) -> None:
    """One client: it may leave at any step of its life, politely or not."""
    kind = chance.choice(("database", "true"))
    with FakeClient((pooler.host, pooler.port), wait_s=30) as client:
        packet = m.startup({"user": ROLE, "database": "app", "replication": kind})
        if chance.random() < 0.3:
            client.send(packet)
            client.silent_for(chance.uniform(0.001, 0.02))
            if chance.random() < 0.5:
                client.reset()
            return
        client.send(packet, m.query("IDENTIFY_SYSTEM"))
        client.finish_login(ROLE, "")
        assert [got.kind for got in client.read_until("Z")] == ["T", "D", "C", "Z"]
        if kind == "database" and chance.random() < 0.5:
            start_stream(client, name)
            if chance.random() < 0.3:
                with FakeClient((pooler.host, pooler.port)) as other:
                    other.send(m.cancel_request(client.key))
                    other.read_to_end()
                client.read_until("Z")
        if chance.random() < 0.5:
            client.send(m.message(b"X"))


def test_crowd(make: MakePooler) -> None:
    """Backends are never more than the pool may have; in the end there are no walsenders, slots or streams."""
    failures: list[BaseException] = []

    def run(work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    with replicating(15) as source:
        pooler = make(
            {"app": database(source)},
            workers=2,
            default_pool_size=SIZE,
            reserve_pool_size=RESERVE,
            reserve_pool_timeout=1,
            query_wait_timeout=30,
        )

        def replica(number: int) -> None:
            chance = random.Random(number)
            for turn in range(ROUNDS):
                visit(pooler, chance, f"s{number}_{turn}")

        def ordinary(number: int) -> None:
            for _ in range(ROUNDS):
                assert pooler.query("select 1", user=ROLE) == [(1,)]

        threads = [threading.Thread(target=run, args=(replica, number)) for number in range(THREADS)]
        threads.append(threading.Thread(target=run, args=(ordinary, 0)))
        for thread in threads:
            thread.start()
        counted = f"select count(*) from pg_stat_activity where usename = '{ROLE}'"
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, int(source.query(counted)[0][0]))
            threads[0].join(0.02)
        assert failures == []
        assert 1 < most <= SIZE + RESERVE
        senders = "select count(*) from pg_stat_activity where backend_type = 'walsender'"
        until(lambda: source.query(senders) == [(0,)], "no walsender")
        assert source.query("select count(*) from pg_replication_slots") == [(0,)]
        until(lambda: {row["replication"] for row in pooler.admin("show servers")} <= {"none"}, "no stream")

        def used() -> list[int]:
            return [row["used"] for row in pooler.admin("show ledger") if row["kind"] == "pool"]

        until(lambda: used() == [len(pooler.admin("show servers"))], "every slot has its server")
