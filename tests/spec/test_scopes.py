"""Limits at the narrower scopes: an entry's or a user's value holds there, and nowhere else."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


def wait(pooler: Pooler, dbname: str, user: str = "alice") -> psycopg.Connection[object]:
    """A client whose query is on its way."""
    conn = pooler.connect(dbname, user)
    conn.pgconn.send_query(b"select 1")
    return conn


def end(conn: psycopg.Connection[object]) -> str:
    """What its query came to: "" or the error's text."""
    result = conn.pgconn.get_result()
    assert result is not None
    message = result.error_message.decode()
    conn.close()
    return message


def test_reserve_of_an_entry(start: MakePooler, pg15: Postgres) -> None:
    """reserve_pool_size of an entry opens one more server for clients that wait, and the log says so."""
    entries = {"app": database(pg15, reserve_pool_size=1), "other": database(pg15, "other")}
    pooler = start(entries, default_pool_size=1, reserve_pool_timeout=0.3, query_wait_timeout=3)
    with pooler.connect("app") as one, pooler.connect("other") as two:
        one.execute("begin")
        two.execute("begin")
        assert "query_wait_timeout" in end(wait(pooler, "other"))
        assert end(wait(pooler, "app")) == ""
    taken = [line for line in pooler.log_text().splitlines() if "taking connection from reserve_pool" in line]
    assert taken
    assert all("app/alice" in line for line in taken)


def test_query_wait_timeout_of_an_entry(start: MakePooler, pg15: Postgres) -> None:
    """query_wait_timeout of an entry ends its waiting clients, not those of others."""
    entries = {"app": database(pg15, query_wait_timeout=1), "other": database(pg15, "other")}
    pooler = start(entries, default_pool_size=1)
    with pooler.connect("app") as one, pooler.connect("other") as two:
        one.execute("begin")
        two.execute("begin")
        patient = wait(pooler, "other")
        assert "query_wait_timeout" in end(wait(pooler, "app"))
        two.execute("commit")
        assert end(patient) == ""


def test_max_db_connections_of_an_entry(start: MakePooler, pg15: Postgres) -> None:
    """max_db_connections of an entry bounds the servers of all its pools together."""
    entries = {"app": database(pg15, max_db_connections=1), "other": database(pg15, "other")}
    pooler = start(entries, query_wait_timeout=1)
    with pooler.connect("app") as one, pooler.connect("other") as two:
        one.execute("begin")
        two.execute("begin")
        assert end(wait(pooler, "other", "bob")) == ""
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            pooler.query("select 1", user="bob")
        assert backends(pg15, "bob", "app") == 0
    shown = {row["name"]: row["max_connections"] for row in pooler.admin("show databases")}
    assert (shown["app"], shown["other"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "sql"),
    [("idle_transaction_timeout", "select 1"), ("transaction_timeout", "select pg_sleep(5)")],
)
def test_limits_on_transactions_of_a_user(start: MakePooler, name: str, sql: str) -> None:
    """idle_transaction_timeout and transaction_timeout of one user end that user's transactions only."""
    idle = name.startswith("idle")
    pooler = start(users={"bob": "idle_transaction_timeout=1" if idle else "transaction_timeout=1"})
    with pooler.connect(user="alice") as alice, FakeClient((pooler.host, pooler.port)) as bob:
        alice.execute("begin")
        bob.login("bob", "app")
        bob.query("begin")
        bob.send(m.query(sql))
        last = bob.read_to_end()[-1]
        assert (last.kind, m.error_fields(last.payload)["M"]) == ("E", name.replace("_", " "))
        time.sleep(0.5)
        assert alice.execute("select 1").fetchone() == (1,)


def test_max_db_client_connections_of_an_entry(start: MakePooler, pg15: Postgres) -> None:
    """max_db_client_connections of an entry bounds its clients, not those of others."""
    entries = {"app": database(pg15, max_db_client_connections=1), "other": database(pg15, "other")}
    pooler = start(entries)
    refused = pytest.raises(psycopg.OperationalError, match=r"exceeded \(max_db_client_connections\)")
    with pooler.connect("app"), pooler.connect("other"), pooler.connect("other"), refused:
        pooler.connect("app")


def test_server_lifetime_of_an_entry(start: MakePooler, pg15: Postgres) -> None:
    """server_lifetime of an entry closes its servers for their age, not those of others."""
    entries = {"app": database(pg15, server_lifetime=1), "other": database(pg15, "other")}
    pooler = start(entries)
    for name in entries:
        pooler.query("select 1", name)
    until(lambda: "closing because: server lifetime over" in pooler.log_text(), "the end of a server")
    assert [row["database"] for row in pooler.admin("show servers")] == ["other"]


def test_pool_size_of_a_user(start: MakePooler) -> None:
    """pool_size of a user bounds that user's pools, not those of others."""
    pooler = start(users={"bob": "pool_size=1"}, query_wait_timeout=1)
    with pooler.connect(user="bob") as one, pooler.connect(user="alice") as two:
        one.execute("begin")
        two.execute("begin")
        assert end(wait(pooler, "app", "alice")) == ""
        assert "query_wait_timeout" in end(wait(pooler, "app", "bob"))


def test_reserve_of_a_user(start: MakePooler) -> None:
    """reserve_pool_size of a user opens one more server for that user's clients."""
    pooler = start(
        users={"bob": "reserve_pool_size=1"}, default_pool_size=1, reserve_pool_timeout=0.3, query_wait_timeout=3
    )
    with pooler.connect(user="bob") as one, pooler.connect(user="alice") as two:
        one.execute("begin")
        two.execute("begin")
        assert "query_wait_timeout" in end(wait(pooler, "app", "alice"))
        assert end(wait(pooler, "app", "bob")) == ""


def test_max_user_connections_of_a_user(start: MakePooler, pg15: Postgres) -> None:
    """max_user_connections of a user bounds that user's servers in all databases together."""
    entries = {"app": database(pg15), "other": database(pg15, "other")}
    pooler = start(entries, users={"bob": "max_user_connections=1"}, query_wait_timeout=1)
    with pooler.connect("app", "bob") as one, pooler.connect("app", "alice") as two:
        one.execute("begin")
        two.execute("begin")
        assert end(wait(pooler, "other", "alice")) == ""
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            pooler.query("select 1", "other", "bob")
