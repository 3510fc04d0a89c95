"""`cached plan must not change result type`: who is told, who gets the new plan, and the batch that is sent again."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.engine.core.harness import BLOCK, FAILED, IDLE, Bench, Peer
from tests.engine.core.test_prepared import NO_DATA, ONE, PARAMETERS, TAG, TWO, name, prepare, use
from tests.support.messages import (
    FLUSH,
    SYNC,
    bind,
    close,
    command_complete,
    data_row,
    describe,
    error,
    execute,
    message,
    parse,
    query,
    row_description,
    text,
)

CHANGED = error("0A000", "cached plan must not change result type")
TRANSLATED = message(b"E", text(b"SFEHLER", b"VERROR", b"C0A000", b"Manders", b"RRevalidateCachedQuery") + b"\0")
SQL = "select * from t"
BEGIN = command_complete("BEGIN")
ROWS = TWO + row_description("x") + data_row("1") + TAG + IDLE


def whole(statement: str, portal: str = "", values: tuple[bytes | None, ...] = ()) -> bytes:
    """Bind, Describe, Execute, Sync: what libpq sends."""
    return bind(statement, portal, values) + describe("P", portal) + execute(portal) + SYNC


def formatted(statement: str, *formats: int) -> bytes:
    """A Bind with result formats."""
    return message(b"B", text("", statement) + struct.pack(f"!hhh{len(formats)}h", 0, 0, len(formats), *formats))


def asked(client: Peer, server: Peer, *messages: bytes) -> bytes:
    """What the server hears of that."""
    client.say(*messages)
    return server.heard()


def told(client: Peer, server: Peer) -> None:
    """The client learns by an error that its statement `a` has changed."""
    assert asked(client, server, use("a")) == use(name(1))
    server.say(CHANGED, IDLE)
    assert client.heard() == CHANGED + IDLE


def test_the_client_that_was_told_gets_the_new_plan(core: Bench) -> None:
    """After the error the same name stands for a statement that is parsed anew; other names are what they were."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    prepare(client, server, "b", "other")
    told(client, server)
    assert asked(client, server, use("a")) == parse(name(3), SQL) + use(name(3))
    server.say(ONE, TWO, TAG, IDLE)
    assert client.heard() == TWO + TAG + IDLE
    assert asked(client, server, use("b")) == use(name(2))


def test_a_translated_error(core: Bench) -> None:
    """The error is known by PostgreSQL's function where its words are not English."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, use("a"))
    server.say(TRANSLATED, IDLE)
    assert client.heard() == TRANSLATED + IDLE
    assert asked(client, server, use("a")) == parse(name(2), SQL) + use(name(2))


def test_a_client_that_was_not_told_keeps_the_old_plan(core: Bench) -> None:
    """Another client may remember what the statement returned: it gets the error itself, then the new plan."""
    one, server = core.linked()
    two = core.client()
    prepare(one, server, "a", SQL)
    assert asked(two, server, parse("a", SQL), SYNC) == SYNC
    server.say(IDLE)
    two.heard()
    told(one, server)
    assert asked(one, server, use("a")).startswith(parse(name(2), SQL))
    server.say(ONE, TWO, TAG, IDLE)
    told(two, server)
    assert asked(two, server, use("a")) == use(name(2))


def test_who_prepares_afterwards_gets_the_new_plan(core: Bench) -> None:
    """A Parse of the text gets the new statement, on every server; a change of that one makes a third."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    told(client, server)
    assert asked(client, server, parse("b", SQL), SYNC) == parse(name(2), SQL) + SYNC
    server.say(ONE, IDLE)
    other = core.client()
    assert asked(other, server, parse("x", SQL), use("x")) == use(name(2))
    server.say(CHANGED, IDLE)
    assert other.heard() == ONE + CHANGED + IDLE
    assert asked(other, server, use("x")) == parse(name(3), SQL) + use(name(3))


def test_another_pool_is_not_concerned(core: Bench) -> None:
    """The same text in another pool, which has other tables, goes on as it was."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    told(client, server)
    core.pool()
    client, server = core.linked()
    assert asked(client, server, parse("a", SQL), SYNC) == parse(name(1), SQL) + SYNC


@pytest.mark.parametrize("given", [CHANGED, TRANSLATED])
@pytest.mark.parametrize("portal", ["", "p"])
def test_a_batch_is_sent_again(core: Bench, given: bytes, portal: str) -> None:
    """Outside a transaction a batch with its own description is sent again; the client sees the good answer only."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    assert asked(client, server, whole("a", portal)) == whole(name(1), portal)
    core.tick(1)
    server.say(given)
    assert client.heard() == server.heard() == b""
    server.say(IDLE)
    assert client.heard() == b""
    assert server.heard() == parse(name(2), SQL) + whole(name(2), portal)
    core.tick(1)
    server.say(ONE, ROWS)
    assert client.heard() == ROWS
    assert (server.mode, client.mode) == ("idle", "parked")
    stats = core.engine.pool_stats(core.pool_id)
    assert (stats.query_count, stats.xact_count, stats.bind_count) == (2, 2, 1)
    assert (stats.query_time_us, stats.xact_time_us, stats.server_parse_count) == (2_000_000, 2_000_000, 2)


@pytest.mark.parametrize("value", [b"17", b"x" * 8140])
def test_a_batch_with_typed_parameters(core: Bench, value: bytes) -> None:
    """Values whose types the client gave with the text mean the same to the new plan."""
    client, server = core.linked()
    client.say(parse("a", SQL, (23, 25)), SYNC)
    server.heard()
    server.say(ONE, IDLE)
    client.heard()
    batch = whole("a", values=(value, None))
    asked(client, server, batch)
    server.say(CHANGED, IDLE)
    assert server.heard() == parse(name(2), SQL, (23, 25)) + whole(name(2), values=(value, None))


@pytest.mark.parametrize(
    ("types", "batch"),
    [
        pytest.param((), use("a"), id="no description"),
        pytest.param((), bind("a") + describe("P", "other") + execute() + SYNC, id="another portal is described"),
        pytest.param((), bind("a") + describe("P", "") + execute("other") + SYNC, id="another portal is executed"),
        pytest.param((), bind("a") + describe("P", "") + execute() * 2 + SYNC, id="executed twice"),
        pytest.param((), bind("a") + describe("P", "") + execute() + FLUSH + SYNC, id="flushed"),
        pytest.param((), bind("a") + execute() + describe("P", "") + SYNC, id="described late"),
        pytest.param((), whole("a", values=(b"1",)), id="types of parameters are not given"),
        pytest.param((0,), whole("a", values=(b"1",)), id="types of parameters are left open"),
        pytest.param((705,), whole("a", values=(b"1",)), id="types of parameters are unknown"),
        pytest.param((25,), whole("a", values=(b"x" * 9000,)), id="too long"),
        pytest.param((25,), whole("a", values=(b"x" * 8160,)), id="too long all together"),
        pytest.param((), formatted("a", 0, 1) + describe("P", "") + execute() + SYNC, id="a format for each column"),
        pytest.param((), whole("a") + whole("a"), id="another batch behind"),
        pytest.param((), whole("a") + query("x"), id="a query behind"),
    ],
)
def test_a_batch_that_gets_the_error(core: Bench, types: tuple[int, ...], batch: bytes) -> None:
    """If the client may not learn the new description, or anything else is in doubt, it gets the error."""
    client, server = core.linked()
    client.say(parse("a", SQL, types), SYNC)
    server.heard()
    server.say(ONE, IDLE)
    client.heard()
    asked(client, server, batch)
    server.say(CHANGED)
    assert client.heard() == CHANGED
    server.say(IDLE)
    assert client.heard() == IDLE
    assert server.heard() == b""


@pytest.mark.parametrize("begun", [query("begin"), parse("", "begin") + bind("") + execute() + FLUSH])
def test_a_batch_that_is_not_alone(core: Bench, begun: bytes) -> None:
    """What comes behind another request, answered or not, gets the error: it may belong to what was done before."""
    for answered in (False, True):
        client, server = core.linked()
        client.say(parse("a", f"{SQL} {answered}"), SYNC)
        server.heard()
        server.say(ONE, IDLE)
        client.heard()
        client.say(begun)
        answers = BEGIN + BLOCK if begun[:1] == b"Q" else ONE + TWO + BEGIN
        if answered:
            server.say(answers)
        client.say(whole("a"))
        if not answered:
            server.say(answers)
        assert client.heard() == answers
        server.heard()
        server.say(CHANGED)
        assert client.heard() == CHANGED
        server.say(FAILED)
        assert client.heard() == FAILED


def test_a_batch_behind_a_parse_of_ours(core: Bench) -> None:
    """A statement that was parsed just before is not parsed once more."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    server.leave()
    server = core.server()
    assert asked(client, server, whole("a")) == parse(name(1), SQL) + whole(name(1))
    server.say(ONE, CHANGED)
    assert client.heard() == CHANGED


def test_something_was_said_before_the_error(core: Bench) -> None:
    """A notice is a part of the answer: what follows it is not taken back."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    notice = message(b"N", b"note\0")
    server.say(notice, CHANGED, IDLE)
    assert client.heard() == notice + CHANGED + IDLE


@pytest.mark.parametrize("ready", [BLOCK, FAILED])
def test_an_impossible_end_brings_the_error_after_all(core: Bench, ready: bytes) -> None:
    """If the failed batch leaves a transaction behind, nothing is sent again."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED, ready)
    assert client.heard() == CHANGED + ready
    assert server.heard() == b""


@pytest.mark.parametrize(("request_", "answers"), [(query("x"), TAG + IDLE), (SYNC, IDLE)])
def test_a_request_before_the_end_brings_the_error_after_all(core: Bench, request_: bytes, answers: bytes) -> None:
    """What the client has sent meanwhile would overtake the batch; so the error comes, in its place."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED)
    assert client.heard() == b""
    assert asked(client, server, request_) == request_
    server.say(IDLE, answers)
    assert client.heard() == CHANGED + IDLE + answers


def test_a_notice_before_the_end(core: Bench) -> None:
    """It is passed on when it comes, and so is the error then."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    note = message(b"N", b"note\0")
    server.say(CHANGED, note)
    assert client.heard() == note
    server.say(IDLE)
    assert client.heard() == CHANGED + IDLE


def test_a_pipeline_behind_a_batch_that_was_sent_again(core: Bench) -> None:
    """The Parse that waits in front of a Sync may yet fail: what comes behind that Sync does not rely on it."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED, IDLE)
    server.heard()
    assert asked(client, server, use("a")) == close("S", name(2)) + parse(name(2), SQL) + use(name(2))


def test_a_batch_is_sent_again_once(core: Bench) -> None:
    """If the new plan is refused, too, the client gets that error."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED, IDLE)
    assert server.heard() == parse(name(2), SQL) + whole(name(2))
    server.say(ONE, CHANGED, IDLE)
    assert client.heard() == CHANGED + IDLE
    assert asked(client, server, use("a")) == parse(name(3), SQL) + use(name(3))


def test_the_new_parse_fails(core: Bench) -> None:
    """An error of the Parse that was put in front is the client's answer."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED, IDLE)
    gone = error("42P01", "no such table")
    server.say(gone, IDLE)
    assert client.heard() == gone + IDLE
    assert (server.mode, client.mode) == ("idle", "parked")


def test_a_client_that_leaves_between(core: Bench) -> None:
    """A server whose client has left before the batch was sent again is closed."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, whole("a"))
    server.say(CHANGED)
    client.leave()
    assert server.mode in ("gone", "closing")


def stale_and_known(core: Bench, *types: int) -> tuple[Peer, Peer]:
    """A client that was not told, in a transaction, on a server that has both plans of its statement `a`."""
    one, server = core.linked()
    two = core.client()
    asked(one, server, parse("a", SQL, types), SYNC)
    server.say(ONE, IDLE)
    one.heard()
    asked(two, server, parse("a", SQL, types), SYNC)
    server.say(IDLE)
    two.heard()
    told(one, server)
    asked(one, server, use("a"))
    server.say(ONE, TWO, TAG, IDLE)
    asked(two, server, query("begin"))
    server.say(BEGIN, BLOCK)
    two.heard()
    return two, server


def test_who_describes_in_a_transaction_is_spared(core: Bench) -> None:
    """Once the change is known, a Bind with a Describe of its portal behind it uses the new plan at once."""
    client, server = stale_and_known(core, 25)
    assert asked(client, server, whole("a", "p", (b"x",))) == whole(name(2), "p", (b"x",))


@pytest.mark.parametrize(
    ("types", "batch"),
    [
        pytest.param((), use, id="no description"),
        pytest.param((), lambda statement: bind(statement) + describe("P", "q") + SYNC, id="of another portal"),
        pytest.param((), lambda statement: whole(statement, values=(b"1",)), id="types of parameters are not given"),
        pytest.param((25,), lambda statement: whole(statement, values=(b"x" * 9000,)), id="too long"),
    ],
)
def test_who_does_not_describe_in_a_transaction_is_told(
    core: Bench, types: tuple[int, ...], batch: Callable[[str], bytes]
) -> None:
    """Without a Describe, or with parameters of unknown types, the old plan is used, and refused."""
    client, server = stale_and_known(core, *types)
    assert asked(client, server, batch("a")) == batch(name(1))
    server.say(CHANGED, FAILED)
    assert client.heard() == CHANGED + FAILED


def test_who_asks_for_a_description_is_spared(core: Bench) -> None:
    """Describe of a statement is about the new plan, and so is what follows."""
    client, server = stale_and_known(core)
    assert asked(client, server, describe("S", "a"), SYNC) == describe("S", name(2)) + SYNC
    server.say(PARAMETERS, NO_DATA, BLOCK)
    assert asked(client, server, use("a")) == use(name(2))


def test_an_error_of_describe(core: Bench) -> None:
    """The error of a Describe is passed on behind what came before it; the next one is about the new plan."""
    client, server = core.linked()
    prepare(client, server, "a", SQL)
    asked(client, server, describe("S", "a"), SYNC)
    server.say(PARAMETERS, CHANGED, IDLE)
    assert client.heard() == PARAMETERS + CHANGED + IDLE
    assert asked(client, server, describe("S", "a"), SYNC) == parse(name(2), SQL) + describe("S", name(2)) + SYNC
