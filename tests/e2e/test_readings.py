"""Texts whose meaning depends on settings, prepared by clients with different ones: everybody gets its own answer."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MakePooler
from tests.soak.wire import errors, values
from tests.support import messages as m
from tests.support.fakeclient import FakeClient

SLASH = "select length('a\\\\b')::text"
DATE = "select extract(month from '01/02/2020'::date)::text"
CASES = (
    ("DateStyle", {"ISO, MDY": b"1", "ISO, DMY": b"2"}, DATE),
    (
        "TimeZone",
        {"UTC": b"0", "Asia/Tokyo": b"-32400"},
        "select extract(epoch from '1970-01-01'::timestamptz)::int::text",
    ),
    (
        "IntervalStyle",
        {"postgres": b"2", "sql_standard": b"-2"},
        "select extract(hour from '-1 2:00'::interval)::int::text",
    ),
    ("client_encoding", {"UTF8": b"1", "LATIN1": b"2"}, "select length('é')::text"),
    ("standard_conforming_strings", {"on": b"4", "off": b"3"}, SLASH),
)


def use(name: str) -> bytes:
    """Runs a statement."""
    return m.bind(name) + m.execute() + m.SYNC


@pytest.mark.parametrize(("setting", "answers", "text"), CASES, ids=[case[0] for case in CASES])
def test_everybody_gets_its_own_reading(make: MakePooler, setting: str, answers: dict[str, bytes], text: str) -> None:
    """On one server, with one text, whoever was first; as at login and as set later."""
    pooler = make(default_pool_size=1)
    for _ in range(2):
        for value, answer in answers.items():
            with FakeClient((pooler.host, pooler.port)) as client:
                client.login("alice", "app", **{setting: value})
                assert values(client.ask(m.parse("s", text), use("s"))) == [answer]
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("alice", "app")
        for number, (value, answer) in enumerate(answers.items()):
            client.query(f"set {setting} to '{value}'")
            assert values(client.ask(m.parse(f"s{number}", text), use(f"s{number}"))) == [answer]
        for number, answer in enumerate(answers.values()):
            assert values(client.ask(use(f"s{number}"))) == [answer]


def test_a_set_that_is_not_waited_for(make: MakePooler) -> None:
    """What is parsed right behind a SET is read under it, and by nobody else."""
    pooler = make(default_pool_size=1)
    address = (pooler.host, pooler.port)
    with FakeClient(address) as one, FakeClient(address) as two:
        one.login("alice", "app")
        two.login("alice", "app")
        one.send(m.query("set standard_conforming_strings to off"), m.parse("s", SLASH), use("s"))
        assert values(one.read_until("Z") + one.read_until("Z")) == [b"3"]
        assert values(two.ask(m.parse("s", SLASH), use("s"))) == [b"4"]
        assert values(one.ask(use("s"))) == [b"3"]


@pytest.mark.parametrize(
    ("setting", "value", "text", "found"),
    [("standard_conforming_strings", "off", SLASH, []), ("DateStyle", "ISO, DMY", DATE, [b"2"])],
    ids=["words", "dates"],
)
def test_another_server_after_a_change(
    make: MakePooler, setting: str, value: str, text: str, found: list[bytes]
) -> None:
    """A server without the statement reads dates anew; for other words it says that it has no such statement."""
    pooler = make(default_pool_size=2)
    address = (pooler.host, pooler.port)
    with FakeClient(address) as client, FakeClient(address) as blocker:
        client.login("alice", "app")
        blocker.login("alice", "app")
        before = values(client.ask(m.parse("s", text), use("s")))
        client.query(f"set {setting} to '{value}'")
        assert values(client.ask(use("s"))) == before
        blocker.query("begin")
        told = client.ask(use("s"))
        assert values(told) == found
        assert [error[:5] for error in errors(told)] == ["26000"] * (not found)
        again = client.ask(m.close("S", "s"), m.parse("s", text), use("s"))
        assert values(again) == [b"3" if setting.startswith("standard") else b"2"]
