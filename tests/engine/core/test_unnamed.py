"""The unnamed statement: kept by its client when Parse and Bind are split by Sync."""

from __future__ import annotations

from tests.engine.core.harness import IDLE, Bench
from tests.engine.core.test_prepared import ONE, TAG, THREE, TWO, prepare, use
from tests.support.messages import (
    SYNC,
    bind,
    close,
    error,
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
