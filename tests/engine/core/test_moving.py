"""Clients that move to another engine, of either kind, with all that belongs to them."""

from __future__ import annotations

import contextlib

import pytest

from pgshoal.engine.contract import Event, PoolMode
from tests.engine.core.harness import BLOCK, IDLE, Bench, Peer
from tests.engine.core.test_prepared import ONE, TAG, THREE, TWO, prepare, use
from tests.support.messages import SYNC, bind, close, error, execute, message, parameter_status, parse, query

Where = tuple[Bench, Bench]


@pytest.fixture(params=["python", "native"])
def benches(request: pytest.FixtureRequest, core: Bench) -> Where:
    """An engine to leave, and one of either kind to arrive at."""
    return core, Bench(str(request.param), core.cut)


def state_of(bench: Bench, conn: int) -> bytes:
    """What MOVED brings."""
    bench.engine.wait(0)
    moved = [event for event in bench.events() if event[0] == Event.MOVED]
    assert [event[1:3] for event in moved] == [(conn, -1)]
    with pytest.raises(KeyError):
        bench.engine.facts(conn)
    state: bytes = moved[0][3]
    return state


def arrive(bench: Bench, state: bytes) -> Peer:
    """The client at its new place."""
    peer = Peer(bench, bench.engine.immigrate(-1, 7, state))
    assert peer.mode == "dialogue"
    assert bench.events() == []
    bench.engine.admit(peer.id, bench.pool_id or bench.pool(), [("TimeZone", "nowhere")])
    return peer


def move(benches: Where, client: Peer) -> Peer:
    """The whole way."""
    assert benches[0].engine.emigrate(client.id)
    with contextlib.suppress(KeyError):  # with nothing to hear it is gone
        client.heard()
    return arrive(benches[1], state_of(benches[0], client.id))


def test_prepared_statements_come_along(benches: Where) -> None:
    """A name prepared before the move is used after it; a Close and another Parse work as ever."""
    client, server = benches[0].linked()
    prepare(client, server, "a", "select 1")
    prepare(client, server, "b", "select 2")
    there = benches[1].server()
    client = move(benches, client)
    assert client.facts.prepared_statements == 2
    client.say(use("b"))
    name = "PGBOUNCER_2"
    assert there.heard() == parse(name, "select 2") + use(name)
    there.say(ONE, TWO, TAG, IDLE)
    assert client.heard() == TWO + TAG + IDLE
    client.say(close("S", "b"))
    assert client.heard() == THREE
    client.say(use("b"))
    assert there.heard() == use("b")


def test_the_unnamed_statement_comes_along(benches: Where) -> None:
    """Parse before the move, Bind after it: the Parse is replayed; once it is there, it is not sent again."""
    client, server = benches[0].linked()
    client.say(parse("", "select 1"), SYNC)
    server.say(ONE, IDLE)
    there = benches[1].server()
    client = move(benches, client)
    client.say(use(""))
    assert there.heard() == parse("", "select 1") + use("")
    there.say(ONE, TWO, TAG, IDLE)
    client.say(use(""))
    assert there.heard() == use("")


@pytest.mark.parametrize("command", ["DEALLOCATE ALL", "deallocate a"])
def test_commands_on_statements_come_along(benches: Where, command: str) -> None:
    """An unnamed DEALLOCATE that was parsed before the move drops names after it."""
    client, server = benches[0].linked()
    prepare(client, server, "a", "select 1")
    client.say(parse("", command), SYNC)
    server.say(ONE, IDLE)
    there = benches[1].server()
    client = move(benches, client)
    client.say(bind(""), execute(), SYNC)
    if command == "DEALLOCATE ALL":
        assert there.heard() == parse("", command) + bind("") + execute() + SYNC
        there.say(ONE, TWO, message(b"C", b"DEALLOCATE ALL\0"), IDLE)
    else:
        void = parse("PGBOUNCER_VOID", "")
        assert there.heard() == parse("", 'DEALLOCATE "PGBOUNCER_VOID"') + bind("") + void + execute() + SYNC
        there.say(ONE, TWO, ONE, message(b"C", b"DEALLOCATE\0"), IDLE)
    assert client.facts.prepared_statements == 0


def test_parameters_come_along(benches: Where) -> None:
    """Values changed since the login are those that are set on servers of the new place; those of `admit` are not."""
    values = [("TimeZone", "UTC"), ("application_name", "a\udcff\u00e9")]
    server = benches[0].server(values)
    client = benches[0].client(values)
    client.say(query("set timezone"))
    server.say(parameter_status("TimeZone", "CET"), TAG, IDLE)
    there = benches[1].server(values)
    client = move(benches, client)
    assert benches[1].engine.parameters(client.id) == dict(values) | {"TimeZone": "CET"}
    client.say(query("x"))
    assert there.heard() == query("SET TimeZone='CET';")


def test_half_a_message_comes_along(benches: Where) -> None:
    """What was read of a message goes with the client; the rest comes to the new place."""
    client = benches[0].client()
    whole = parse("a", "select 1") + use("a")
    client.say(whole[:9])
    assert client.facts.recv_pending == 9
    there = benches[1].server()
    client = move(benches, client)
    client.say(whole[9:])
    assert there.heard() == parse("PGBOUNCER_1", "select 1") + use("PGBOUNCER_1")


def test_a_waiting_client_moves_at_once(benches: Where) -> None:
    """Its request has not gone anywhere yet: it leaves the line and is served at the new place."""
    core = benches[0]
    client = core.client()
    client.say(query("select 1"), query("select 2"))
    assert client.mode == "waiting"
    there = benches[1].server()
    client = move(benches, client)
    assert core.engine.waiting_clients(core.pool_id) == []
    assert core.engine.pool_counts(core.pool_id).cl_waiting == 0
    assert there.heard() == query("select 1") + query("select 2")
    server = core.server()
    assert (server.mode, server.heard()) == ("idle", b"")


def test_a_linked_client_moves_at_its_release(benches: Where) -> None:
    """A transaction is finished where it is; what was pipelined behind it is served at the new place."""
    core = benches[0]
    client, server = core.linked(query("begin"))
    server.say(TAG, BLOCK)
    assert core.engine.emigrate(client.id)
    assert core.engine.emigrate(client.id)
    core.engine.wait(0)
    assert client.mode == "linked"
    client.say(query("commit"))
    server.heard()
    server.say(TAG, IDLE)
    assert (client.mode, server.mode) == ("moving", "idle")
    assert not core.engine.reading(client.id)
    client.say(query("next")[:7])
    assert client.heard() == TAG + BLOCK + TAG + IDLE
    there = benches[1].server()
    client = arrive(benches[1], state_of(core, client.id))
    client.say(query("next")[7:])
    assert there.heard() == query("next")
    assert server.heard() == b""


def test_what_stands_behind_a_release_moves_unread(benches: Where) -> None:
    """A release that waited for the end of a message: the waiter gets the server, and the query behind moves."""
    core = benches[0]
    client, server = core.linked(query("copy"))
    other = core.client()
    other.say(query("other"))
    server.say(message(b"G", b"\0\0\0"))
    late = message(b"d", b"x" * 1000)
    client.say(late[:300])
    server.say(error("22000", "no"), IDLE)
    assert client.mode == "linked"
    assert core.engine.emigrate(client.id)
    client.heard()
    core.engine.received(client.id, late[300:] + query("next"))
    core.engine.wait(0)
    assert server.heard() == late + query("other")
    there = benches[1].server()
    arrive(benches[1], state_of(core, client.id))
    assert there.heard() == query("next")


def test_late_copy_data_is_discarded_on(benches: Where) -> None:
    """A client in the middle of a message that is thrown away goes on with it."""
    client = benches[0].client()
    late = message(b"d", b"x" * 1000)
    client.say(late[:300])
    assert (client.mode, client.facts.recv_pending) == ("parked", 0)
    there = benches[1].server()
    client = move(benches, client)
    client.say(late[300:], query("select 1"))
    assert there.heard() == query("select 1")


def test_unsent_output_goes_first(benches: Where) -> None:
    """A client does not move before all it is owed has been sent."""
    core = benches[0]
    client, server = core.linked(query("select 1"))
    server.say(TAG, IDLE)
    assert core.engine.emigrate(client.id)
    core.engine.wait(0)
    assert not any(event[0] == Event.MOVED for event in core.events())
    assert client.heard() == TAG + IDLE
    state_of(core, client.id)


def test_it_may_end_before_it_moves(benches: Where) -> None:
    """CLOSED, FAULT or `close` instead of MOVED."""
    core = benches[0]
    client, server = core.linked(query("begin"))
    assert core.engine.emigrate(client.id)
    server.leave()
    client.heard()
    core.engine.wait(0)
    assert [event[0] for event in core.events()] == [Event.CLOSED, Event.FAULT]
    client, server = core.linked(query("select 1"))
    server.say(TAG, IDLE)
    core.engine.emigrate(client.id)
    client.leave()
    assert core.events() == [(Event.CLOSED, client.id, "client unexpected eof")]
    client, server = core.linked()
    client.say(query("select 1"))
    server.say(TAG, IDLE)
    core.engine.emigrate(client.id)
    core.engine.close(client.id, b"bye")
    assert client.heard() == TAG + IDLE + b"bye"
    core.engine.wait(0)
    assert core.events() == []


def test_who_cannot_move(core: Bench) -> None:
    """Dialogue, frozen and session-mode links answer False; servers and the dead are errors."""
    fresh = core.fresh_client()
    assert not core.engine.emigrate(fresh.id)
    core.engine.received(fresh.id, b"\xff\xff\xff\xff")
    assert fresh.mode == "frozen"
    assert not core.engine.emigrate(fresh.id)
    core.pool(PoolMode.SESSION)
    client, server = core.linked(query("select 1"))
    server.say(TAG, IDLE)
    assert not core.engine.emigrate(client.id)
    with pytest.raises(RuntimeError):
        core.engine.emigrate(server.id)
    core.engine.close(client.id)
    with pytest.raises(KeyError):
        core.engine.emigrate(client.id)


def test_a_session_client_without_a_server_moves(benches: Where) -> None:
    """Session mode before the first query: nothing holds the client."""
    for bench in benches:
        bench.pool(PoolMode.SESSION)
    client = benches[0].client()
    there = benches[1].server()
    client = move(benches, client)
    client.say(query("select 1"))
    assert there.heard() == query("select 1")


def test_nothing_of_it_stays(benches: Where) -> None:
    """A pool whose last client has moved can be dropped, and its bytes are counted once."""
    core = benches[0]
    client = core.client()
    client.say(query("select 1")[:5])
    client = move(benches, client)
    core.engine.drop_pool(core.pool_id)
    assert benches[1].engine.pool_stats(benches[1].pool_id).client_bytes == 0
    assert benches[1].engine.pool_counts(benches[1].pool_id).cl_parked == 1


def test_bad_states_are_refused(benches: Where) -> None:
    """Cut anywhere, of another version, or with something behind it: ValueError, and no connection."""
    core, other = benches
    client, server = core.linked()
    prepare(client, server, "a", "select 1")
    client.say(parse("", "select 2"), SYNC)
    server.say(ONE, IDLE)
    client.heard()
    client.say(b"Q\0\0")
    core.engine.emigrate(client.id)
    state = state_of(core, client.id)
    bad = [state[:cut] for cut in range(len(state))]
    bad += [state + b"x", state[:4] + b"\x01" + state[5:], state.replace(b"select 1\0", b"select 11")]
    for one in bad:
        with pytest.raises(ValueError, match="state"):
            other.engine.immigrate(-1, 7, one)
    assert other.engine.immigrate(-1, 7, state)


def test_both_kinds_write_the_same() -> None:
    """The state is a format, not a secret of one engine."""
    states = []
    for kind in ("python", "native"):
        bench = Bench(kind, "whole")
        client, server = bench.linked()
        for name in ("b", "a", "ä"):
            prepare(client, server, name, f"select {name!r}")
        client.say(parse("", "select 2", (23,)), SYNC)
        server.say(ONE, IDLE)
        client.heard()
        client.say(b"Q\0\0")
        bench.engine.emigrate(client.id)
        states.append(state_of(bench, client.id))
    assert states[0] == states[1]
    assert states[0].startswith(b"PGSM\x02\0\0\0\0")
