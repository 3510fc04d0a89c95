"""COPY in, out and both: early Sync, late data, errors, and what must not reach the next client."""

from __future__ import annotations

import pytest

from tests.engine.core.harness import BLOCK, IDLE, Bench
from tests.support.messages import COPY_DONE, FLUSH, SYNC, bind, command_complete, error, execute, message, parse, query

COPY_IN, COPY_OUT, COPY_BOTH = (message(kind, b"\0\0\0") for kind in (b"G", b"H", b"W"))
ROW = message(b"d", b"1\tone\n")
FAIL = message(b"f", b"no\0")
ERROR = error("23505", "duplicate key")
DONE = command_complete("COPY 2")
ONE, TWO = b"1\0\0\0\x04", b"2\0\0\0\x04"


@pytest.fixture
def plain(core: Bench) -> Bench:
    """A pool without tracking."""
    core.pool(prepared=0)
    return core


def test_copy_in(plain: Bench) -> None:
    """Rows go to the server, which stays linked until the end."""
    client, server = plain.linked(query("copy t from stdin"))
    server.say(COPY_IN)
    client.say(ROW, ROW, COPY_DONE)
    assert server.heard() == ROW + ROW + COPY_DONE
    assert client.mode == "linked"
    server.say(DONE, IDLE)
    assert client.heard() == COPY_IN + DONE + IDLE
    assert client.mode == "parked"


def test_copy_out(plain: Bench) -> None:
    """Rows come from the server and end with CopyDone and the tag."""
    client, server = plain.linked(query("copy t to stdout"))
    server.say(COPY_OUT, ROW, ROW, COPY_DONE, DONE, IDLE)
    assert client.heard() == COPY_OUT + ROW + ROW + COPY_DONE + DONE + IDLE
    assert client.mode == "parked"


def test_copy_both(plain: Bench) -> None:
    """Both sides stream and both end."""
    client, server = plain.linked(query("START_REPLICATION"))
    server.say(COPY_BOTH, ROW)
    client.say(ROW, COPY_DONE)
    assert server.heard() == ROW + COPY_DONE
    server.say(COPY_DONE, DONE, IDLE)
    assert client.mode == "parked"


def test_the_sync_sent_ahead_is_not_answered(plain: Bench) -> None:
    """An extended COPY: the Sync behind Execute is ignored by the server, the one after CopyDone is answered."""
    client, server = plain.linked(parse("", "copy"), bind("", ""), execute(), SYNC)
    server.say(ONE, TWO, COPY_IN)
    assert client.facts.queue_length == 1
    client.say(ROW, COPY_DONE, SYNC)
    assert server.heard() == ROW + COPY_DONE + SYNC
    server.say(DONE, IDLE)
    assert client.mode == "parked"


def test_sync_and_flush_in_copy_are_dropped(plain: Bench) -> None:
    """Sync and Flush before CopyDone are not forwarded."""
    client, server = plain.linked(query("copy"))
    server.say(COPY_IN)
    client.say(ROW, SYNC, FLUSH, ROW, COPY_DONE)
    assert server.heard() == ROW + ROW + COPY_DONE
    server.say(DONE, IDLE)
    assert client.mode == "parked"


def test_copy_fails_while_rows_are_under_way(plain: Bench) -> None:
    """After the server's error, rows and the end of COPY are thrown away, and the next client is served clean."""
    client, server = plain.linked(query("copy"))
    other = plain.client()
    other.say(query("select 1"))
    server.say(COPY_IN)
    client.say(ROW, ROW)
    server.heard()
    server.say(ERROR, IDLE)
    client.say(ROW, ROW, COPY_DONE)
    assert server.heard() == query("select 1")
    assert client.heard() == COPY_IN + ERROR + IDLE
    assert client.mode == "parked"


@pytest.mark.parametrize("end", [COPY_DONE, FAIL])
def test_the_end_crosses_the_error(plain: Bench, end: bytes) -> None:
    """CopyDone or CopyFail forwarded before the error arrives is expected no more."""
    client, server = plain.linked(query("copy"))
    server.say(COPY_IN)
    client.say(ROW, end)
    server.say(ERROR, IDLE)
    assert client.mode == "parked"


def test_extended_copy_fails(plain: Bench) -> None:
    """In the extended protocol everything is dropped until the client's Sync."""
    client, server = plain.linked(parse("", "copy"), bind("", ""), execute(), SYNC)
    server.say(ONE, TWO, COPY_IN, ERROR)
    client.say(ROW, COPY_DONE)
    server.heard()
    client.say(SYNC)
    assert server.heard() == SYNC
    server.say(IDLE)
    assert client.mode == "parked"


def test_late_rows_in_a_transaction(plain: Bench) -> None:
    """Rows behind a finished COPY, with the link still there, are dropped."""
    client, server = plain.linked(query("copy"))
    server.say(COPY_IN, ERROR, message(b"Z", b"E"))
    server.heard()
    client.say(ROW, COPY_DONE, FAIL)
    assert server.heard() == b""
    client.say(query("rollback"))
    assert server.heard() == query("rollback")


def test_released_inside_a_late_row(plain: Bench) -> None:
    """ReadyForQuery inside a row that is being forwarded releases only when the row has ended."""
    client, server = plain.linked(query("copy"))
    server.say(COPY_IN)
    client.say(ROW[:8])
    server.say(ERROR, IDLE)
    assert client.mode == "linked"
    client.say(ROW[8:])
    assert server.heard() == ROW
    assert (client.mode, server.mode) == ("parked", "idle")


def test_another_request_in_copy_in(plain: Bench) -> None:
    """The server eats a request inside COPY with an error; the Sync behind it is answered."""
    client, server = plain.linked(parse("", "copy"), bind("", ""), execute())
    server.say(ONE, TWO, COPY_IN)
    client.say(ROW, parse("", "x"), SYNC)
    assert server.heard() == ROW + parse("", "x") + SYNC
    server.say(ERROR, IDLE)
    assert client.mode == "parked"


def test_a_request_sent_before_copy_began(plain: Bench) -> None:
    """A Query pipelined behind COPY is eaten too: it has no answer of its own."""
    client, server = plain.linked(query("copy"), query("select 1"))
    server.say(COPY_IN, ERROR, IDLE)
    assert client.mode == "parked"


def test_two_copies_in_one_query(plain: Bench) -> None:
    """Each COPY of a multi-statement Query has its own end."""
    client, server = plain.linked(query("copy a; copy b"))
    server.say(COPY_IN)
    client.say(COPY_DONE)
    server.say(DONE, COPY_IN)
    client.say(ROW, SYNC, COPY_DONE)
    assert server.heard() == COPY_DONE + ROW + COPY_DONE
    server.say(DONE, IDLE)
    assert client.mode == "parked"


def test_copy_in_a_transaction(plain: Bench) -> None:
    """After COPY in a block, the link goes on."""
    client, server = plain.linked(query("copy"))
    server.say(COPY_IN)
    client.say(COPY_DONE)
    server.say(DONE, BLOCK)
    assert (client.mode, client.facts.queue_length) == ("linked", 0)
