"""Recipes about COPY that broke other poolers."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from tests.e2e.reports.conftest import Lane, MakePooler
from tests.e2e.reports.test_prepared import kinds, state
from tests.support import messages as m
from tests.support.postgres import Postgres

OpenLane = Callable[..., Lane]


def copy_data(text: str) -> bytes:
    """One CopyData."""
    return m.message(b"d", text.encode())


@pytest.fixture
def table(pg15: Postgres) -> str:
    """An empty table with a primary key."""
    pg15.query("drop table if exists copy_t; create table copy_t(id int primary key, body text)", "app")
    pg15.query("grant all on copy_t to public", "app")
    return "copy_t"


@pytest.mark.parametrize("end", [m.COPY_DONE, m.message(b"f", b"enough\0")], ids=["CopyDone", "CopyFail"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_server_fails_copy_while_client_sends(
    make_pooler: MakePooler, lanes: OpenLane, table: str, end: bytes, in_transaction: bool
) -> None:
    """After the server's error late COPY messages are dropped, the next client is served, the pool is idle again."""
    pooler = make_pooler(auth_type="trust")
    a, b = lanes(pooler), lanes(pooler)
    if in_transaction:
        a.ask(m.query("begin"))
    a.send(m.query(f"copy {table} from stdin"))
    assert a.client.read().kind == "G"
    for index in range(10):
        a.send(copy_data(f"{index}\tx\n"))
    a.send(copy_data("1\tagain\n"))
    for index in range(40):
        a.send(copy_data(f"{100 + index}\tlate\n"))
    a.send(end)
    found = a.client.read_until("Z")
    assert kinds(found) == "EZ"
    if in_transaction:
        assert found[-1].payload == b"E"
        assert kinds(a.ask(m.query("rollback"))) == "CZ"
    for index in range(5):
        a.send(copy_data(f"{index}\teven later\n"))
    assert kinds(b.ask(m.query("select 1"))) == "TDCZ"
    assert kinds(a.ask(m.query(f"select count(*) from {table}"))) == "TDCZ"
    (pool,) = [row for row in pooler.admin("SHOW POOLS") if row["database"] == "app"]
    assert (pool["sv_idle"], pool["sv_active"], pool["cl_waiting"]) == (1, 0, 0)


def test_copy_outside_a_transaction_keeps_its_server(make_pooler: MakePooler, pg15: Postgres, table: str) -> None:
    """Ten clients with pauses between CopyData share two servers and every row arrives."""
    pooler = make_pooler(default_pool_size=2)
    dsn = pooler.dsn("app", "alice", password="alice-secret")
    failures: list[BaseException] = []

    def load(number: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as conn, conn.cursor().copy(f"copy {table} from stdin") as copy:
                for index in range(20):
                    copy.write(f"{number * 1000 + index}\trow\n")
                    time.sleep(0.005)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pg15.query(f"select count(*), sum(id) from {table}", "app") == [
        (200, sum(n * 1000 + i for n in range(10) for i in range(20)))
    ]


def test_psql_copies_from_a_slow_pipe(make_pooler: MakePooler, pg15: Postgres, table: str) -> None:
    """A thousand rows that reach psql in four parts, 200 ms apart, all arrive, outside a transaction."""
    pooler = make_pooler(auth_type="trust")
    command = ["psql", "-X", pooler.dsn("app", "alice"), "-c", f"copy {table}(id) from stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as psql:
        assert psql.stdin is not None
        for part in range(4):
            psql.stdin.write("".join(f"{part * 250 + row}\n" for row in range(250)))
            psql.stdin.flush()
            time.sleep(0.2)
        psql.stdin.close()
        assert psql.wait(20) == 0
    assert pg15.query(f"select count(*), sum(id) from {table}", "app") == [(1000, 499500)]


def test_extended_copy_with_early_sync(make_pooler: MakePooler, lanes: OpenLane, table: str) -> None:
    """A Sync sent behind Execute before the server asked for data is ignored by COPY and answers nothing."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    a.send(m.parse("", f"copy {table} from stdin"), m.bind(""), m.execute(), m.SYNC)
    assert kinds(a.client.read_until("G")) == "12G"
    a.send(copy_data("1\tx\n"), m.COPY_DONE)
    assert kinds(a.ask(m.SYNC)) == "CZ"
    assert kinds(b.ask(m.query(f"select id from {table}"))) == "TDCZ"


def test_extended_copy_fails_early(make_pooler: MakePooler, lanes: OpenLane, table: str) -> None:
    """A COPY that the server refuses answers the early Sync; the data that follows is dropped."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    a.send(m.parse("", "copy no_such_table from stdin"), m.bind(""), m.execute(), m.SYNC)
    assert state(a.client.read_until("Z")) == "42P01"
    a.send(copy_data("1\tx\n"), m.COPY_DONE)
    assert kinds(b.ask(m.query("select 1"))) == "TDCZ"
    assert kinds(a.ask(m.SYNC)) == "Z"


def test_copy_out_in_pieces(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """COPY OUT passes every row, simple and extended."""
    a = lanes(make_pooler())
    text = "copy (select generate_series(1, 500)) to stdout"
    assert kinds(a.ask(m.query(text))) == "H" + "d" * 500 + "cCZ"
    assert kinds(a.ask(m.parse("", text), m.bind(""), m.execute(), m.SYNC)) == "12H" + "d" * 500 + "cCZ"
