"""Workers are replaced one by one: clients that come find a place, clients that are there may finish."""

from __future__ import annotations

import subprocess
import sys
import threading

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.e2e.fleet.load import Load, zombies
from tests.support.certs import Authority
from tests.support.pooler import tls_client_side
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def test_a_rolling_restart_under_load_refuses_nobody(pg15: Postgres, make: MakePooler) -> None:
    """Clients that stay and clients that come and go lose neither a connection nor a transaction."""
    pooler = make(workers=2, auth_type="trust", max_client_conn=300, log_connections=0, log_disconnections=0)
    before = pooler.worker_pids()
    with (
        Load(pg15, pooler, "-c", "50", "-T", "8") as steady,
        Load(pg15, pooler, "-C", "-c", "10", "-T", "8") as passing,
    ):
        assert pooler.admin("RESTART") == []
        now = set(pooler.worker_pids()) - set(before)
        assert len(now) == 2
        # Their clients have changed process between two transactions.
        until(lambda: set(pooler.worker_pids()) == now, "the old workers are gone")
    steady.report()
    passing.report()
    assert zombies(pooler) == []
    assert " died: " not in pooler.log_text()
    assert "internal error" not in pooler.log_text()


def test_a_client_that_has_moved(pg15: Postgres, make: MakePooler) -> None:
    """Its prepared statements, parameters and cancel key are good in the new process, and after the next move too."""
    known = {"alice": "alice-secret", "admin": "admin-secret"}
    pooler = make(workers=2, auth_type="scram-sha-256", userlist=known)
    before = set(pooler.worker_pids())
    with pooler.connect(password="alice-secret", application_name="mover") as client:
        client.prepare_threshold = 1
        client.execute("set application_name to 'moved'")
        for _ in range(3):
            assert client.execute("select %s::int + 1", (1,)).fetchone() == (2,)
        for _ in range(2):
            pooler.admin("RESTART", password="admin-secret")
            until(lambda before=before: not before & set(pooler.worker_pids()), "the old are gone")  # type: ignore[misc]
            before = set(pooler.worker_pids())
            assert client.execute("select %s::int + 1", (2,)).fetchone() == (3,)
            assert client.execute("show application_name").fetchone() == ("moved",)
            (row,) = [row for row in pooler.admin("SHOW CLIENTS", password="admin-secret") if row["user"] == "alice"]
            assert row["application_name"] == "moved"
            started = threading.Event()

            def cancel(started: threading.Event = started) -> None:
                started.wait()
                until(lambda: backends(pg15, "alice") > 0 and sleeping(pg15), "the query runs")
                client.cancel_safe()

            thread = threading.Thread(target=cancel)
            thread.start()
            started.set()
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("select pg_sleep(30)")
            thread.join()


def sleeping(pg: Postgres) -> bool:
    """Whether the server runs pg_sleep."""
    asked = "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'"
    return int(pg.query(asked)[0][0]) > 0


def test_a_transaction_is_not_moved_in_its_middle(make: MakePooler) -> None:
    """The client stays with its server until the transaction ends, then it moves."""
    pooler = make(workers=1)
    (old,) = pooler.worker_pids()
    with pooler.connect() as client:
        client.execute("begin")
        client.execute("create temp table t (n int) on commit drop")
        pooler.admin("RESTART")
        assert client.execute("insert into t values (1)").rowcount == 1
        assert old in pooler.worker_pids()
        client.execute("commit")
        until(lambda: old not in pooler.worker_pids(), "the old worker has ended")
        assert client.execute("select 1").fetchone() == (1,)


def test_the_command_of_the_shell(make: MakePooler) -> None:
    """`pgshoal restart FILE` speaks to the console; a second one finds the new workers."""
    pooler = make(workers=2)
    seen = set(pooler.worker_pids())
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "pgshoal", "restart", "--deadline", "1", str(pooler.config)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "RESTART\n"), done.stderr
        assert len(set(pooler.worker_pids()) - seen) == 2
        seen |= set(pooler.worker_pids())
        assert pooler.query("select 1") == [(1,)]


def test_at_the_deadline_clients_are_told(make: MakePooler) -> None:
    """Who holds a session longer than the deadline is told that the server shuts down."""
    pooler = make(workers=1, pool_mode="session")
    (old,) = pooler.worker_pids()
    with pooler.connect() as client:
        client.execute("select 1")
        pooler.admin("RESTART 2")
        assert client.execute("select 2").fetchone() == (2,)
        until(lambda: old not in pooler.worker_pids(), "the old worker has ended")
        with pytest.raises(psycopg.OperationalError, match="server shutting down"):
            client.execute("select 3")
    assert pooler.query("select 1") == [(1,)]


def test_a_worker_that_cannot_come_up_stops_the_restart(make: MakePooler, authority: Authority) -> None:
    """The old workers serve on, and the console says why."""
    pair = authority.issue("passing", "localhost")
    pooler = make(workers=2, **tls_client_side(pair, "allow"))
    before = pooler.worker_pids()
    pair.cert.rename(pair.cert.with_suffix(".away"))
    with pytest.raises(psycopg.Error, match="worker 0 could not be started again"):
        pooler.admin("RESTART")
    assert pooler.worker_pids() == before
    assert pooler.query("select 1") == [(1,)]
    pair.cert.with_suffix(".away").rename(pair.cert)
    pooler.admin("RESTART 1")
    until(lambda: len(set(pooler.worker_pids())) == 2 and not set(before) & set(pooler.worker_pids()), "all new")
