"""Every timeout that ends or speaks to a client or a server."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.support.fakeclient import FakeClient
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import database
from tests.support.postgres import Postgres


def test_query_timeout(make: MakePooler, pg15: Postgres) -> None:
    """A query that runs too long costs the client and its server."""
    pooler = make(query_timeout=1)
    with pooler.connect() as conn, pytest.raises(psycopg.OperationalError, match="query timeout"):
        conn.execute("select pg_sleep(30)")
    until(lambda: "S-" in pooler.log_text() and "closing because: query timeout" in pooler.log_text(), "server closed")
    assert pooler.query("select 1") == [(1,)]


def test_query_timeout_of_one_user(make: MakePooler) -> None:
    """A [users] query_timeout holds for that user alone."""
    pooler = make(users={"bob": "query_timeout=1"})
    with pooler.connect(user="bob") as conn, pytest.raises(psycopg.OperationalError, match="query timeout"):
        conn.execute("select pg_sleep(30)")
    assert pooler.query("select 1 from pg_sleep(1.7)") == [(1,)]


def test_idle_transaction_timeout(make: MakePooler) -> None:
    """A transaction that stands idle too long is ended."""
    pooler = make(idle_transaction_timeout=1)
    with pooler.connect() as conn:
        conn.execute("begin")
        until(lambda: "closing because: idle transaction timeout" in pooler.log_text(), "the timeout")
        with pytest.raises(psycopg.OperationalError, match="idle transaction timeout"):
            conn.execute("select 1")


def test_transaction_timeout(make: MakePooler) -> None:
    """A transaction that lasts too long is ended, busy or not."""
    pooler = make(transaction_timeout=1)
    with pooler.connect() as conn:
        conn.execute("begin")

        def work() -> None:
            while True:
                conn.execute("select pg_sleep(0.1)")

        with pytest.raises(psycopg.OperationalError, match="transaction timeout"):
            work()


def test_client_idle_timeout_of_one_user(make: MakePooler) -> None:
    """client_idle_timeout of one user leaves the others alone."""
    pooler = make(users={"bob": "client_idle_timeout=1"})
    with pooler.connect(user="bob") as bob, pooler.connect() as alice:
        until(lambda: "closing because: client_idle_timeout" in pooler.log_text(), "the timeout")
        with pytest.raises(psycopg.OperationalError, match="client_idle_timeout"):
            bob.execute("select 1")
        assert alice.execute("select 1").fetchone() == (1,)


def test_query_wait_notify(make: MakePooler) -> None:
    """A client that waits is told once, and then served."""
    pooler = make(default_pool_size=1, query_wait_notify=1)
    heard: list[str] = []
    with pooler.connect() as holder, pooler.connect() as waiter:
        waiter.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        holder.execute("begin")
        waiter.pgconn.send_query(b"select 1")
        time.sleep(3.2)
        holder.execute("commit")
        waiter.pgconn.get_result()
        while waiter.pgconn.get_result() is not None:
            continue
    assert heard == ["No server connection available in postgres backend, client being queued"]


def test_query_wait_timeout_of_a_user(make: MakePooler) -> None:
    """A user's query_wait_timeout beats the database's."""
    pooler = make(users={"bob": "query_wait_timeout=1"}, databases=None, default_pool_size=1, query_wait_timeout=60)
    with pooler.connect(user="bob") as holder, pooler.connect(user="bob") as waiter:
        holder.execute("begin")
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            waiter.execute("select 1")


def test_client_login_timeout(make: MakePooler) -> None:
    """A client that does not log in is closed with its reason."""
    pooler = make(client_login_timeout=1)
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(b"\0\0\0")
        got = client.read()
    assert b"client_login_timeout" in got.payload


def silent(server: ServerSide) -> None:
    """Accepts and never says a word."""
    server.hold()


def test_server_connect_timeout(make: MakePooler) -> None:
    """A server that accepts and then says nothing is given up, and tried again after server_login_retry."""
    with FakeServer(silent) as server:
        settings = {"server_connect_timeout": 1, "server_login_retry": 0.1, "client_login_timeout": 5}
        pooler = make({"app": server.database()}, server_tls_sslmode="disable", **settings)
        with pytest.raises(psycopg.OperationalError, match="client_login_timeout"):
            pooler.connect()
        assert "closing because: connect timeout" in pooler.log_text()
        assert len(server.connections) > 1


def test_login_retry_bounds_attempts(make: MakePooler) -> None:
    """Between failures lies server_login_retry, whoever waits."""

    def script(server: ServerSide) -> None:
        return

    with FakeServer(script) as server:
        settings = {"server_login_retry": 1, "query_wait_timeout": 3, "server_tls_sslmode": "disable"}
        pooler = make({"app": server.database()}, **settings)
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            pooler.connect()
        assert 2 <= len(server.connections) <= 4


def test_server_idle_timeout_stops_at_min_pool_size(make: MakePooler, pg15: Postgres) -> None:
    """Idle servers go, down to min_pool_size."""
    pooler = make(
        {"app": database(pg15, user="plain_user", min_pool_size=1)}, server_idle_timeout=1, server_check_query=""
    )
    with pooler.connect() as one, pooler.connect() as two:
        one.execute("begin")
        two.execute("begin")
        assert backends(pg15, "plain_user") == 2, pooler.log_text()
        one.execute("commit")
        two.execute("commit")
        until(lambda: backends(pg15, "plain_user") == 1, "one server left")
    assert pooler.log_text().count("closing because: server idle timeout") == 1


def test_server_lifetime(make: MakePooler, pg15: Postgres) -> None:
    """A server that is too old is replaced, also when it never rests."""
    pooler = make(default_pool_size=1, server_lifetime=1)
    with pooler.connect() as conn:
        asked = "select pg_backend_pid()"
        first = conn.execute(asked).fetchone()
        until(lambda: conn.execute(asked).fetchone() != first, "a new server")
    assert "closing because: server lifetime over" in pooler.log_text()


def test_pool_idle_timeout(make: MakePooler, pg15: Postgres) -> None:
    """A pool nobody uses is forgotten, and made again on demand."""
    pooler = make(pool_idle_timeout=1, server_idle_timeout=0.5, server_check_query="")
    assert pooler.query("select 1") == [(1,)]
    until(lambda: "cleaning up idle pool for user alice on db app" in pooler.log_text(), "the pool dropped")
    assert pooler.query("select 1") == [(1,)]


def test_autodb_idle_timeout(make: MakePooler, pg15: Postgres) -> None:
    """An automatic database nobody uses is forgotten."""
    settings = {"autodb_idle_timeout": 1, "server_idle_timeout": 0.5, "server_check_query": ""}
    pooler = make({"*": f"host={pg15.host} port={pg15.port}"}, **settings)
    assert pooler.query("select 1", dbname="app") == [(1,)]
    until(lambda: "dropping database 'app'" in pooler.log_text(), "the database dropped")
    assert pooler.query("select 1", dbname="app") == [(1,)]
