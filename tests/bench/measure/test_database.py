"""What PostgreSQL counts, without what the kit itself does there."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgshoal.bench.measure import database
from pgshoal.bench.measure.database import Database
from tests.bench.measure.ground import Ground
from tests.support.postgres import Postgres


def work(conn: psycopg.Connection[Any], times: int) -> None:
    """So many transactions; to prepare the statement would be one more."""
    for _ in range(times):
        conn.execute("select 1", prepare=False)


def grown(ground: Ground, counting: Database, before: float) -> float:
    """Transactions since then, when all have reported."""
    assert counting.settle()
    counts = counting.counts()
    assert counts is not None
    return counts.commits - before


def commits(counting: Database) -> float:
    """Transactions so far."""
    counts = counting.counts()
    assert counts is not None
    return counts.commits


def test_transactions_of_others_are_counted_and_nothing_else(server: Postgres) -> None:
    """Neither the beginning of sessions nor what the meter asks is in the count."""
    ground = Ground(server)
    counting = Database(ground.stand)
    assert counting.settle()
    before = commits(counting)
    for _ in range(5):
        with server.connect("app") as client:
            work(client, 7)
    work_of_its_own = [counting.backends() for _ in range(40)]
    assert len(work_of_its_own) == 40
    assert grown(ground, counting, before) == 35
    counting.close()


def test_idle_backends_of_an_own_server_report_by_ending(server: Postgres) -> None:
    """What a pooled server connection has not told yet is in the count, at the price of that connection."""
    ground = Ground(server)
    counting = Database(ground.stand)
    with server.connect("app") as client:
        work(client, 1)
        before = commits(counting)
        work(client, 50)
        assert commits(counting) == before  # nothing is told before a second has passed
        assert grown(ground, counting, before) in (50, 51)
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    counting.close()


def test_a_given_server_keeps_its_sessions(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are waited for until they have been idle long enough to have reported; not forever."""
    counting = Database(Ground(server, own=False).stand)
    monkeypatch.setattr(database, "SETTLE_LIMIT_S", 0.0)
    with server.connect("app") as client:
        monkeypatch.setattr(database, "IDLE_REPORT_S", 0.1)
        client.execute("begin")
        assert not counting.settle()
        client.execute("commit")
        monkeypatch.setattr(database, "SETTLE_LIMIT_S", 30.0)
        assert counting.settle()
        assert client.execute("select 1").fetchone() == (1,)
    counting.close()


def test_connections_of_others_are_counted(server: Postgres) -> None:
    """The kit's own are not; a session in a transaction is active."""
    ground = Ground(server)
    counting = Database(ground.stand)
    assert counting.settle()
    with ground.connect(), server.connect("app"), server.connect("other") as busy:
        busy.execute("begin")
        assert counting.backends() == (2, 1)
    counting.close()


def test_strangers_of_a_given_server_are_nobody(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not counted, not waited for; nor is who comes later and goes to another database. Their work is known."""
    ground = Ground(server, own=False)
    with server.connect("app") as stranger, server.connect("app") as client:
        ground.strangers = frozenset({stranger.info.backend_pid})
        counting = Database(ground.stand)
        monkeypatch.setattr(database, "SETTLE_LIMIT_S", 0.0)
        monkeypatch.setattr(database, "IDLE_REPORT_S", 0.0)
        assert counting.strangers_at_work() == 0
        with server.connect("other") as later:
            later.execute("begin")
            assert counting.backends() == (1, 0)
            stranger.execute("begin")
            assert counting.settle()
        assert counting.strangers_at_work() == 1
        client.execute("begin")
        assert counting.backends() == (1, 1)
        counting.close()


def test_without_the_right_to_see_nothing_is_counted(server: Postgres) -> None:
    """A plain role would see itself alone: no count is better than a wrong one."""
    counting = Database(Ground(server, user="alice", own=False).stand)
    assert counting.backends() is None
    assert not counting.settle()
    counting.close()


def test_the_load_may_use_the_database_that_the_meter_would(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter then goes to another; where there is none, it does not count its own transactions as the load's."""
    apart = Database(Ground(server, dbname="template1").stand)
    assert apart.counts() is not None
    apart.close()
    monkeypatch.setattr(database, "APART", ("not there", "app"))
    beside = Database(Ground(server).stand)
    assert beside.counts() is None
    beside.close()


def test_a_server_that_is_gone_is_an_error_of_the_driver(server: Postgres) -> None:
    """Whoever asks learns of it by psycopg's own error, and a restarted server has another birth."""
    counting = Database(Ground(server).stand)
    born_s = counting.born_s()
    server.stop()
    server.start()
    for ask in (counting.born_s, counting.backends, counting.counts, counting.settle):
        with pytest.raises(psycopg.Error):
            ask()
    counting.close()
    again = Database(Ground(server).stand)
    assert again.born_s() > born_s
    again.close()
