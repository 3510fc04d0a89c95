"""The queue of expected responses: pipelining, Flush, errors up to Sync, FunctionCall, unasked messages."""

from __future__ import annotations

import pytest

from pgshoal.engine.contract import Event
from tests.engine.core.harness import BLOCK, FAILED, IDLE, Bench
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
    parameter_status,
    parse,
    query,
    row_description,
)

ONE, TWO, THREE = b"1\0\0\0\x04", b"2\0\0\0\x04", b"3\0\0\0\x04"
NO_DATA, SUSPENDED, EMPTY = b"n\0\0\0\x04", b"s\0\0\0\x04", b"I\0\0\0\x04"
PARAMETERS = message(b"t", b"\0\0")
ERROR = error("22012", "division by zero")


@pytest.fixture
def plain(core: Bench) -> Bench:
    """A pool in transaction mode without tracking, so that everything is forwarded as it is."""
    core.pool(prepared=0)
    return core


def test_a_batch_is_answered_in_order(plain: Bench) -> None:
    """Every kind of request of one batch takes its own answer, and the link ends with the last."""
    batch = (
        parse("a", "select"),
        describe("S", "a"),
        bind("a", "p"),
        describe("P", "p"),
        execute("p"),
        close("P", "p"),
        SYNC,
    )
    client, server = plain.linked(*batch)
    assert client.facts.queue_length == 7
    answer = ONE + PARAMETERS + row_description("x") + TWO + NO_DATA + data_row("1") + command_complete("SELECT 1")
    server.say(answer, THREE)
    assert (client.facts.queue_length, client.mode) == (1, "linked")
    server.say(IDLE)
    assert client.heard() == answer + THREE + IDLE
    assert client.mode == "parked"


def test_two_pipelined_batches(plain: Bench) -> None:
    """ReadyForQuery of the first batch releases nothing while the second is under way."""
    batch = parse("", "select") + bind("", "") + execute() + SYNC
    client, server = plain.linked(batch, batch)
    server.say(ONE, TWO, command_complete("SELECT 0"), IDLE)
    assert client.mode == "linked"
    server.say(ONE, TWO, command_complete("SELECT 0"), IDLE)
    assert client.mode == "parked"


def test_portals_live_across_flush(plain: Bench) -> None:
    """After Flush the queue is empty, but the server stays until Sync."""
    first = parse("", "select") + bind("", "c") + describe("P", "c") + FLUSH
    client, server = plain.linked(first)
    other = plain.client()
    server.say(ONE, TWO, row_description("x"))
    assert (client.facts.queue_length, client.mode) == (0, "linked")
    other.say(query("select 1"))
    assert other.mode == "waiting"
    for _ in range(2):
        client.say(execute("c", 10), FLUSH)
        assert server.heard() == execute("c", 10) + FLUSH
        server.say(data_row("1"), SUSPENDED)
    client.say(SYNC)
    assert server.heard() == SYNC
    server.say(IDLE)
    assert client.mode == "parked"
    assert server.heard() == query("select 1")


def test_empty_query(plain: Bench) -> None:
    """EmptyQueryResponse ends an Execute and passes in a Query."""
    client, server = plain.linked(parse("", ""), bind("", ""), execute(), SYNC, query(""))
    server.say(ONE, TWO, EMPTY, IDLE, EMPTY, IDLE)
    assert client.mode == "parked"


def test_an_error_drops_to_the_sync(plain: Bench) -> None:
    """Requests between the failed one and its Sync are expected no more."""
    client, server = plain.linked(parse("", "x"), bind("", ""), execute(), SYNC, query("next"))
    server.say(ERROR, IDLE)
    assert client.facts.queue_length == 1
    server.say(command_complete("X"), IDLE)
    assert client.heard() == ERROR + IDLE + command_complete("X") + IDLE
    assert client.mode == "parked"


def test_an_error_before_the_sync_arrives(plain: Bench) -> None:
    """Without a Sync in the queue the client's messages are dropped until it sends one."""
    client, server = plain.linked(parse("", "x"), FLUSH)
    server.say(ERROR)
    client.say(bind("", ""), execute(), query("dropped"), message(b"d", b"x" * 5000), b"Q\0\0\x20\0" + b"y" * 8188)
    assert server.heard() == b""
    client.say(SYNC)
    assert server.heard() == SYNC
    server.say(IDLE)
    assert client.mode == "parked"


def test_an_error_of_a_query_waits_for_ready(plain: Bench) -> None:
    """ErrorResponse inside a simple Query ends with its ReadyForQuery; a pipelined Query stays expected."""
    client, server = plain.linked(query("a"), query("b"))
    server.say(data_row("1"), ERROR, IDLE)
    assert client.facts.queue_length == 1
    server.say(command_complete("X"), IDLE)
    assert client.mode == "parked"


def test_an_error_of_a_sync(plain: Bench) -> None:
    """The commit at Sync may fail: the error passes, ReadyForQuery follows."""
    client, server = plain.linked(query("x"), SYNC)
    server.say(command_complete("X"), IDLE, ERROR, IDLE)
    assert client.heard() == command_complete("X") + IDLE + ERROR + IDLE
    assert client.mode == "parked"


def test_function_call(plain: Bench) -> None:
    """FunctionCall is answered by its response and ReadyForQuery."""
    call = message(b"F", b"\0\0\0\x01\0\0\0\0\0\0")
    client, server = plain.linked(call)
    answer = message(b"V", b"\0\0\0\x011") + IDLE
    server.say(answer)
    assert client.heard() == answer
    assert client.mode == "parked"


def test_unasked_messages_pass_at_any_time(plain: Bench) -> None:
    """Notices, notifications and reports pass between and inside answers, also with an empty queue."""
    notice, notify = message(b"N", b"x" * 300), message(b"A", b"\0\0\0\x01c\0p\0")
    client, server = plain.linked(query("begin"))
    server.say(notice, command_complete("BEGIN"), notify, BLOCK, notice, parameter_status("TimeZone", "CET"), notify)
    assert client.heard() == (
        notice + command_complete("BEGIN") + notify + BLOCK + notice + parameter_status("TimeZone", "CET") + notify
    )
    assert plain.engine.parameters(client.id) == {"TimeZone": "CET"}
    assert client.mode == "linked"


def test_a_fatal_error_without_a_request(plain: Bench) -> None:
    """An error with nothing expected is passed on."""
    client, server = plain.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    client.heard()
    server.say(error("57P01", "bye", "FATAL"))
    assert client.heard() == error("57P01", "bye", "FATAL")
    assert client.mode == "linked"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (query("x"), ONE),
        (query("x"), PARAMETERS),
        (query("x"), SUSPENDED),
        (parse("", "x") + SYNC, TWO),
        (parse("", "x") + SYNC, IDLE),
        (parse("", "x") + SYNC, data_row("1")),
        (describe("S", "") + SYNC, NO_DATA),
        (describe("P", "") + SYNC, PARAMETERS),
        (execute() + SYNC, ONE),
        (execute() + SYNC, row_description("x")),
        (execute() + SYNC, IDLE),
        (query("x"), message(b"R", b"\0\0\0\0")),
        (query("x"), message(b"K", b"12345678")),
        (query("x"), message(b"!", b"")),
        (message(b"F", b"x"), data_row("1")),
    ],
)
def test_answers_nobody_expects(plain: Bench, asked: bytes, said: bytes) -> None:
    """A message the head of the queue does not allow closes the server and is not passed on."""
    client, server = plain.linked(asked)
    server.say(said)
    assert client.heard() == b""
    assert plain.events() == [
        (Event.CLOSED, server.id, "unknown pkt from server"),
        (Event.FAULT, client.id, "server_closed", "unknown pkt from server"),
    ]


def test_ready_twice(plain: Bench) -> None:
    """ReadyForQuery with an empty queue inside a transaction closes the server."""
    client, server = plain.linked(query("begin"))
    server.say(BLOCK)
    server.say(FAILED)
    assert client.heard() == BLOCK
    assert plain.events()[0] == (Event.CLOSED, server.id, "unknown pkt from server")


def test_disable_pqexec(core: Bench) -> None:
    """Simple queries are refused, parked or linked, before anything reaches a server."""
    core.limits(disable_pqexec=True)
    core.pool(prepared=0)
    client, server = core.linked(parse("", "x"))
    parked = core.client()
    client.say(query("x"))
    parked.say(query("x"))
    assert (Event.FAULT, client.id, "pqexec_disallowed", "") in core.events()
    assert parked.mode == "frozen"
    assert server.mode == "gone" or server.mode == "closing"
