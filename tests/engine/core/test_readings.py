"""Texts that mean something else under other settings: who shares a statement, and what is parsed again elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pgshoal.engine.contract import Event
from tests.engine.core.harness import BLOCK, IDLE, Bench, Peer
from tests.engine.core.test_prepared import ERROR, ONE, TAG, THREE, TWO, name, use
from tests.support.messages import SYNC, bind, close, command_complete, execute, parameter_status, parse, query

SET = command_complete("SET")
SERVER = (
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
)
DATE = "select '01/02/2020'::date"
SLASH = "select 'a\\\\b'"
LETTER = "select length('é')"
CASES = (
    ("DateStyle", "ISO, DMY", DATE),
    ("TimeZone", "CET", "select '2020-01-01 12:00'::timestamptz"),
    ("IntervalStyle", "sql_standard", "select $$-1 2:00$$::interval"),
    ("client_encoding", "LATIN1", LETTER),
    ("standard_conforming_strings", "off", SLASH),
)


def prepared(client: Peer, server: Peer, text: str, statement: str = "s") -> bytes:
    """A Parse with its answers; what the server was sent."""
    client.say(parse(statement, text), SYNC)
    sent = server.heard()
    server.say(ONE * sent.count(b"PGBOUNCER_"), IDLE)
    assert client.heard() == ONE + IDLE
    return sent


def joined(core: Bench, *changes: tuple[str, str]) -> Peer:
    """A client with other wishes than the server has."""
    return core.client(tuple((dict(SERVER) | dict(changes)).items()))


def settle(server: Peer, *changes: tuple[str, str]) -> None:
    """The SETs of a link succeed."""
    assert server.heard().startswith(b"Q")
    server.say(SET, *(parameter_status(*change) for change in changes), IDLE)


def change(client: Peer, server: Peer, setting: str, value: str) -> None:
    """A client changes its mind, and waits for the answer."""
    client.say(query(f"set {setting} to '{value}'"))
    server.heard()
    server.say(SET, parameter_status(setting, value), IDLE)
    client.heard()


@pytest.mark.parametrize(("setting", "value", "text"), CASES)
def test_who_reads_otherwise_has_its_own(core: Bench, setting: str, value: str, text: str) -> None:
    """The same text under another setting is another statement; under the same settings it is shared."""
    server = core.server(SERVER)
    first, second, third = joined(core), joined(core, (setting, value)), joined(core)
    assert prepared(first, server, text) == parse(name(1), text) + SYNC
    second.say(parse("s", text), SYNC)
    settle(server, (setting, value))
    assert server.heard() == parse(name(2), text) + SYNC
    server.say(ONE, IDLE)
    third.say(parse("s", text), use("s"))
    settle(server, (setting, dict(SERVER)[setting]))
    assert server.heard() == use(name(1))


def test_what_has_no_literals_is_shared(core: Bench) -> None:
    """A text of parameters only means the same to everybody."""
    server = core.server(SERVER)
    first, second = joined(core), joined(core, *((setting, value) for setting, value, _ in CASES))
    prepared(first, server, "select $1 + $2")
    second.say(parse("s", "select $1 + $2"), use("s"))
    settle(server, *((setting, value) for setting, value, _ in CASES))
    assert server.heard() == use(name(1))


def elsewhere(core: Bench, client: Peer, first: Peer, parameters: Sequence[tuple[str, str]]) -> Peer:
    """Another server, where the client's next request will go."""
    core.client(parameters).say(query("begin"))
    assert first.heard().endswith(query("begin"))
    return core.server(parameters)


def test_elsewhere_it_is_read_as_it_was(core: Bench) -> None:
    """On a server that lacks the statement it is parsed under the same values."""
    first = core.server(SERVER)
    client = joined(core)
    prepared(client, first, SLASH)
    second = elsewhere(core, client, first, SERVER)
    client.say(use("s"))
    assert second.heard() == parse(name(1), SLASH) + use(name(1))


def test_new_dates_elsewhere(core: Bench) -> None:
    """After a change of DateStyle the old statement goes on where it stands; elsewhere the text is read anew."""
    first = core.server(SERVER)
    client = joined(core)
    prepared(client, first, DATE)
    change(client, first, "DateStyle", "ISO, DMY")
    client.say(use("s"))
    assert first.heard() == use(name(1))
    first.say(TWO, TAG, IDLE)
    now = tuple((dict(SERVER) | {"DateStyle": "ISO, DMY"}).items())
    second = elsewhere(core, client, first, now)
    client.say(use("s"))
    assert second.heard() == parse(name(2), DATE) + use(name(2))
    second.say(ONE, TWO, TAG, IDLE)
    other = core.client(now)
    other.say(parse("mine", DATE), use("mine"))
    assert second.heard() == use(name(2))


@pytest.mark.parametrize(("setting", "value", "text"), CASES[3:])
def test_other_words_elsewhere(core: Bench, setting: str, value: str, text: str) -> None:
    """Where the text would consist of other words it is not parsed: the server says that it has no such statement."""
    first = core.server(SERVER)
    client = joined(core)
    prepared(client, first, text)
    change(client, first, setting, value)
    client.say(use("s"))
    assert first.heard() == use(name(1))
    first.say(TWO, TAG, IDLE)
    now = tuple((dict(SERVER) | {setting: value}).items())
    second = elsewhere(core, client, first, now)
    client.say(use("s"))
    assert second.heard() == use(name(1))
    second.say(ERROR, IDLE)
    client.say(close("S", "s"), parse("s", text), use("s"))
    assert second.heard() == parse(name(2), text) + use(name(2))


def test_a_name_again_under_other_words(core: Bench) -> None:
    """A second Parse of a name gets 42P05 from a server that lacks the first, whatever has been set since."""
    first = core.server(SERVER)
    client = joined(core)
    prepared(client, first, SLASH)
    change(client, first, "standard_conforming_strings", "off")
    now = tuple((dict(SERVER) | {"standard_conforming_strings": "off"}).items())
    second = elsewhere(core, client, first, now)
    client.say(parse("s", "select 2"), SYNC)
    assert second.heard() == parse(name(2), SLASH) + parse(name(2), "select 2") + SYNC


def test_a_change_under_way(core: Bench) -> None:
    """Who does not wait for the answer to its SET has a statement that nobody else gets."""
    server = core.server(SERVER)
    client, other = joined(core), joined(core)
    text = "set standard_conforming_strings to off"
    client.say(query(text), parse("s", SLASH), use("s"))
    assert server.heard() == query(text) + parse(name(1), SLASH) + use(name(1))
    server.say(SET, parameter_status("standard_conforming_strings", "off"), IDLE, ONE, TWO, TAG, IDLE)
    other.say(parse("s", SLASH), use("s"))
    settle(server, ("standard_conforming_strings", "on"))
    assert server.heard() == parse(name(2), SLASH) + use(name(2))


def test_a_statement_that_sets(core: Bench) -> None:
    """A SET through the extended protocol is one, too, until everything is answered."""
    server = core.server(SERVER)
    client, other = joined(core), joined(core)
    client.say(parse("", "select set_config($1, $2, false)"), bind(""), execute())
    client.say(parse("s", DATE), SYNC)
    server.say(ONE, TWO, TAG, ONE, parameter_status("TimeZone", "CET"), IDLE)
    client.say(close("S", "s"), parse("s", DATE), SYNC)
    assert server.heard().endswith(parse(name(1), DATE) + SYNC + parse(name(2), DATE) + SYNC)
    server.say(ONE, IDLE)
    other.say(parse("s", DATE), SYNC)
    settle(server, ("TimeZone", "UTC"))
    assert server.heard() == parse(name(3), DATE) + SYNC


def test_the_end_of_a_transaction_under_way(core: Bench) -> None:
    """COMMIT takes a SET LOCAL back: what is parsed behind it, without waiting, nobody else gets."""
    server = core.server(SERVER)
    client, other = joined(core), joined(core)
    client.say(query("begin"), query("set local timezone to 'CET'"))
    server.say(command_complete("BEGIN"), BLOCK, SET, parameter_status("TimeZone", "CET"), BLOCK)
    client.say(query("commit"), parse("s", DATE), SYNC)
    server.heard()
    server.say(command_complete("COMMIT"), parameter_status("TimeZone", "UTC"), IDLE, ONE, IDLE)
    other.say(parse("s", DATE), SYNC)
    assert server.heard() == parse(name(2), DATE) + SYNC


def test_the_unnamed_statement_in_other_words(core: Bench) -> None:
    """It is not parsed again where its text would consist of other words."""
    server = core.server(SERVER)
    client, other = joined(core), joined(core, ("TimeZone", "CET"))
    client.say(parse("", SLASH), parse("s", "set standard_conforming_strings to off"), bind("s"), execute(), SYNC)
    server.say(ONE, ONE, TWO, SET, parameter_status("standard_conforming_strings", "off"), IDLE)
    server.heard()
    other.say(parse("", "theirs"), SYNC)
    settle(server, ("standard_conforming_strings", "on"), ("TimeZone", "CET"))
    server.say(ONE, IDLE)
    server.heard()
    client.say(use(""))
    settle(server, ("standard_conforming_strings", "off"), ("TimeZone", "UTC"))
    assert server.heard() == use("")
    server.say(ERROR, IDLE)
    other.say(parse("", "theirs"), SYNC)
    settle(server, ("standard_conforming_strings", "on"), ("TimeZone", "CET"))
    server.say(ONE, IDLE)
    server.heard()
    third = joined(core, ("TimeZone", "CET"))
    third.say(use(""))
    assert server.heard() == close("S", "") + use("")
    server.say(THREE, ERROR, IDLE)
    assert third.heard() == ERROR + IDLE


def test_a_client_that_moves_takes_it_along(core: Bench) -> None:
    """In another process its statements are still read as they were, or refused."""
    first = core.server(SERVER)
    client = joined(core)
    prepared(client, first, SLASH)
    change(client, first, "standard_conforming_strings", "off")
    core.events()
    assert core.engine.emigrate(client.id)
    core.engine.wait(0)
    (moved,) = [event for event in core.events() if event[0] == Event.MOVED]
    there = Bench(core.kind, core.cut)
    now = tuple((dict(SERVER) | {"standard_conforming_strings": "off"}).items())
    server = there.server(now)
    arrived = Peer(there, there.engine.immigrate(-1, 7, moved[3]))
    there.engine.admit(arrived.id, there.pool_id, ())
    arrived.say(use("s"))
    assert server.heard() == use(name(1))
    server.say(ERROR, IDLE)
    other = there.client(now)
    other.say(parse("s", SLASH), SYNC)
    assert server.heard() == parse(name(2), SLASH) + SYNC
