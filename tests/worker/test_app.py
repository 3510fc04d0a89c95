"""The worker's table of events, and what it does when a handler fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.worker.handler import Handler
from tests.support import messages as m
from tests.worker.bench import Bench, close


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker."""
    made = Bench()
    yield made
    close(made)


class Broken(Handler):
    """A handler with a bug."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def message(self, kind: int, payload: bytes) -> None:
        """The bug."""
        raise ZeroDivisionError

    def closed(self, reason: str) -> None:
        """How it is told."""
        self.reasons.append(reason)


def test_a_failing_handler_costs_one_connection(bench: Bench) -> None:
    """The bug is logged with its trace, that connection is closed, all others go on."""
    client, victim = bench.login(), bench.engine.accept_manual(1)
    bench.worker.drain()
    (server,) = bench.serve()
    handler = Broken()
    bench.worker.handlers[victim] = handler
    bench.engine.proceed(victim, 1000)
    bench.say(victim, m.query("select 1"))
    assert bench.log.has("internal error, closing connection")
    assert bench.log.has("ZeroDivisionError")
    assert handler.reasons == ["internal error"]
    bench.heard(client)
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    assert bench.heard(client).endswith(m.ready())


def test_a_failing_server_handler_keeps_the_accounts(bench: Bench) -> None:
    """A server whose handler fails is closed and no longer counted."""
    bench.login()
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.worker.handlers[server] = Broken()
    bench.say(server, b"N", m.auth(0))
    assert not bench.alive(server)
    assert bench.log.has("closing because: internal error")


def test_ids_are_one_counter(bench: Bench) -> None:
    """Clients and servers never share a number."""
    first, second = bench.login(), bench.login()
    (server,) = bench.serve()
    front, servers = bench.worker.front, bench.worker.servers
    assert len({front.clients[first].number, front.clients[second].number, servers.by_conn[server].number}) == 3


def test_client_and_server_that_die_together(bench: Bench) -> None:
    """Both ends vanish in one wake: no error, exact accounts."""
    client = bench.login()
    (server,) = bench.serve()
    bench.say(client, m.query("select 1"))
    bench.engine.received_eof(server)
    bench.engine.received_eof(client)
    bench.worker.drain()
    assert not bench.log.has("internal error")
    database = bench.worker.pools.databases["app"]
    assert (database.client_connections, database.server_connections) == (0, 0)


def test_a_client_that_is_reset_before_it_is_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket has no addresses any more: it is closed without an error, and nothing of it is counted."""
    conn = bench.engine.accept_manual(1)
    bench.engine.received(conn, m.startup({"user": "alice", "database": "app"}))
    monkeypatch.setattr(bench.engine, "addresses", gone)
    bench.worker.drain()
    assert not bench.log.has("internal error")
    assert not bench.alive(conn)
    assert bench.worker.front.connections() == 0


def gone(conn: int) -> None:
    """As an engine answers for a socket that was reset."""
    raise KeyError(conn)
