"""Parking, linking, the waiting line and release."""

from __future__ import annotations

import pytest

from pgshoal.engine.contract import Event, PoolMode
from tests.engine.core.harness import BLOCK, FAILED, IDLE, Bench
from tests.support.messages import (
    COPY_DONE,
    FLUSH,
    SYNC,
    TERMINATE,
    close,
    command_complete,
    data_row,
    error,
    message,
    parameter_status,
    query,
    row_description,
)

ANSWER = row_description("a") + data_row("1") + command_complete("SELECT 1") + IDLE


def test_a_query_goes_there_and_back(core: Bench) -> None:
    """One transaction links, relays and parts."""
    client, server = core.linked(query("select 1"))
    assert core.engine.link_of(client.id) == server.id
    server.say(ANSWER)
    assert client.heard() == ANSWER
    assert (client.mode, server.mode) == ("parked", "idle")
    assert core.engine.link_of(client.id) == 0
    assert core.events() == []


def test_waiters_are_served_in_order(core: Bench) -> None:
    """The line is FIFO, STARVED is given once, and a released server goes to the first waiter."""
    core.pool()
    clients = [core.client() for _ in range(3)]
    for number, client in enumerate(clients):
        client.say(query(f"select {number}"))
    assert core.events() == [(Event.STARVED, core.pool_id)]
    assert core.engine.waiting_clients(core.pool_id) == [client.id for client in clients]
    assert not core.engine.reading(clients[0].id)
    server = core.server()
    for number, client in enumerate(clients):
        assert server.heard() == query(f"select {number}")
        server.say(ANSWER)
        assert client.heard() == ANSWER
    assert server.mode == "idle"


def test_a_releasing_client_does_not_jump_the_line(core: Bench) -> None:
    """A pipelined second transaction waits behind the client that waits."""
    first, server = core.linked(query("a"))
    second = core.client()
    second.say(query("b"))
    core.engine.received(first.id, query("c"))
    assert server.heard() == query("c")
    server.say(command_complete("X"), IDLE)
    assert first.facts.mode == "linked"
    server.say(command_complete("X"), IDLE)
    assert server.heard() == query("b")


@pytest.mark.parametrize("round_robin", [False, True])
def test_which_idle_server(core: Bench, round_robin: bool) -> None:
    """LIFO, or FIFO with round_robin."""
    core.pool(round_robin=round_robin)
    old, young = core.server(), core.server()
    core.client().say(query("x"))
    assert (old if round_robin else young).heard() == query("x")


def test_parked_clients_are_answered_without_a_server(core: Bench) -> None:
    """Sync and Close of a statement are answered; Flush and late COPY messages disappear."""
    core.pool()
    client = core.client()
    client.say(message(b"d", b"x" * 100), COPY_DONE, message(b"f", b"no\0"), FLUSH)
    assert client.heard() == b""
    client.say(SYNC, close("S", "a"))
    assert client.heard() == IDLE + b"3\0\0\0\x04"
    assert client.mode == "parked"
    assert core.events() == []


def test_close_needs_a_server_without_tracking(core: Bench) -> None:
    """Without tracking a Close is the server's business."""
    core.pool(prepared=0)
    client = core.client()
    client.say(close("S", "a"))
    assert client.mode == "waiting"


def test_terminate_and_eof(core: Bench) -> None:
    """A parked client that leaves gives CLOSED with the way it left."""
    core.pool()
    first, second = core.client(), core.client()
    first.say(TERMINATE)
    second.leave()
    assert core.events() == [
        (Event.CLOSED, first.id, "client close request"),
        (Event.CLOSED, second.id, "client unexpected eof"),
    ]


def test_a_waiter_that_leaves(core: Bench) -> None:
    """A waiting client that closes is out of the line."""
    core.pool()
    gone, stays = core.client(), core.client()
    gone.say(query("a"))
    stays.say(query("b"))
    gone.leave()
    assert (Event.CLOSED, gone.id, "client unexpected eof") in core.events()
    assert core.server().heard() == query("b")


def test_unwait_freezes(core: Bench) -> None:
    """A client taken out of the line is frozen; Python then tells it and closes it."""
    core.pool()
    client = core.client()
    client.say(query("a"))
    core.engine.send(client.id, b"notice")
    assert client.heard() == b"notice"
    core.engine.unwait(client.id)
    assert client.mode == "frozen"
    assert core.engine.waiting_clients(core.pool_id) == []
    core.engine.close(client.id, b"bye")
    assert client.heard() == b"bye"


def test_pause(core: Bench) -> None:
    """Nobody is linked in a paused pool; on resume the line is served in order."""
    server = core.server()
    core.engine.pause_pool(core.pool_id, True)
    first, second = core.client(), core.client()
    first.say(query("a"))
    second.say(query("b"))
    assert server.heard() == b""
    core.engine.pause_pool(core.pool_id, False)
    assert server.heard() == query("a")
    core.engine.pause_pool(core.pool_id, True)
    server.say(command_complete("X"), IDLE)
    assert (server.mode, second.mode) == ("idle", "waiting")


def test_the_first_rest_is_told(core: Bench) -> None:
    """After tell_rest the first server that becomes idle gives RESTED, once; one that serves the line does not."""
    server, first, second = core.server(), core.client(), core.client()
    first.say(query("a"))
    second.say(query("b"))
    core.events()
    core.engine.tell_rest(core.pool_id)
    server.say(command_complete("X"), IDLE)
    assert core.events() == []
    server.say(command_complete("X"), IDLE)
    assert core.events() == [(Event.RESTED, core.pool_id)]
    first.say(query("a"))
    server.say(command_complete("X"), IDLE)
    assert (server.mode, core.events()) == ("idle", [])


def test_a_hushed_pool_starves_silently(core: Bench) -> None:
    """Clients wait as ever, but STARVED is given again only after the hush has ended."""
    first, second = core.client(), core.client()
    core.engine.hush_pool(core.pool_id, True)
    first.say(query("a"))
    assert (first.mode, core.events()) == ("waiting", [])
    core.engine.hush_pool(core.pool_id, False)
    second.say(query("b"))
    assert core.events() == [(Event.STARVED, core.pool_id)]
    assert core.server().heard() == query("a")


def test_transactions_hold_the_link(core: Bench) -> None:
    """Status T and E keep the server."""
    client, server = core.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    assert client.facts.status == "T"
    client.say(query("x"))
    server.say(error("42601", "no"), FAILED)
    assert client.facts.status == "E"
    client.say(query("rollback"))
    server.say(command_complete("ROLLBACK"), IDLE)
    assert (client.mode, server.mode) == ("parked", "idle")


def test_decide(core: Bench) -> None:
    """A marked server is RETURNED once, in dialogue; park gives it on."""
    client, server = core.linked(query("a"))
    core.engine.decide(server.id, True)
    assert server.facts.decide
    server.say(ANSWER)
    assert core.events() == [(Event.RETURNED, server.id)]
    assert (server.mode, server.facts.decide) == ("dialogue", False)
    core.engine.send(server.id, query("reset"))
    assert server.heard() == query("reset")
    server.say(command_complete("RESET"), IDLE)
    assert [event[2] for event in core.events()] == [ord("C"), ord("Z")]
    client.say(query("b"))
    core.engine.park(server.id)
    assert server.heard() == query("b")


def test_a_pool_that_decides(core: Bench) -> None:
    """With `decide` in the pool every release gives RETURNED, but not what Python parks."""
    core.pool(decide=True)
    server = core.server()
    assert server.mode == "idle"
    client = core.client()
    client.say(query("a"))
    server.say(ANSWER)
    assert core.events() == [(Event.RETURNED, server.id)]


def test_hold(core: Bench) -> None:
    """A held server is given to nobody until the last hold ends."""
    client, server = core.linked(query("a"))
    core.engine.hold(server.id)
    core.engine.hold(server.id)
    server.say(ANSWER)
    assert server.mode == "held"
    client.say(query("b"))
    assert client.mode == "waiting"
    core.engine.unhold(server.id)
    assert server.mode == "held"
    core.engine.unhold(server.id)
    assert server.heard().endswith(query("b"))


def test_hold_goes_before_decide(core: Bench) -> None:
    """A held server is RETURNED when the hold ends."""
    _client, server = core.linked(query("a"))
    core.engine.hold(server.id)
    core.engine.decide(server.id, True)
    server.say(ANSWER)
    assert (server.mode, core.events()) == ("held", [])
    core.engine.unhold(server.id)
    assert core.events() == [(Event.RETURNED, server.id)]


def test_take(core: Bench) -> None:
    """Only an idle server can be taken."""
    client, server = core.linked()
    assert core.engine.take(server.id)
    assert server.mode == "dialogue"
    assert not core.engine.take(server.id)
    client.say(query("a"))
    core.engine.park(server.id)
    assert not core.engine.take(server.id)


def test_idle_servers(core: Bench) -> None:
    """Reports are noted and notices dropped; anything else closes an idle server."""
    client, server = core.linked()
    server.say(message(b"N", b"x" * 200), message(b"A", b"\0\0\0\0a\0b\0"), parameter_status("TimeZone", "CET"))
    assert core.engine.parameters(server.id) == {"TimeZone": "CET"}
    assert (server.mode, client.heard()) == ("idle", b"")
    server.say(error("57P01", "bye"))
    assert core.events() == [(Event.CLOSED, server.id, "idle server got dirty")]


def test_bytes_behind_the_release(core: Bench) -> None:
    """What a server sends behind its last ReadyForQuery never reaches the next client."""
    first, server = core.linked(query("a"))
    second = core.client()
    second.say(query("b"))
    core.engine.received(server.id, ANSWER + data_row("secret") + IDLE)
    assert first.heard() == ANSWER
    assert second.heard() == b""
    assert (Event.CLOSED, server.id, "idle server got dirty") in core.events()
    assert second.mode == "waiting"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((), "client disconnected with query in progress"),
        ((command_complete("BEGIN"), BLOCK), "client disconnect while server was not ready"),
    ],
)
@pytest.mark.parametrize("way", ["eof", "terminate"])
def test_leaving_an_unclean_link(core: Bench, said: tuple[bytes, ...], reason: str, way: str) -> None:
    """The server of a client that leaves too early is closed with the reason."""
    client, server = core.linked(query("begin"))
    server.say(*said)
    if way == "eof":
        client.leave()
    else:
        client.say(TERMINATE)
    text = "client unexpected eof" if way == "eof" else "client close request"
    assert core.events() == [(Event.CLOSED, client.id, text), (Event.CLOSED, server.id, reason)]


def test_leaving_in_half_a_message(core: Bench) -> None:
    """Half a message forwarded, or bytes unsent, close the server."""
    client, server = core.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    client.say(b"Q\0\0\x10\0select")
    assert server.heard() == b"Q\0\0\x10\0select"
    client.leave()
    assert core.events()[1] == (
        Event.CLOSED,
        server.id,
        "client disconnect before everything was sent to the server",
    )


def test_a_server_that_crashes(core: Bench) -> None:
    """All that the server sent is passed on; then the client gets FAULT."""
    client, server = core.linked(query("a"))
    server.say(error("57P01", "terminating", "FATAL"))
    server.leave()
    assert client.heard() == error("57P01", "terminating", "FATAL")
    assert core.events() == [
        (Event.CLOSED, server.id, "server conn crashed?"),
        (Event.FAULT, client.id, "server_crashed", ""),
    ]
    assert client.mode == "frozen"


def test_close_of_a_linked_pair(core: Bench) -> None:
    """Closing a linked server tells its client why; closing a linked client closes a busy server with that reason."""
    client, server = core.linked(query("a"))
    core.engine.close(server.id, reason="query timeout")
    assert core.events() == [(Event.FAULT, client.id, "server_closed", "query timeout")]
    other_server = core.server()
    other = core.client()
    other.say(query("a"))
    other_server.heard()
    core.engine.close(other.id, b"", "admin forced disconnect")
    assert core.events() == [(Event.CLOSED, other_server.id, "admin forced disconnect")]


def test_session_mode(core: Bench) -> None:
    """A session keeps its server until the client leaves cleanly; then the next client gets it."""
    core.pool(PoolMode.SESSION)
    client, server = core.linked(query("a"))
    server.say(ANSWER)
    assert client.mode == "linked"
    other = core.client()
    other.say(query("b"))
    assert other.mode == "waiting"
    client.say(TERMINATE)
    assert server.heard() == query("b")


def test_statement_mode(core: Bench) -> None:
    """A transaction block in statement mode ends both sides, and its ReadyForQuery is not passed on."""
    core.pool(PoolMode.STATEMENT)
    client, server = core.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    assert client.heard() == command_complete("BEGIN")
    events = core.events()
    assert (Event.FAULT, client.id, "statement_mode_transaction", "") in events
    assert (Event.CLOSED, server.id, "transaction blocks not allowed in statement pooling mode") in events


def test_drop_pool(core: Bench) -> None:
    """A pool with connections cannot be dropped."""
    client, server = core.linked()
    with pytest.raises(RuntimeError):
        core.engine.drop_pool(core.pool_id)
    client.leave()
    server.leave()
    core.engine.drop_pool(core.pool_id)
    with pytest.raises(KeyError):
        core.engine.pool_counts(core.pool_id)
