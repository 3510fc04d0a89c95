"""Recipes about waiting lines, timers and cancels that broke other poolers."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.e2e.reports.conftest import Lane, MakePooler
from tests.e2e.reports.test_prepared import kinds, state
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

OpenLane = Callable[..., Lane]


def test_pools_of_one_database_share_its_limit(make_pooler: MakePooler) -> None:
    """Three users under one max_db_connections all make progress: none gets less than a fifth of the work."""
    pooler = make_pooler(max_db_connections=3, default_pool_size=20, auth_type="trust")
    done = {"alice": 0, "bob": 0, "plain_user": 0}
    stop, ready = threading.Event(), threading.Barrier(5 * len(done), timeout=30)

    def work(user: str) -> None:
        with psycopg.connect(pooler.dsn("app", user), autocommit=True) as conn:
            conn.execute("select 1")
            ready.wait()  # who comes first has all servers for a while
            while not stop.is_set():
                conn.execute("select 1")
                done[user] += 1

    threads = [threading.Thread(target=work, args=(user,)) for user in done for _ in range(5)]
    for thread in threads:
        thread.start()
    # Servers change hands some ten times a second: a share means something after many of these changes.
    deadline = time.monotonic() + 60
    while sum(done.values()) < 30000 and time.monotonic() < deadline:
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(done.values()) >= 30000
    assert min(done.values()) * 5 >= sum(done.values()), done


def test_query_timeout_needs_a_query(make_pooler: MakePooler) -> None:
    """query_timeout and idle_transaction_timeout leave a short idle transaction and back-to-back statements alone."""
    pooler = make_pooler(query_timeout=1, idle_transaction_timeout=2, auth_type="trust")
    with psycopg.connect(pooler.dsn("app", "alice"), autocommit=True) as conn:
        conn.execute("begin")
        time.sleep(1.2)
        assert conn.execute("select 1").fetchone() == (1,)
        for _ in range(2):
            conn.execute("select pg_sleep(0.6)")
        conn.execute("commit")


def test_autocommit_update_is_done_before_another_client_deletes(make_pooler: MakePooler, pg15: Postgres) -> None:
    """An extended autocommit UPDATE holds no lock once answered."""
    pg15.query("drop table if exists done_t; create table done_t(x int); insert into done_t values (1)", "app")
    pg15.query("grant all on done_t to public", "app")
    pooler = make_pooler(default_pool_size=2, auth_type="trust")
    with (
        psycopg.connect(pooler.dsn("app", "alice"), autocommit=True) as a,
        psycopg.connect(pooler.dsn("app", "alice"), autocommit=True) as b,
    ):
        a.execute("update done_t set x = %s", (2,), prepare=True)
        b.execute("set lock_timeout = '1s'")
        assert b.execute("delete from done_t where x = 2").rowcount == 1
        b.execute("reset lock_timeout")


def test_pgbench_prepared_with_several_statements(make_pooler: MakePooler, pg15: Postgres, tmp_path: Path) -> None:
    """Prepared mode with several statements outside a transaction, 20 clients on 5 servers, fails nothing."""
    pooler = make_pooler(default_pool_size=5, auth_type="trust", max_prepared_statements=2)
    script = tmp_path / "several.sql"
    script.write_text("select 1;\nselect 2, :client_id;\nselect 3;\nbegin;\nselect 4;\ncommit;\n")
    binary = str(pg15.programs.bin / "pgbench")
    done = subprocess.run(
        [
            binary,
            "-n",
            "-M",
            "prepared",
            "-f",
            str(script),
            "-c",
            "20",
            "-j",
            "20",
            "-t",
            "50",
            pooler.dsn("app", "alice"),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert "1000/1000" in done.stdout, done.stderr


def send_cancel(pooler: Pooler, key: bytes) -> None:
    """Sends a CancelRequest and waits until the pooler closes."""
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(m.cancel_request(key))
        assert client.read_to_end() == []


def test_cancel_while_queued_or_idle(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """A cancel for a queued, an idle or a parameter-setting client changes nobody's answers."""
    pooler = make_pooler()
    a, b = lanes(pooler, application_name="one"), lanes(pooler, application_name="two")
    send_cancel(pooler, a.client.key)
    assert kinds(a.ask(m.query("select 1"))) == "TDCZ"
    assert kinds(b.ask(m.query("begin"))) == "CZ"
    a.send(m.query("select 'queued'"))
    send_cancel(pooler, a.client.key)
    assert a.client.silent_for(0.3)
    assert kinds(b.ask(m.query("select 2"), m.query("commit"), syncs=2)) == "TDCZCZ"
    assert kinds(a.client.read_until("Z")) == "TDCZ"
    for _ in range(20):
        a.send(m.query("select 3"))
        send_cancel(pooler, a.client.key)
        found = a.client.read_until("Z")
        assert kinds(found) == "TDCZ" or state(found) == "57014"
        assert kinds(b.ask(m.query("select 4"))) == "TDCZ"


@pytest.mark.timeout(180)
def test_cancel_storm(make_pooler: MakePooler) -> None:
    """Many start-then-cancel rounds end each query as cancelled or done, and the process lives."""
    pooler = make_pooler(default_pool_size=5, auth_type="trust", max_client_conn=1000)
    problems: list[object] = []

    def storm() -> None:
        try:
            with FakeClient((pooler.host, pooler.port)) as client:
                client.login("alice", "app")
                for turn in range(25):
                    client.send(m.query(f"select pg_sleep(0.002), {turn}"))
                    send_cancel(pooler, client.key)
                    found = client.read_until("Z")
                    if state(found) not in (None, "57014"):
                        problems.append(found)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=storm) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert pooler.running
    assert pooler.query("select 1") == [(1,)]
