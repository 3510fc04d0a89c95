"""PostgreSQL ends a session in the middle of its work: the client of that session is told, nobody else notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.chaos.crowd import settled
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, Message
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

CRASHED = ("FATAL", "08P01", "server conn crashed?")
TERMINATED = ("FATAL", "57P01", "terminating connection due to administrator command")


@pytest.fixture(scope="module")
def single(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """One server for everybody."""
    settings = {"pool_mode": "transaction", "default_pool_size": 1, "server_login_retry": 0.2}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as running:
        yield running


def told(found: list[Message]) -> list[tuple[str, str, str]]:
    """Severity, SQLSTATE and text of each error."""
    errors = [m.error_fields(message.payload) for message in found if message.kind == "E"]
    return [(fields["S"], fields["C"], fields["M"]) for fields in errors]


def value(found: list[Message]) -> str:
    """The one value of an answer."""
    (row,) = [message.payload for message in found if message.kind == "D"]
    return row[6:].decode()


def terminate(client: FakeClient, pg: Postgres) -> None:
    """As an administrator."""
    (pid,) = pg.query("select pid from pg_stat_activity where usename = 'alice' and datname = 'app'")[0]
    pg.query(f"select pg_terminate_backend({pid}, 5000)")


def idle_too_long(client: FakeClient, pg: Postgres) -> None:
    """By a limit of its own."""
    client.query("set local idle_in_transaction_session_timeout = 100")


def by_itself(client: FakeClient, pg: Postgres) -> None:
    """By a statement, with more behind it that is never answered."""
    client.send(m.query("select pg_terminate_backend(pg_backend_pid())"), m.query("select 'never'"))


def in_a_batch(client: FakeClient, pg: Postgres) -> None:
    """In the middle of a batch."""
    sql = "select pg_terminate_backend(pg_backend_pid())"
    batch = [
        m.parse("", sql),
        m.bind(""),
        m.execute(),
        m.parse("later", "select 'never'"),
        m.bind("later"),
        m.execute(),
    ]
    client.send(*batch, m.SYNC)


def while_copying_in(client: FakeClient, pg: Postgres) -> None:
    """While it takes rows, in the middle of one."""
    client.query("create temp table taken(body text) on commit drop")
    client.send(m.query("copy taken from stdin"))
    client.read_until("G")
    client.send(m.message(b"d", b"whole\n"), m.message(b"d", b"x" * 20_000)[:10_000])
    terminate(client, pg)


def while_copying_out(client: FakeClient, pg: Postgres) -> None:
    """While it sends more rows than anybody has read."""
    client.send(m.query("copy (select repeat('x', 1000) from generate_series(1, 100000)) to stdout"))
    client.read_until("d")
    terminate(client, pg)


IDLE = ("FATAL", "25P03", "terminating connection due to idle-in-transaction timeout")
FATALS: dict[Callable[[FakeClient, Postgres], None], tuple[str, str, str]] = {
    terminate: TERMINATED,
    idle_too_long: IDLE,
    by_itself: TERMINATED,
    in_a_batch: TERMINATED,
    while_copying_in: TERMINATED,
    while_copying_out: TERMINATED,
}


@pytest.mark.parametrize("way", FATALS, ids=lambda way: way.__name__)
def test_fatal_in_a_transaction(single: Pooler, pg15: Postgres, way: Callable[[FakeClient, Postgres], None]) -> None:
    """The client hears PostgreSQL's own words, then the pooler's; the one that waits is served by a new server."""
    address = (single.host, single.port)
    with FakeClient(address) as client, FakeClient(address) as waiting:
        client.login("alice", "app")
        waiting.login("alice", "app")
        client.query("begin")
        waiting.send(m.query("select 'mine'"))
        way(client, pg15)
        heard = told(client.read_to_end())
        expected = [FATALS[way], CRASHED]
        # PostgreSQL says nothing while its rows are not read, and in the middle of a row nothing can be said.
        assert heard == expected or (way is while_copying_out and heard in ([CRASHED], []))
        answer = waiting.read_until("Z")
        assert (told(answer), value(answer)) == ([], "mine")
    settled(single, pg15)


def test_fatal_between_transactions(single: Pooler, pg15: Postgres) -> None:
    """A server that ends while it is idle in the pool is replaced, and no client hears of it."""
    address = (single.host, single.port)
    with FakeClient(address) as client:
        client.login("alice", "app")
        pid = value(client.query("select pg_backend_pid()"))
        terminate(client, pg15)
        answer = client.query("select pg_backend_pid()")
        assert told(answer) == []
        assert value(answer) != pid
    settled(single, pg15)
