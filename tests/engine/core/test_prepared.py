"""Prepared statements: internal names, skipped and injected requests, eviction, resets, DEALLOCATE, undo."""

from __future__ import annotations

import pytest

from pgshoal.engine.contract import PoolMode
from tests.engine.core.harness import BLOCK, FAILED, IDLE, Bench, Peer
from tests.support.messages import (
    SYNC,
    bind,
    close,
    command_complete,
    describe,
    error,
    execute,
    message,
    parse,
    query,
    row_description,
)

ONE, TWO, THREE = b"1\0\0\0\x04", b"2\0\0\0\x04", b"3\0\0\0\x04"
NO_DATA = b"n\0\0\0\x04"
PARAMETERS = message(b"t", b"\0\0")
TAG = command_complete("SELECT 1")
VOID = parse("PGBOUNCER_VOID", "")
ERROR = error("42P01", "no such table")


def name(number: int) -> str:
    """An internal name."""
    return f"PGBOUNCER_{number}"


def use(statement: str) -> bytes:
    """Bind, Execute, Sync."""
    return bind(statement) + execute() + SYNC


def prepare(client: Peer, server: Peer, statement: str, text: str) -> None:
    """Parses and syncs a statement the server does not have, with its answers."""
    client.say(parse(statement, text), SYNC)
    assert server.heard().endswith(SYNC)
    server.say(ONE, IDLE)
    assert client.heard() == ONE + IDLE


def test_names_are_rewritten(core: Bench) -> None:
    """Parse, Bind and Describe go to the server under the internal name."""
    client, server = core.linked()
    client.say(parse("a", "select 1", (23,)), describe("S", "a"), use("a"))
    assert server.heard() == parse(name(1), "select 1", (23,)) + describe("S", name(1)) + use(name(1))
    server.say(ONE, PARAMETERS, row_description("x"), TWO, TAG, IDLE)
    assert client.heard() == ONE + PARAMETERS + row_description("x") + TWO + TAG + IDLE
    assert (client.facts.prepared_statements, server.facts.prepared_statements) == (1, 1)


def test_a_known_statement_is_not_parsed_again(core: Bench) -> None:
    """Another client's Parse of the same text is answered in its place of the batch."""
    first, server = core.linked()
    prepare(first, server, "a", "select 1")
    second = core.client()
    second.say(query("begin"), parse("b", "select 1"), use("b"))
    assert server.heard() == query("begin") + use(name(1))
    assert second.heard() == b""
    server.say(command_complete("BEGIN"), BLOCK, TWO, TAG, BLOCK)
    assert second.heard() == command_complete("BEGIN") + BLOCK + ONE + TWO + TAG + BLOCK


def test_types_make_a_statement_of_their_own(core: Bench) -> None:
    """The same text with other parameter types is another statement."""
    client, server = core.linked()
    client.say(parse("a", "select $1", (23,)), parse("b", "select $1", (25,)), parse("c", "select $1", (23,)), SYNC)
    assert server.heard() == parse(name(1), "select $1", (23,)) + parse(name(2), "select $1", (25,)) + SYNC
    server.say(ONE, ONE, IDLE)
    assert client.heard() == ONE * 3 + IDLE


def test_the_same_name_in_two_sessions(core: Bench) -> None:
    """Two clients use one name for different texts."""
    first, server = core.linked()
    prepare(first, server, "S_1", "begin")
    second = core.client()
    prepare(second, server, "S_1", "insert")
    first.say(use("S_1"))
    assert server.heard() == use(name(1))
    server.say(TWO, TAG, IDLE)
    second.say(use("S_1"))
    assert server.heard() == use(name(2))


def test_parse_is_replayed_on_another_server(core: Bench) -> None:
    """Describe and Bind on a server that lacks the statement inject its Parse and swallow the answer."""
    client, first = core.linked()
    prepare(client, first, "q", "select 1")
    blocker = core.client()
    blocker.say(query("begin"))
    first.heard()
    second = core.server()
    client.say(describe("S", "q"), SYNC)
    assert second.heard() == parse(name(1), "select 1") + describe("S", name(1)) + SYNC
    second.say(ONE, PARAMETERS, NO_DATA, IDLE)
    assert client.heard() == PARAMETERS + NO_DATA + IDLE


def test_an_unknown_name_is_the_servers_business(core: Bench) -> None:
    """Bind of a name that was never parsed is forwarded unchanged: it may be an SQL PREPARE."""
    client, server = core.linked(query("prepare x as select 1"))
    server.say(command_complete("PREPARE"), BLOCK)
    client.say(use("x"))
    assert server.heard() == use("x")


def test_a_mapped_name_again(core: Bench) -> None:
    """A second Parse of a name reaches the server, which refuses it; the first stays usable."""
    client, server = core.linked()
    prepare(client, server, "a", "select 1")
    client.say(parse("a", "select 2"), SYNC)
    assert server.heard() == parse(name(1), "select 2") + SYNC
    server.say(error("42P05", "exists"), IDLE)
    client.say(use("a"))
    assert server.heard() == use(name(1))


def test_a_failed_parse_leaves_nothing(core: Bench) -> None:
    """After an error the same name and text are parsed anew."""
    client, server = core.linked()
    client.say(parse("a", "bad"), SYNC)
    assert server.heard() == parse(name(1), "bad") + SYNC
    server.say(ERROR, IDLE)
    assert (client.facts.prepared_statements, server.facts.prepared_statements) == (0, 0)
    client.say(parse("a", "bad"), use("a"))
    assert server.heard() == parse(name(2), "bad") + use(name(2))
    server.say(ONE, TWO, TAG, IDLE)
    assert client.heard() == ERROR + IDLE + ONE + TWO + TAG + IDLE


def test_a_client_that_vanishes_before_sync(core: Bench) -> None:
    """Its server is closed, so nothing half-prepared is left behind."""
    client, server = core.linked()
    client.say(parse("a", "select 1"))
    server.heard()
    client.leave()
    assert server.mode != "idle"
    other_server = core.server()
    other = core.client()
    other.say(parse("a", "select 1"), use("a"))
    assert other_server.heard().startswith(b"P")


def test_close_after_a_failed_parse(core: Bench) -> None:
    """Closing an unknown name is no error, parked or linked."""
    client, server = core.linked()
    client.say(parse("x", "bad"), SYNC)
    server.say(ERROR, IDLE)
    server.heard()
    client.heard()
    client.say(close("S", "x"), SYNC)
    assert client.heard() == THREE + IDLE
    assert server.heard() == b""


def test_close_keeps_its_place(core: Bench) -> None:
    """A Close inside a batch is answered after what stands before it."""
    client, server = core.linked()
    prepare(client, server, "a", "select 1")
    client.say(bind("a"), close("S", "a"), execute(), SYNC)
    assert server.heard() == bind(name(1)) + execute() + SYNC
    server.say(TWO)
    assert client.heard() == TWO + THREE
    server.say(TAG, IDLE)
    client.say(bind("a"), SYNC)
    assert server.heard() == bind("a") + SYNC


def test_a_skipped_answer_waits_for_the_whole_message_before_it(core: Bench) -> None:
    """CloseComplete never falls inside a RowDescription that comes in pieces."""
    client, server = core.linked()
    prepare(client, server, "a", "select 1")
    client.say(describe("S", "a"), close("S", "a"), SYNC)
    row = row_description("a_long_name", "another")
    core.engine.received(server.id, PARAMETERS + row[:9])
    core.engine.received(server.id, row[9:])
    server.say(IDLE)
    assert client.heard() == PARAMETERS + row + THREE + IDLE


def test_a_skipped_answer_waits_for_what_nobody_asked_for(core: Bench) -> None:
    """CloseComplete never falls inside a notification that comes in pieces, though nothing stood before it."""
    client, server = core.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    client.heard()
    call = message(b"A", b"\0\0\0\x01channel\0text\0")
    core.engine.received(server.id, call[:9])
    client.say(close("S", "a"))
    assert client.heard() == call[:9]
    core.engine.received(server.id, call[9:])
    assert client.heard() == call[9:] + THREE


def test_an_undone_close(core: Bench) -> None:
    """A Close that the server never saw, behind an error, gives the name back."""
    client, server = core.linked()
    prepare(client, server, "a", "select 1")
    client.say(bind("nope"), close("S", "a"), SYNC)
    server.say(error("26000", "no"), IDLE)
    server.heard()
    client.say(use("a"))
    assert server.heard() == use(name(1))


def test_eviction(core: Bench) -> None:
    """The least recently used goes when the cache is full, by a Close whose answer is swallowed."""
    core.pool(prepared=2)
    client, server = core.linked()
    prepare(client, server, "a", "A")
    prepare(client, server, "b", "B")
    client.say(use("a"))
    server.say(TWO, TAG, IDLE)
    server.heard()
    client.heard()
    client.say(parse("c", "C"), SYNC)
    assert server.heard() == parse(name(3), "C") + close("S", name(2)) + SYNC
    server.say(ONE, THREE, IDLE)
    assert client.heard() == ONE + IDLE
    client.say(use("b"))
    assert server.heard() == parse(name(2), "B") + close("S", name(1)) + use(name(2))


def test_an_undone_eviction(core: Bench) -> None:
    """An eviction skipped by an error leaves the statement known."""
    core.pool(prepared=1)
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(bind("nope"), parse("b", "B"), SYNC)
    server.heard()
    server.say(error("26000", "no"), IDLE)
    client.say(use("a"))
    assert server.heard() == use(name(1))


def test_one_statement_and_a_batch_of_two(core: Bench) -> None:
    """With room for one, a batch that uses two still works."""
    core.pool(prepared=1)
    client, server = core.linked()
    client.say(parse("a", "A"), parse("b", "B"), bind("a"), execute(), SYNC)
    assert server.heard() == (
        parse(name(1), "A")
        + parse(name(2), "B")
        + close("S", name(1))
        + parse(name(1), "A")
        + close("S", name(2))
        + bind(name(1))
        + execute()
        + SYNC
    )
    server.say(ONE, ONE, THREE, ONE, THREE, TWO, TAG, IDLE)
    assert client.heard() == ONE + ONE + TWO + TAG + IDLE


@pytest.mark.parametrize("text", ["DEALLOCATE ALL", " discard\tall ; "])
def test_a_pipelined_reset_then_parse(core: Bench, text: str) -> None:
    """The reset drops what was there, never what was parsed behind it."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(query(text), parse("b", "A"), SYNC)
    assert server.heard() == query(text) + parse(name(1), "A") + SYNC
    server.say(command_complete(text.strip(" ;").upper().replace("\t", " ")), IDLE, ONE, IDLE)
    client.say(use("b"))
    assert server.heard() == use(name(1))
    server.say(TWO, TAG, IDLE)
    client.say(use("a"))
    assert server.heard() == use("a")


def test_a_reset_that_fails(core: Bench) -> None:
    """DISCARD ALL inside a block fails: both maps are as before."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(query("DISCARD ALL"))
    server.say(error("25001", "in a block"), FAILED)
    server.heard()
    client.say(query("rollback"))
    server.say(command_complete("ROLLBACK"), IDLE)
    server.heard()
    client.say(use("a"))
    assert server.heard() == use(name(1))


def test_a_reset_by_the_extended_protocol(core: Bench) -> None:
    """An Execute of DEALLOCATE ALL acts when it is read."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(parse("", "DEALLOCATE ALL"), use(""), parse("b", "A"), SYNC)
    server.say(ONE, TWO, command_complete("DEALLOCATE ALL"), IDLE, ONE, IDLE)
    assert server.heard() == parse("", "DEALLOCATE ALL") + use("") + parse(name(1), "A") + SYNC
    assert client.facts.prepared_statements == 1


def test_a_reset_inside_a_longer_query(core: Bench) -> None:
    """The tag alone clears both maps."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(query("select 1; deallocate all"))
    server.say(TAG, command_complete("DEALLOCATE ALL"), IDLE)
    assert (client.facts.prepared_statements, server.facts.prepared_statements) == (0, 0)


def test_a_reset_query_of_the_pooler(core: Bench) -> None:
    """Tags seen in dialogue clear the server's cache."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    core.engine.take(server.id)
    core.engine.send(server.id, query("DISCARD ALL"))
    server.say(command_complete("DISCARD ALL"), IDLE)
    server.heard()
    core.engine.park(server.id)
    client.say(use("a"))
    assert server.heard() == parse(name(1), "A") + use(name(1))


@pytest.mark.parametrize("text", ["DEALLOCATE a", "deallocate prepare A ;", 'DEALLOCATE "a"'])
def test_deallocate_of_a_mapped_name(core: Bench, text: str) -> None:
    """SQL DEALLOCATE of a protocol-level statement is answered by the server and drops the mapping."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(query(text))
    assert server.heard() == VOID + query('DEALLOCATE "PGBOUNCER_VOID"')
    server.say(ONE, command_complete("DEALLOCATE"), IDLE)
    assert client.heard() == command_complete("DEALLOCATE") + IDLE
    assert client.facts.prepared_statements == 0


def test_deallocate_of_another_name(core: Bench) -> None:
    """A name that is not mapped goes to the server as it is."""
    client, server = core.linked()
    client.say(query("DEALLOCATE b"))
    assert server.heard() == query("DEALLOCATE b")


def test_deallocate_in_a_failed_block(core: Bench) -> None:
    """When the server refuses, the mapping stays and the void statement is known to be there."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(query("DEALLOCATE a"))
    server.heard()
    server.say(ONE, error("25P02", "aborted"), IDLE)
    assert client.facts.prepared_statements == 1
    client.say(query("DEALLOCATE a"))
    assert server.heard() == query('DEALLOCATE "PGBOUNCER_VOID"')


def test_deallocate_by_the_extended_protocol(core: Bench) -> None:
    """An unnamed Parse of DEALLOCATE is rewritten, and its Execute drops the mapping."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(parse("", "DEALLOCATE a"), use(""))
    assert server.heard() == parse("", 'DEALLOCATE "PGBOUNCER_VOID"') + bind("") + VOID + execute() + SYNC
    server.say(ONE, TWO, ONE, command_complete("DEALLOCATE"), IDLE)
    assert client.heard().endswith(ONE + TWO + command_complete("DEALLOCATE") + IDLE)
    assert client.facts.prepared_statements == 0


def test_other_errors_leave_the_cache_alone(core: Bench) -> None:
    """0A000 with another text, from elsewhere, changes nothing."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(use("a"))
    server.heard()
    server.say(error("0A000", "not supported"), IDLE)
    client.say(use("a"))
    assert server.heard() == use(name(1))


def test_an_injected_parse_that_fails(core: Bench) -> None:
    """The error reaches the client once, and the next borrower sees exactly its own answers."""
    client, first = core.linked()
    prepare(client, first, "a", "select * from t")
    first.leave()
    core.events()
    server = core.server()
    client.say(use("a"))
    assert server.heard() == parse(name(1), "select * from t") + use(name(1))
    server.say(ERROR, IDLE)
    assert client.heard() == ERROR + IDLE
    other = core.client()
    other.say(query("x"))
    server.say(TAG, IDLE)
    assert other.heard() == TAG + IDLE


def test_an_uncertain_statement(core: Bench) -> None:
    """A Parse that an error may yet skip is not relied on behind the Sync."""
    first, server = core.linked()
    prepare(first, server, "a", "A")
    server.leave()
    core.events()
    server = core.server()
    first.say(bind("nope"), bind("a"), SYNC, use("a"))
    assert server.heard() == (
        bind("nope")
        + parse(name(1), "A")
        + bind(name(1))
        + SYNC
        + close("S", name(1))
        + parse(name(1), "A")
        + use(name(1))
    )
    server.say(error("26000", "no"), IDLE, THREE, ONE, TWO, TAG, IDLE)
    assert first.heard().endswith(error("26000", "no") + IDLE + TWO + TAG + IDLE)


def test_an_uncertain_statement_that_fails_twice(core: Bench) -> None:
    """When both batches fail, the statement is parsed again for the next use."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    server.leave()
    core.events()
    server = core.server()
    client.say(bind("nope"), bind("a"), SYNC, bind("nope"), bind("a"), SYNC)
    server.heard()
    server.say(error("26000", "no"), IDLE, error("26000", "no"), IDLE)
    client.say(use("a"))
    assert parse(name(1), "A") + use(name(1)) in server.heard()


def test_session_mode_touches_nothing(core: Bench) -> None:
    """In session mode names go as they are."""
    core.pool(PoolMode.SESSION)
    client, server = core.linked()
    said = parse("a", "A") + use("a") + close("S", "a") + query("DEALLOCATE a") + SYNC
    client.say(said)
    assert server.heard() == said
