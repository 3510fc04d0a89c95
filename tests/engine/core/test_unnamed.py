"""The unnamed statement: kept by its client when Parse and Bind are split by Sync."""

from __future__ import annotations

from pgshoal.engine.contract import PoolMode, PoolSpec
from tests.engine.core.harness import IDLE, Bench
from tests.engine.core.test_prepared import ONE, TAG, THREE, TWO, prepare, use
from tests.support.messages import (
    SYNC,
    bind,
    close,
    command_complete,
    error,
    parameter_status,
    parse,
    query,
)


def test_parse_and_bind_split_by_sync(core: Bench) -> None:
    """On another server the unnamed Parse is replayed; on the same one it is not."""
    client, first = core.linked()
    client.say(parse("", "select 1"), SYNC)
    first.say(ONE, IDLE)
    first.heard()
    client.say(use(""))
    assert first.heard() == use("")
    first.say(TWO, TAG, IDLE)
    blocker = core.client()
    blocker.say(query("begin"))
    second = core.server()
    client.say(use(""))
    assert second.heard() == parse("", "select 1") + use("")
    second.say(ONE, TWO, TAG, IDLE)
    assert client.heard().endswith(TWO + TAG + IDLE)


def test_the_unnamed_statement_of_another(core: Bench) -> None:
    """A client without one never runs what another client left on the server."""
    first, server = core.linked()
    first.say(parse("", "secret"), SYNC)
    server.say(ONE, IDLE)
    server.heard()
    second = core.client()
    second.say(use(""))
    assert server.heard() == close("S", "") + use("")
    server.say(THREE, error("26000", "no"), IDLE)
    assert second.heard() == error("26000", "no") + IDLE


def test_a_query_ends_the_unnamed_statement(core: Bench) -> None:
    """After a simple Query neither the client nor the server has one."""
    client, server = core.linked()
    client.say(parse("", "x"), SYNC)
    server.say(ONE, IDLE)
    client.say(query("y"))
    server.say(TAG, IDLE)
    server.heard()
    client.say(use(""))
    assert server.heard() == use("")


def test_a_query_that_an_error_skips(core: Bench) -> None:
    """A Query the server never looked at has not ended another client's unnamed statement."""
    first, server = core.linked()
    first.say(parse("", "secret"), SYNC)
    server.say(ONE, IDLE)
    server.heard()
    second = core.client()
    second.say(bind("nope"), query("y"), SYNC)
    server.say(error("26000", "no"), IDLE)
    server.heard()
    second.say(use(""))
    assert server.heard() == close("S", "") + use("")


def test_a_close_behind_the_sync(core: Bench) -> None:
    """A skipped request behind the last Sync is answered at once after ReadyForQuery, and holds no server."""
    client, server = core.linked()
    prepare(client, server, "a", "A")
    client.say(use("a"), close("S", "a"))
    server.say(TWO, TAG, IDLE)
    assert client.heard() == TWO + TAG + IDLE + THREE
    assert (client.mode, server.mode) == ("parked", "idle")
    assert client.facts.request_us == 0


def test_sets_for_another_client_end_it(core: Bench) -> None:
    """The SETs of a link end the unnamed statement on the server, not for its client: it is parsed again."""
    server = core.server([("TimeZone", "UTC")])
    first, second = core.client([("TimeZone", "UTC")]), core.client([("TimeZone", "CET")])
    first.say(parse("", "x"), SYNC)
    server.say(ONE, IDLE)
    server.heard()
    second.say(use(""))
    assert server.heard() == query("SET TimeZone='CET';")
    server.say(parameter_status("TimeZone", "CET"), command_complete("SET"), IDLE)
    assert server.heard() == use("")
    server.say(error("26000", "no"), IDLE)
    first.say(use(""))
    assert server.heard() == query("SET TimeZone='UTC';")
    server.say(parameter_status("TimeZone", "UTC"), command_complete("SET"), IDLE)
    assert server.heard() == parse("", "x") + use("")
    server.say(ONE, TWO, TAG, IDLE)
    assert first.heard() == ONE + IDLE + TWO + TAG + IDLE


def test_queries_of_python_end_it(core: Bench) -> None:
    """What Python asked in between, a check or a reset, has ended the unnamed statement, or left one of its own."""
    client, server = core.linked()
    client.say(parse("", "x"), SYNC)
    server.say(ONE, IDLE)
    server.heard()
    assert core.engine.take(server.id)
    core.engine.send(server.id, query("check"))
    server.say(TAG, IDLE)
    core.engine.park(server.id)
    server.heard()
    client.say(use(""))
    assert server.heard() == parse("", "x") + use("")
    server.say(ONE, TWO, TAG, IDLE)
    assert core.engine.take(server.id)
    core.engine.send(server.id, parse("", "own") + SYNC)
    server.say(ONE, IDLE)
    core.engine.park(server.id)
    server.heard()
    other = core.client()
    other.say(use(""))
    assert server.heard() == close("S", "") + use("")


def test_a_pool_that_was_in_session_mode(core: Bench) -> None:
    """What a client of a session left there is nobody's after the pool's mode has changed."""
    pool = core.pool()
    client, server = core.linked()
    client.say(parse("", "x"), SYNC)
    server.say(ONE, IDLE)
    server.heard()
    core.engine.set_pool(pool, PoolSpec(mode=PoolMode.SESSION, max_prepared_statements=10))
    other = core.client()
    other.say(parse("", "secret"), SYNC)
    server.heard()
    server.say(ONE, IDLE)
    other.leave()
    core.engine.set_pool(pool, PoolSpec(mode=PoolMode.TRANSACTION, max_prepared_statements=10))
    client.say(use(""))
    assert server.heard() == parse("", "x") + use("")
