"""Pool modes: when a server goes to the next client, and what a client keeps."""

from __future__ import annotations

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import database
from tests.support.postgres import Postgres


def test_transaction_mode_shares_between_transactions(make: MakePooler) -> None:
    """Two clients take turns on one server, transaction by transaction."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as one, pooler.connect() as two:
        asked = "select pg_backend_pid()"
        assert one.execute(asked).fetchone() == two.execute(asked).fetchone() == one.execute(asked).fetchone()


def test_transaction_mode_keeps_a_transaction_together(make: MakePooler) -> None:
    """Inside a transaction the server is the client's own."""
    pooler = make(default_pool_size=1, query_wait_timeout=1)
    with pooler.connect() as one, pooler.connect() as two:
        one.execute("begin")
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            two.execute("select 1")
        assert one.execute("select 1").fetchone() == (1,)
        one.execute("commit")


def test_a_failed_transaction_is_not_released(make: MakePooler) -> None:
    """After an error the server stays until ROLLBACK."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as one, pooler.connect() as two:
        one.execute("begin")
        with pytest.raises(psycopg.errors.DivisionByZero):
            one.execute("select 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            one.execute("select 1")
        one.execute("rollback")
        assert two.execute("select 1").fetchone() == (1,)


def test_session_mode_keeps_the_server(make: MakePooler) -> None:
    """In session mode the server is the client's until it leaves, then the next one's."""
    pooler = make(pool_mode="session", default_pool_size=1)
    asked = "select pg_backend_pid()"
    first = pooler.connect()
    pid = first.execute(asked).fetchone()
    second = pooler.connect()
    first.execute("set work_mem = '55MB'")
    assert first.execute("show work_mem").fetchone() == ("55MB",)
    first.close()
    assert second.execute(asked).fetchone() == pid
    second.close()


def test_statement_mode_refuses_transactions(make: MakePooler) -> None:
    """Statement mode serves single statements and refuses BEGIN."""
    pooler = make(pool_mode="statement")
    with pooler.connect() as conn:
        assert conn.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.Error, match="transaction blocks not allowed in statement pooling mode"):
            conn.execute("begin")


def test_modes_per_database_and_user(make: MakePooler, pg15: Postgres) -> None:
    """[users] beats [databases], which beats the global mode."""
    entries = {"app": database(pg15), "sticky": database(pg15, pool_mode="session")}
    pooler = make(entries, users={"bob": "pool_mode=statement"}, default_pool_size=1, query_wait_timeout=1)
    with pooler.connect("sticky") as one, pooler.connect("sticky") as two:
        one.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            two.execute("select 1")
    with (
        pooler.connect("sticky", "bob") as conn,
        pytest.raises(psycopg.Error, match="transaction blocks not allowed"),
    ):
        conn.execute("begin")


def test_a_client_that_vanishes_in_a_transaction_costs_its_server(make: MakePooler, pg15: Postgres) -> None:
    """The half-done transaction is never handed to the next client."""
    pooler = make(default_pool_size=1)
    gone = pooler.connect()
    gone.execute("begin")
    pid = gone.execute("select pg_backend_pid()").fetchone()
    gone.close()
    with pooler.connect() as conn:
        row = conn.execute("select pg_backend_pid(), pg_current_xact_id_if_assigned()").fetchone()
        assert row is not None
        assert pid is not None
        assert row[0] != pid[0]
    until(lambda: "client disconnect while server was not ready" in pooler.log_text(), "the reason in the log")


def test_parameters_follow_the_client(make: MakePooler) -> None:
    """Tracked parameters set at startup or by SET hold for that client on whichever server it gets."""
    pooler = make(default_pool_size=1)
    with (
        pooler.connect(application_name="one", options="-c TimeZone=Asia/Tokyo") as one,
        pooler.connect(application_name="two") as two,
    ):
        asked = "select current_setting('application_name'), current_setting('TimeZone')"
        for _ in range(2):
            assert one.execute(asked).fetchone() == ("one", "Asia/Tokyo")
            row = two.execute(asked).fetchone()
            assert row is not None
            assert row[0] == "two"
            assert row[1] != "Asia/Tokyo"
        two.execute("set datestyle = 'German'")
        assert one.execute("show datestyle").fetchone() != ("German, DMY",)
        assert two.execute("show datestyle").fetchone() == ("German, DMY",)
