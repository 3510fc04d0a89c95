"""Cancel requests: they arrive, they hit the right query, and they hit nobody else."""

from __future__ import annotations

import random
import threading
import time

import psycopg
import pytest

from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import Closed, FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


def cancel(pooler: Pooler, key: bytes) -> bytes:
    """Sends a cancel request and gives what came back before the close."""
    with FakeClient((pooler.host, pooler.port)) as c:
        c.send(m.cancel_request(key))
        try:
            return c.read_bytes(1)
        except Closed:
            return b""


def logged_in(pooler: Pooler, **parameters: str) -> FakeClient:
    """A client as alice."""
    c = FakeClient((pooler.host, pooler.port))
    c.login("alice", "app", **parameters)
    return c


def running(pg: Postgres, sql: str) -> bool:
    """Whether a statement that begins like this runs on the server."""
    found = pg.query(f"select count(*) from pg_stat_activity where state = 'active' and query like '{sql}%'")
    return bool(found[0][0])


def wait_until_running(pg: Postgres, sql: str) -> None:
    """Until the server says that it runs."""
    deadline = time.monotonic() + 10
    while not running(pg, sql):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def pooler(pg15: Postgres, engine: str) -> Pooler:
    """Not started yet; pool of one server."""
    return Pooler(
        {"app": database(pg15)}, engine=engine, auth_type="trust", pool_mode="transaction", default_pool_size=1
    )


@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_a_running_query_is_cancelled(pg15: Postgres, engine: str, mode: str) -> None:
    """57014 for the query, and the connection goes on."""
    settings = {"auth_type": "trust", "pool_mode": mode}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler, pooler.connect() as conn:
        timer = threading.Timer(0.3, conn.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("select pg_sleep(30)")
        timer.join()
        assert conn.execute("select 1").fetchall() == [(1,)]


def test_over_tls(pg15: Postgres, engine: str, authority: Authority) -> None:
    """The request goes to the server over TLS when the query's own connection does."""
    settings = {"server_tls_sslmode": "verify-full", "server_tls_ca_file": authority.ca_file, "auth_type": "trust"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler, pooler.connect() as conn:
        timer = threading.Timer(0.3, conn.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("select pg_sleep(30)")
        timer.join()


def test_wrong_keys_close_quietly(pooler: Pooler) -> None:
    """Unknown keys, short and long ones get nothing, and nothing happens."""
    with pooler, logged_in(pooler) as c:
        for key in (b"12345678", b"1234", b"x" * 300, c.key[:7] + bytes((c.key[7] ^ 1,))):
            assert cancel(pooler, key) == b""
        assert c.query("select 1")[-1].kind == "Z"


def test_an_idle_client_hears_nothing(pooler: Pooler) -> None:
    """A cancel between two queries changes neither."""
    with pooler, logged_in(pooler) as c:
        c.query("select 1")
        assert cancel(pooler, c.key) == b""
        assert c.silent_for(0.3)
        assert [message.kind for message in c.query("select 2")] == ["T", "D", "C", "Z"]


def test_a_waiting_client_keeps_waiting_and_the_one_before_it_is_left_alone(pg15: Postgres, pooler: Pooler) -> None:
    """A cancel for a client in the line hits neither itself nor the holder of the server, and no answer is shifted."""
    with pooler, logged_in(pooler) as holder, logged_in(pooler) as waiter:
        holder.query("begin")
        waiter.send(m.query("select 'waiter'"))
        assert waiter.silent_for(0.2)
        assert cancel(pooler, waiter.key) == b""
        assert holder.query("select 'holder'")[1].payload.endswith(b"holder")
        holder.query("commit")
        assert waiter.read_until("Z")[1].payload.endswith(b"waiter")
        assert waiter.query("select 'again'")[1].payload.endswith(b"again")


def test_a_cancel_never_hits_the_next_client_of_the_server(pg15: Postgres, pooler: Pooler) -> None:
    """With one server and cancels that come just as queries end, the neighbour's queries never fail."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def neighbour() -> None:
        with logged_in(pooler) as c:
            while not stop.is_set():
                answer = c.query("select pg_sleep(0.001)")
                if [message.kind for message in answer] != ["T", "D", "C", "Z"]:
                    failures.append(AssertionError(answer))

    with pooler, logged_in(pooler) as target:
        thread = threading.Thread(target=neighbour)
        thread.start()
        pick = random.Random(1)
        try:
            for _ in range(60):
                target.send(m.query("select pg_sleep(0.004)"))
                time.sleep(pick.uniform(0, 0.012))
                cancel(pooler, target.key)
                target.read_until("Z")
        finally:
            stop.set()
            thread.join(20)
        assert failures == []


def test_cancel_storm(pg15: Postgres, engine: str) -> None:
    """Many clients start and cancel queries at once: each query ends as done or cancelled, and the pooler lives."""
    settings = {"auth_type": "trust", "pool_mode": "transaction", "default_pool_size": 4}
    outcomes: list[str] = []

    def work(pooler: Pooler, seed: int) -> None:
        pick = random.Random(seed)
        with logged_in(pooler) as c:
            for _ in range(25):
                c.send(m.query("select pg_sleep(0.02)"))
                if pick.random() < 0.8:
                    # Of ten clients four run; a request for one that waits changes nothing.
                    time.sleep(pick.uniform(0, 0.08))
                    cancel(pooler, c.key)
                kinds = [message.kind for message in c.read_until("Z")]
                outcomes.append("".join(kinds))

    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        threads = [threading.Thread(target=work, args=(pooler, seed)) for seed in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(outcomes) == 250
        assert {outcome for outcome in outcomes if outcome not in ("TDCZ", "EZ", "TEZ")} == set()
        assert any("E" in outcome for outcome in outcomes)
        assert pooler.running
        with logged_in(pooler) as c:
            assert c.query("select 1")[-1].kind == "Z"
