"""Tracked parameters: one SET when linking, what servers report, names they do not report."""

from __future__ import annotations

import pytest

from pgshoal.engine.contract import Event
from tests.engine.core.harness import BLOCK, IDLE, Bench, Peer
from tests.support.messages import SYNC, bind, command_complete, error, execute, message, parameter_status, parse, query

SET = command_complete("SET")
TAG = command_complete("SELECT 1")


def link(client: Peer, server: Peer, sets: str) -> None:
    """The client asks; the server hears these SETs first and answers them."""
    client.say(query("x"))
    assert server.heard() == query(sets)
    server.say(SET, IDLE)
    assert server.heard() == query("x")
    server.say(TAG, IDLE)
    assert client.heard() == TAG + IDLE


def test_equal_values_need_nothing(core: Bench) -> None:
    """Names and values compare without case; what cannot be SET is not compared."""
    server = core.server([("DateStyle", "ISO, MDY"), ("server_version", "15"), ("is_superuser", "off")])
    client = core.client([("datestyle", "iso, mdy"), ("server_version", "14"), ("is_superuser", "on")])
    client.say(query("x"))
    assert server.heard() == query("x")
    assert core.engine.parameters(server.id) == {"DateStyle": "ISO, MDY"}


def test_differences_are_set_in_order_of_name(core: Bench) -> None:
    """One simple Query sets all; quotes and backslashes are safe; its answers are swallowed."""
    server = core.server([("TimeZone", "UTC"), ("application_name", "")])
    client = core.client([("timezone", "CET"), ("application_name", "o'neil\\"), ("client_encoding", "UTF8")])
    client.say(query("x"))
    assert server.heard() == query("SET application_name=E'o''neil\\\\';SET client_encoding='UTF8';SET TimeZone='CET';")
    assert (client.mode, server.mode) == ("linking", "linking")
    assert core.engine.link_of(client.id) == 0
    server.say(message(b"N", b"x" * 50), SET, parameter_status("TimeZone", "Europe/Paris"), SET, SET, IDLE)
    assert client.heard() == b""
    assert server.heard() == query("x")
    assert core.engine.parameters(client.id)["TimeZone"] == "Europe/Paris"


def test_lists_of_names(core: Bench) -> None:
    """A list of names is set as one text by set_config."""
    core.limits(extra_parameters=("search_path",))
    server, client = core.server(), core.client([("search_path", '"$user", a')])
    link(client, server, "SELECT pg_catalog.set_config('search_path','\"$user\", a',false);")


def test_the_servers_spelling_ends_the_sets(core: Bench) -> None:
    """A value that is the same in the server's words is set once, not at each link."""
    server = core.server([("DateStyle", "ISO, MDY")])
    client = core.client([("DateStyle", "ISO")])
    other = core.client([("DateStyle", "ISO, MDY")])
    link(client, server, "SET DateStyle='ISO';")
    for peer in (other, client):
        peer.say(query("y"))
        assert server.heard() == query("y")
        server.say(TAG, IDLE)


def test_a_refused_set(core: Bench) -> None:
    """The server is closed, and the client hears the server's words."""
    server, client = core.server([("TimeZone", "UTC")]), core.client([("TimeZone", "Mars")])
    client.say(query("x"))
    server.say(error("22023", 'invalid value: "Mars"'))
    assert core.events() == [
        (Event.CLOSED, server.id, "var change failed"),
        (Event.FAULT, client.id, "invalid_server_parameter", 'invalid value: "Mars"'),
    ]


def test_leaving_while_linking(core: Bench) -> None:
    """A client that leaves during its SETs costs the server."""
    server, client = core.server([("TimeZone", "UTC")]), core.client([("TimeZone", "CET")])
    client.say(query("x"))
    server.heard()
    client.leave()
    assert core.events()[1] == (Event.CLOSED, server.id, "client disconnect while server was not ready")


def test_reports_while_linked(core: Bench) -> None:
    """A SET of the client is seen by its report, and follows the client to another server."""
    values = [("TimeZone", "UTC")]
    first, client = core.server(values), core.client(values)
    client.say(query("set timezone to 'CET'"))
    first.say(SET, parameter_status("TimeZone", "CET"), IDLE)
    first.heard()
    assert core.engine.parameters(first.id) == {"TimeZone": "CET"}
    other = core.client(values)
    other.say(query("x"))
    assert first.heard() == query("SET TimeZone='UTC';")
    second = core.server(values)
    client.say(query("y"))
    assert second.heard() == query("SET TimeZone='CET';")


def test_an_unreported_extra_is_remembered(core: Bench) -> None:
    """What we set and the server does not report is set once, and goes back to its default for another client."""
    core.limits(extra_parameters=("work_mem",))
    server, first, second = core.server(), core.client([("work_mem", "1MB")]), core.client()
    link(first, server, "SET work_mem='1MB';")
    first.say(query("y"))
    assert server.heard() == query("y")
    server.say(TAG, IDLE)
    link(second, server, "SET work_mem=DEFAULT;")
    second.say(query("y"))
    assert server.heard() == query("y")
    server.say(TAG, IDLE)
    assert core.engine.parameters(server.id) == {}


@pytest.mark.parametrize("text", ["SET Work_Mem = '2MB'", "select set_config('work_mem', '', false)", "x" * 2000])
def test_a_mentioned_extra_is_unknown(core: Bench, text: str) -> None:
    """A text that names an extra parameter, or is too long to be read, makes its value unknown on that server."""
    core.limits(extra_parameters=("work_mem",))
    server, first, second = core.server(), core.client([("work_mem", "1MB")]), core.client()
    second.say(query(text))
    assert server.heard() == query(text)
    server.say(TAG, IDLE)
    link(first, server, "SET work_mem='1MB';")
    first.say(query(text))
    server.heard()
    server.say(TAG, IDLE)
    first.heard()
    second.heard()
    link(second, server, "SET work_mem=DEFAULT;")


def test_a_prepared_statement_that_mentions_an_extra(core: Bench) -> None:
    """Each Bind of such a statement makes the value unknown, also where its Parse was long ago."""
    core.limits(extra_parameters=("work_mem",))
    values = [("work_mem", "1MB")]
    server, first, second = core.server(), core.client(values), core.client(values)
    first.say(parse("a", "select set_config('work_mem', '', false)"), SYNC)
    server.heard()
    server.say(SET, IDLE)
    server.say(b"1\0\0\0\x04", IDLE)
    server.heard()
    link(second, server, "SET work_mem='1MB';")
    first.say(bind("a"), execute(), SYNC)
    assert server.heard() == bind("PGBOUNCER_1") + execute() + SYNC
    server.say(b"2\0\0\0\x04", TAG, IDLE)
    link(second, server, "SET work_mem='1MB';")


def test_discard_all_forgets_what_we_set(core: Bench) -> None:
    """After DISCARD ALL the server has its defaults."""
    core.limits(extra_parameters=("work_mem",))
    server, first, second = core.server(), core.client([("work_mem", "1MB")]), core.client()
    link(first, server, "SET work_mem='1MB';")
    first.say(query("DISCARD ALL"))
    server.say(command_complete("DISCARD ALL"), IDLE)
    server.heard()
    second.say(query("x"))
    assert server.heard() == query("x")


def test_an_extra_the_server_reports(core: Bench) -> None:
    """A reported extra is compared with its report, and needs no guess from texts."""
    core.limits(extra_parameters=("IntervalStyle",))
    values = [("IntervalStyle", "postgres")]
    server, client = core.server(values), core.client(values)
    client.say(query("set intervalstyle to iso_8601"))
    server.say(SET, BLOCK)
    client.say(query("rollback"))
    server.say(TAG, IDLE)
    server.heard()
    client.say(query("x"))
    assert server.heard() == query("x")


def test_values_of_any_bytes(core: Bench) -> None:
    """Bytes that are not UTF-8 are set, told and compared like any other, and so are they in the reason of a close."""
    odd = "caf\udce9"
    server = core.server([("application_name", "")])
    client = core.client([("application_name", odd)])
    client.say(query("x"))
    assert server.heard() == message(b"Q", b"SET application_name='caf\xe9';\0")
    server.say(message(b"S", b"application_name\0caf\xe9\0"), SET, IDLE)
    assert server.heard() == query("x")
    assert core.engine.parameters(client.id) == core.engine.parameters(server.id) == {"application_name": odd}
    core.engine.close(server.id, b"", odd)
    (fault,) = [event for event in core.engine.events() if event[0] == Event.FAULT]
    assert fault[3].startswith("caf")
