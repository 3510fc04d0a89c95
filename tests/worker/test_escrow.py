"""What the supervisor is told of a server, from connect to the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import messages as m
from tests.worker.bench import Bench, close


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes workers whose servers have descriptors, and ends them."""
    made: list[Bench] = []
    monkeypatch.setattr("tests.worker.bench.LocalEngine.descriptor", lambda self, conn: 1000 + conn, raising=False)

    def make(*args: Any, **settings: Any) -> Bench:
        made.append(Bench(*args, **settings))
        return made[-1]

    yield make
    for bench in made:
        close(bench)


def told(bench: Bench) -> list[Any]:
    """What was said of servers since the last call: verbs, with `busy` for bury."""
    verbs = ("escrow", "backend", "bury", "lost")
    found = [fields.get("busy", verb) if verb == "bury" else verb for verb, fields in bench.fleet.sent if verb in verbs]
    bench.fleet.sent.clear()
    return found


def linked(bench: Bench, sql: str = "select 1") -> tuple[int, int]:
    """A client and its server, with a query under way."""
    client = bench.login()
    (server,) = bench.serve(1)
    bench.say(client, m.query(sql))
    bench.heard(server)  # nothing is unsent
    told(bench)
    return client, server


def test_escrow_before_anything_is_sent(benches: Any) -> None:
    """Number, rows and address go at once; the key when the server gives it."""
    bench = benches(server_tls_sslmode="disable")
    bench.login()
    (conn,) = bench.new_servers()
    server = bench.worker.servers.by_conn[conn]
    (pool,) = bench.worker.pools.by_key.values()
    expected = {
        "server": server.number, "rows": list(pool.rows), "host": "127.0.0.1", "port": 5432, "tls": False,
        "database": "app",
    }  # fmt: skip
    assert bench.fleet.sent[-1] == ("escrow", expected)
    assert bench.heard(conn) == b""
    bench.welcome(conn)
    assert ("backend", {"server": server.number, "key": server.cancel_key.hex()}) in bench.fleet.sent


def test_a_socket_that_failed_in_connect_is_lost(benches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to hand over; its CLOSED gives the slot back."""
    bench = benches()

    def failed(self: object, conn: int) -> int:
        raise KeyError(conn)

    monkeypatch.setattr("tests.worker.bench.LocalEngine.descriptor", failed)
    bench.login()
    (conn,) = bench.new_servers()
    bench.leave(conn)
    assert told(bench) == ["lost"]


def test_a_server_that_says_goodbye_first_is_lost(benches: Any) -> None:
    """Idle, in its login, or with a query under way: PostgreSQL's end is the backend's end."""
    bench = benches()
    client, server = linked(bench)
    bench.leave(server)
    assert told(bench)[0] == "lost"
    assert bench.error(client) == "server conn crashed?"


def test_the_end_of_a_tls_session_is_looked_at(benches: Any) -> None:
    """It can be torn without the backend's end: the supervisor reads the socket itself."""
    bench = benches()
    _, server = linked(bench)
    bench.worker.servers.by_conn[server].tls = "TLSv1.3/TLS_AES_256_GCM_SHA384"
    bench.leave(server)
    assert told(bench)[0] is False


def test_an_idle_server_is_buried_in_peace(benches: Any) -> None:
    """No cancel request is needed for it."""
    bench = benches(server_idle_timeout=1.0)
    _, server = linked(bench)
    bench.answer(server)
    bench.pass_time(2)
    assert told(bench) == [False]


def test_a_client_that_leaves_in_mid_query(benches: Any) -> None:
    """The query may run for hours: it is to be cancelled."""
    bench = benches()
    client, _ = linked(bench, "select pg_sleep(3600)")
    bench.leave(client)
    assert told(bench)[0] is True


def test_a_client_that_leaves_in_its_transaction(benches: Any) -> None:
    """The backend waits for us and sees the end of file: it needs no cancel request."""
    bench = benches()
    client, server = linked(bench, "begin")
    bench.answer(server, "T")
    bench.leave(client)
    assert told(bench)[0] is False


@pytest.mark.parametrize(
    ("setting", "status"),
    [("query_timeout", ""), ("transaction_timeout", ""), ("idle_transaction_timeout", "T")],
)
def test_timeouts_bury_what_may_be_at_work(benches: Any, setting: str, status: str) -> None:
    """A limit that ends a client ends its query too."""
    bench = benches(**{setting: 1.0})
    _, server = linked(bench, "begin")
    if status:
        bench.answer(server, status)
    bench.pass_time(2)
    assert not bench.alive(server)
    assert told(bench)[0] is (status == "")


def test_a_reset_query_that_is_cut_short(benches: Any) -> None:
    """Our own queries can hang as well."""
    bench = benches(server_reset_query="select pg_sleep(3600)", server_reset_query_always=True)
    _, server = linked(bench)
    bench.answer(server)
    record = bench.worker.servers.by_conn[server]
    bench.worker.servers.close(record, "test")
    assert told(bench) == [True]


def test_a_login_that_is_given_up(benches: Any) -> None:
    """There is no key and no query: only the end of file is waited for."""
    bench = benches(server_connect_timeout=1.0)
    bench.login()
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.pass_time(2)
    assert told(bench)[:2] == ["escrow", False]


def test_one_word_for_each_server(benches: Any) -> None:
    """Closed by us and dead in the same wake: the slot is given back once."""
    bench = benches()
    _, server = linked(bench)
    record = bench.worker.servers.by_conn[server]
    bench.engine.received_eof(server)
    bench.worker.servers.close(record, "test")
    bench.worker.drain()
    assert len([each for each in told(bench) if each in ("lost", True, False)]) == 1
    (pool,) = bench.worker.pools.by_key.values()
    assert bench.worker.budget.ledger.used(pool.rows.pool) <= 1


def test_gone_is_asked_for_again(benches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a word be lost, the slot is not."""
    bench = benches()
    client, _ = linked(bench)
    monkeypatch.setattr(bench.fleet, "hear", lambda verb, **fields: None)
    bench.leave(client)
    assert told(bench) == [True]
    bench.pass_time(9)
    assert told(bench) == []
    bench.pass_time(1)
    assert told(bench) == [True]


def test_escrow_says_tls_as_the_entry_has_it(benches: Any) -> None:
    """An entry with TLS of its own is cancelled over TLS, whatever the others do."""
    databases = {"app": "", "secure": "server_tls_sslmode=require"}
    bench = benches(databases, server_tls_sslmode="disable")
    for name in databases:
        bench.login(dbname=name)
    said = {fields["database"]: fields["tls"] for verb, fields in bench.fleet.sent if verb == "escrow"}
    assert said == {"app": False, "secure": True}
