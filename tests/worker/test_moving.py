"""Clients that change to another process: what goes with them, and what is counted where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pgshoal.auth.secret import Keys
from pgshoal.config.model import Secret
from pgshoal.fleet.channel import Message
from pgshoal.fleet.ledger import LedgerFull
from pgshoal.worker import moving
from pgshoal.worker.records import Found
from tests.support import messages as m
from tests.worker.bench import Bench, close


@pytest.fixture
def pair() -> Iterator[tuple[Bench, Bench]]:
    """An old and a new process."""
    benches = Bench(max_user_client_connections=5), Bench(max_user_client_connections=5)
    yield benches
    for bench in benches:
        close(bench)


def carried(old: Bench) -> Message:
    """What was sent of the last client that left."""
    verb, fields = old.fleet.sent[-1]
    assert verb == "move"
    return Message("move", fields, old.fleet.blobs[-1], -1)


def move(old: Bench, new: Bench) -> int:
    """All of it; the client in the new process."""
    old.worker.moving.leave()
    old.worker.drain()
    before = set(new.worker.front.clients)
    new.fleet.handlers["move"](carried(old))
    new.worker.drain()
    (conn,) = set(new.worker.front.clients) - before
    return conn


def served(bench: Bench) -> tuple[int, int]:
    """A client that is in, and its pool's server."""
    conn = bench.login()
    (server,) = bench.serve()
    bench.heard(conn)
    return conn, server


def test_a_parked_client_goes_with_all_that_is_known_of_it(pair: tuple[Bench, Bench]) -> None:
    """Name, number, key and addresses are the same; it is counted in the new process and no more in the old one."""
    old, new = pair
    conn, _ = served(old)
    before = old.worker.front.clients[conn]
    after = new.worker.front.clients[move(old, new)]
    for name in ("number", "cancel_key", "connect_time", "peer_host", "peer_port", "local_port"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.database.name, after.user.name, after.pool.user.name) == ("app", "alice", "alice")
    assert new.worker.front.find_key(before.cancel_key) is after
    assert old.worker.front.find_key(before.cancel_key) is None
    for bench, count in ((old, 0), (new, 1)):
        database, user = bench.worker.pools.databases["app"], bench.worker.pools.users["alice"]
        assert (database.client_connections, user.client_connections) == (count, count)
        assert bench.worker.front.connections() == count
        ledger = bench.fleet.ledger
        assert [ledger.own(row) for row in after.admitted if bench is new] == [1, 1][: 2 * count]


def test_it_is_served_where_it_is_now(pair: tuple[Bench, Bench]) -> None:
    """No second welcome; its next query goes to a server of the new process."""
    old, new = pair
    served(old)
    conn = move(old, new)
    assert new.heard(conn) == b""
    new.say(conn, m.query("select 1"))
    (server,) = new.serve()
    new.answer(server)
    assert new.heard(conn).endswith(m.ready())


def test_a_client_in_a_transaction_goes_when_it_ends(pair: tuple[Bench, Bench]) -> None:
    """Not before, and without being asked twice."""
    old, new = pair
    conn, server = served(old)
    old.say(conn, m.query("begin"))
    old.answer(server, "T")
    old.worker.moving.leave()
    old.worker.moving.leave()
    old.worker.drain()
    assert conn in old.worker.front.clients
    assert not any(verb == "move" for verb, _ in old.fleet.sent)
    old.say(conn, m.query("commit"))
    old.answer(server, "I")
    assert old.heard(conn).endswith(m.ready())
    old.worker.drain()
    assert conn not in old.worker.front.clients
    new.fleet.handlers["move"](carried(old))
    assert len(new.worker.front.clients) == 1


def test_what_logins_have_taught_goes_with_the_client(pair: tuple[Bench, Bench]) -> None:
    """Secrets that auth_query has found, and keys of SCRAM logins: servers are logged in to with them."""
    old, new = pair
    conn, _ = served(old)
    user = old.worker.front.clients[conn].user
    keys = Keys(b"c" * 32, b"s" * 32)
    user.scram_keys = keys
    user.found["app"] = Found(Secret("scram", "SCRAM-SHA-256$..."), keys)
    there = new.worker.front.clients[move(old, new)].user
    assert there.scram_keys == keys
    assert there.found["app"].secret == user.found["app"].secret
    assert there.found["app"].scram_keys == keys


def test_keys_of_an_older_password_are_not_taken(pair: tuple[Bench, Bench]) -> None:
    """The new process has read the files again."""
    old, new = pair
    conn, _ = served(old)
    old.worker.front.clients[conn].user.scram_keys = Keys(b"c" * 32, b"s" * 32)
    new.worker.pools.users["alice"].secret = Secret("plain", "another")
    assert new.worker.front.clients[move(old, new)].user.scram_keys is None


def test_a_database_that_is_gone(pair: tuple[Bench, Bench]) -> None:
    """The client is told, as at a login."""
    old, new = pair
    served(old)
    del new.worker.pools.databases["app"]
    new.worker.config.databases.clear()  # type: ignore[attr-defined]
    old.worker.moving.leave()
    old.worker.drain()
    new.fleet.handlers["move"](carried(old))
    assert new.worker.front.clients == {}
    assert "no such database: app" in closing(new)


def closing(bench: Bench) -> str:
    """What the only connection was told."""
    return "".join(bench.heard(conn).decode(errors="replace") for conn in range(1, 2**26, 2**24))


def test_a_state_that_cannot_be_read(pair: tuple[Bench, Bench]) -> None:
    """The client is lost, with a line in the log, and nothing is counted."""
    old, new = pair
    served(old)
    old.worker.moving.leave()
    old.worker.drain()
    message = carried(old)
    message.blob = b"rubbish"
    new.fleet.handlers["move"](message)
    assert new.log.has("was lost on its way between workers")
    assert new.worker.front.connections() == 0


def test_a_stopped_process_that_holds_the_ledger(pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes while no pool can be made waits until one can be made."""
    old, new = pair
    served(old)
    old.worker.moving.leave()
    old.worker.drain()
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(new.worker.loop, "call_later", lambda delay_s, call: later.append(call), raising=False)
    with monkeypatch.context() as stuck:
        stuck.setattr(new.worker.budget, "register", refused)
        new.fleet.handlers["move"](carried(old))
        later.pop()()
        assert new.worker.front.clients == {}
        assert new.log.has("waits on its way between workers")
    later.pop()()
    assert len(new.worker.front.clients) == 1
    assert later == []


def refused(*rows: object) -> None:
    """As when the lock is not to be had."""
    raise LedgerFull("a stopped process holds the ledger")


def test_no_secret_is_logged(pair: tuple[Bench, Bench]) -> None:
    """Not even at the highest verbosity."""
    old, new = pair
    for bench in pair:
        bench.log.set_verbose(3)
    conn, _ = served(old)
    old.worker.front.clients[conn].user.found["app"] = Found(Secret("plain", "very-secret"))
    facts: dict[str, Any] = carried_facts(old, new)
    assert facts["user"]["found"][0]["secret"] == ["plain", "very-secret"]
    assert not old.log.has("very-secret")
    assert not new.log.has("very-secret")


def carried_facts(old: Bench, new: Bench) -> dict[str, Any]:
    """The fields of a move."""
    move(old, new)
    return old.fleet.sent[-1][1]


def test_clients_go_some_at_a_time(pair: tuple[Bench, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """And not while the supervisor has not taken those before."""
    monkeypatch.setattr(moving, "_AT_ONCE", 2)
    old, _ = pair
    served(old)
    for _ in range(4):
        old.heard(old.login())
    left = []
    for backlog in (0, 1, 0, 0):
        old.fleet.backlog = backlog
        old.worker.moving.leave()
        old.worker.drain()
        left.append(len(old.worker.front.clients))
    assert left == [3, 3, 1, 0]
