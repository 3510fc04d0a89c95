"""Statements, portals and errors of the extended query protocol in a console session."""

from __future__ import annotations

import struct
from itertools import count
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.console import extended
from pgshoal.console.tables import TABLES
from tests.console.desk import Desk, ask, busy, columns, tag, values, words
from tests.console.fleet import End
from tests.console.test_fleet import stop
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.wire.test_binary import read_numeric
from tests.worker.stub import Talk

READY = Message("Z", b"I")
DONE = {"parse": Message("1", b""), "bind": Message("2", b""), "close": Message("3", b"")}
NO_DATA, SUSPENDED, NO_PARAMETERS = Message("n", b""), Message("s", b""), Message("t", b"\0\0")


def send(talk: Talk, *packets: bytes) -> list[Message]:
    """Messages, and all that is answered."""
    for packet in packets:
        talk.message(packet)
    return talk.messages()


def bind(statement: str, portal: str = "", codes: tuple[int, ...] = ()) -> bytes:
    """A Bind that asks for formats."""
    body = m.text(portal, statement) + struct.pack(f"!hhh{len(codes)}h", 0, 0, len(codes), *codes)
    return m.message(b"B", body)


def refusal(message: Message) -> tuple[str, str]:
    """(SQLSTATE, text) of an ErrorResponse."""
    assert message.kind == "E"
    fields = m.error_fields(message.payload)
    assert fields["S"] == "ERROR"
    return fields["C"], fields["M"]


def only_refusal(talk: Talk, *packets: bytes) -> tuple[str, str]:
    """The error that is the whole answer up to the Sync."""
    *_, error, ready = send(talk, *packets, m.SYNC)
    assert ready == READY
    return refusal(error)


def kinds(found: list[Message]) -> str:
    """The types of messages."""
    return "".join(message.kind for message in found)


@pytest.mark.parametrize("table", [name for name in TABLES if name not in {"SERVERS", "ACTIVE_SOCKETS"}])
def test_each_table_is_what_the_simple_protocol_shows(table: str) -> None:
    """RowDescription from Describe, of the statement and of the portal; rows and tag from Execute."""
    with Desk() as desk:
        talk = desk.session()
        head, *body, ready = ask(talk, f"show {table}")
        assert ready == READY
        parsed, nothing, shape = send(talk, m.parse("s", f"show {table}"), m.describe("S", "s"))
        assert (parsed, nothing, shape) == (DONE["parse"], NO_PARAMETERS, head)
        bound, again = send(talk, m.bind("s"), m.describe("P", ""))
        assert (bound, again) == (DONE["bind"], head)
        rows = send(talk, m.execute())
        assert [len(values(row)) for row in rows[:-1]] == [len(TABLES[table].columns)] * (len(body) - 1)
        assert rows[-1] == body[-1]
        if table in {"VERSION", "STATE", "CONFIG", "DATABASES", "USERS", "WORKERS", "LEDGER"}:
            assert rows == body
        assert send(talk, m.SYNC) == [READY]


def test_one_message_at_a_time() -> None:
    """Every message is followed by one wish for the next, Flush and what is passed over too."""
    with Desk(pkt_buf=8192) as desk:
        talk = desk.session()
        desk.engine.calls.clear()
        send(talk, m.parse("", "show version"), m.FLUSH, m.describe("S", "nix"), m.bind(""), m.SYNC)
        assert desk.engine.calls == [("proceed", talk.conn, 8192)] * 5


def test_describe_runs_nothing() -> None:
    """Not even a question to the fleet; and nothing is done before Execute."""
    with Desk() as desk:
        talk = desk.session()
        before = len(cast(End, desk.child.channel).heard)
        for text, shape in (("pause", "n"), ("show pools", "T"), ("show help", "n"), ("show timezone", "T")):
            found = send(talk, m.parse("", text), m.describe("S", ""), m.bind(""), m.describe("P", ""), m.SYNC)
            assert kinds(found) == f"1t{shape}2{shape}Z"
        assert len(cast(End, desk.child.channel).heard) == before
        assert not desk.worker.pause.everything


def test_binary_results() -> None:
    """One code for all columns, or one for each; the values are those of the text."""
    with Desk() as desk:
        talk = desk.session()
        for table in ("STATS", "POOLS", "WORKERS", "TOTALS", "LISTS", "DATABASES"):
            head, first, *_ = ask(talk, f"show {table}")
            *_, shape, row = send(
                talk, m.parse("", f"show {table}"), bind("", codes=(1,)), m.describe("P", ""), m.execute(rows=1)
            )[:4]
            assert kinds([shape, row]) == "TD"
            assert columns(shape) == columns(head)
            assert shape.payload.endswith(b"\0\1")
            for (name, oid), raw, text in zip(columns(shape), cells(row), values(first), strict=True):
                assert same(oid, raw, text), (table, name)
            send(talk, m.SYNC)
        mixed = send(talk, m.parse("", "show lists"), bind("", codes=(0, 1)), m.execute(rows=1))[2]
        assert cells(mixed) == [b"databases", struct.pack("!i", len(desk.config.databases) + 1)]


def cells(row: Message) -> list[bytes | None]:
    """The raw values of a DataRow."""
    at, found = 2, list[bytes | None]()
    for _ in range(struct.unpack_from("!H", row.payload)[0]):
        (size,) = struct.unpack_from("!i", row.payload, at)
        found.append(None if size < 0 else row.payload[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    return found


def same(oid: int, raw: bytes | None, text: str | None) -> bool:
    """Whether a binary value means what the text says."""
    if raw is None or text is None:
        return raw is None and text is None
    if oid == 1700:
        return f"{float(read_numeric(raw)[0]):.6f}" == f"{float(text):.6f}"
    return raw == {23: int, 20: int}[oid](text).to_bytes(len(raw), signed=True) if oid != 25 else raw == text.encode()


def test_row_limits() -> None:
    """A portal gives its rows in pieces; after the last one it is complete, and stays so."""
    with Desk() as desk:
        talk = desk.session()
        whole = ask(talk, "show totals")[1:-2]
        send(talk, m.parse("", "show totals"), m.bind("", "p"))
        got = []
        for size in (10, 10):
            *rows, last = send(talk, m.execute("p", size))
            assert (len(rows), last) == (size, SUSPENDED)
            got += rows
        *rows, last = send(talk, m.execute("p", 10))
        assert (len(rows), words(last)) == (len(whole) - 20, "SHOW")
        assert [values(row)[0] for row in got + rows] == [values(row)[0] for row in whole]
        assert [words(one) for one in send(talk, m.execute("p", 10))] == ["SHOW"]
        # As PostgreSQL, which has not looked whether there is more.
        send(talk, m.bind("", "q"))
        assert kinds(send(talk, m.execute("q", len(whole)))) == "D" * len(whole) + "s"
        assert kinds(send(talk, m.execute("q"))) == "C"


def test_a_command_runs_once() -> None:
    """A portal that has run cannot run again; a new one of the same statement can."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("r", "pause app"))
        assert [words(one) for one in send(talk, m.bind("r"), m.execute())[1:]] == ["PAUSE"]
        assert only_refusal(talk, m.execute()) == ("55000", 'portal "" cannot be run')
        assert [words(one) for one in send(talk, m.bind("r"), m.execute())[1:]] == ["PAUSE"]


def test_names_live_as_in_postgresql() -> None:
    """Statements until they are closed, portals until Sync; unnamed ones are replaced."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("s", "show version"), m.parse("", "show state"), m.bind("s", "p"), m.SYNC)
        assert only_refusal(talk, m.execute("p")) == ("34000", 'portal "p" does not exist')
        assert only_refusal(talk, m.parse("s", "show lists")) == (
            "42P05",
            'prepared statement "s" already exists',
        )
        assert only_refusal(talk, m.bind("s", "p"), m.bind("s", "p")) == ("42P03", 'cursor "p" already exists')
        assert kinds(send(talk, m.bind("s"), m.bind(""), m.execute(), m.SYNC)) == "22DDCZ"
        assert kinds(send(talk, m.close("S", "s"), m.close("S", "s"), m.close("P", "x"), m.SYNC)) == "333Z"
        assert only_refusal(talk, m.bind("s")) == ("26000", 'prepared statement "s" does not exist')
        assert only_refusal(talk, m.describe("S", "s"))[0] == "26000"
        # A Query ends the unnamed statement.
        assert tag(talk, "show version") == "SHOW"
        assert only_refusal(talk, m.bind("")) == ("26000", "unnamed prepared statement does not exist")


def test_errors_last_until_sync() -> None:
    """What follows is passed over, a Query too; then everything works again."""
    with Desk() as desk:
        talk = desk.session()
        found = send(
            talk,
            m.parse("", "show version"), m.bind(""), m.execute(),
            m.parse("", "show nix"), m.bind(""), m.execute(),
            m.query("pause"), m.close("S", "s"), m.FLUSH, m.SYNC,
            m.parse("", "show version"), m.bind(""), m.execute(), m.SYNC,
        )  # fmt: skip
        assert kinds(found) == "12DCEZ12DCZ"
        assert refusal(found[4]) == ("08P01", "invalid command 'show nix', use SHOW HELP;")
        assert not desk.worker.pause.everything


@pytest.mark.parametrize(
    "text", ["select 1", "show nix", "begin", "show a; show b", "show extra_float_digits", "x" * 20]
)
def test_parse_refuses_what_is_no_command(text: str) -> None:
    """With the text of the simple protocol."""
    with Desk() as desk:
        talk = desk.session()
        told = tag(talk, text)
        assert only_refusal(talk, m.parse("", text)) == ("08P01", told)


@pytest.mark.parametrize("text", ["pause", "kill nix", "resume", "set nix = 1", "kill_client x", "enable"])
def test_execute_refuses_what_cannot_be_done(text: str) -> None:
    """With the text of the simple protocol, of rights too."""
    with Desk() as desk:
        for user in ("stats", "admin"):
            talk = desk.session(user)
            told = tag(talk, text)
            if told != "PAUSE":
                assert only_refusal(talk, m.parse("", text), m.bind(""), m.execute()) == ("08P01", told)


def test_parameters_are_refused() -> None:
    """Declared, written or bound."""
    with Desk() as desk:
        talk = desk.session()
        refused = ("0A000", "parameters are not supported by admin console")
        assert only_refusal(talk, m.parse("", "kill_client $1")) == refused
        assert only_refusal(talk, m.parse("", "show version", (23,))) == refused
        send(talk, m.parse("s", "show version"))
        assert only_refusal(talk, m.bind("s", "", (b"1",))) == (
            "08P01",
            'bind message supplies 1 parameters, but prepared statement "s" requires 0',
        )


def test_wrong_formats_are_refused() -> None:
    """A code that is none, and codes for other columns."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("s", "show lists"))
        assert only_refusal(talk, bind("s", codes=(2,))) == ("22023", "unsupported format code: 2")
        assert only_refusal(talk, bind("s", codes=(0, 1, 0))) == (
            "08P01",
            "bind message has 3 result formats but query has 2 columns",
        )


@pytest.mark.parametrize("packet", [m.message(kind, b"xx") for kind in (b"P", b"B", b"E", b"D")])
def test_broken_messages_are_errors(packet: bytes) -> None:
    """The session goes on behind the next Sync."""
    with Desk() as desk:
        talk = desk.session()
        sqlstate, text = only_refusal(talk, packet)
        assert (sqlstate, text[:7]) == ("08P01", "broken ")
        assert tag(talk, "show version") == "SHOW"


@given(st.lists(st.tuples(st.sampled_from("PBDECSH"), st.binary(max_size=40)), max_size=8))
def test_any_bytes_are_answered(packets: list[tuple[str, bytes]]) -> None:
    """Nothing breaks the session: it is asked for the next message each time, and works after a Sync."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, *(m.message(kind.encode(), payload) for kind, payload in packets), m.SYNC)
        assert talk.open
        assert kinds(send(talk, m.parse("", "show version"), m.bind(""), m.execute(), m.SYNC)) == "12DCZ"


def test_statements_are_bounded() -> None:
    """In number and in bytes; closing one makes room."""
    with Desk() as desk:
        talk = desk.session()
        full = ("54000", "too many prepared statements in admin console")
        for number in range(extended.STATEMENTS_MAX):
            assert send(talk, m.parse(f"s{number}", "show version")) == [DONE["parse"]]
        assert only_refusal(talk, m.parse("more", "show version")) == full
        assert kinds(send(talk, m.close("S", "s0"), m.parse("more", "show version"))) == "31"
        big = desk.session()
        for number in count():
            found = send(big, m.parse(f"{number}", "show version" + " " * 3000))
            if found != [DONE["parse"]]:
                break
        assert refusal(found[0]) == full
        assert number == extended.STATEMENTS_MAX_BYTES // 3013


def test_portals_are_bounded() -> None:
    """In number; all end with the Sync."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("s", "show version"))
        for _ in range(2):
            for number in range(extended.PORTALS_MAX):
                assert send(talk, m.bind("s", f"p{number}")) == [DONE["bind"]]
            assert only_refusal(talk, m.bind("s", "more")) == ("54000", "too many portals in admin console")


def test_kept_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One portal may keep all it has, several together no more than the limit."""
    monkeypatch.setattr(extended, "KEPT_MAX_BYTES", 100)
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("s", "show config"))
        assert kinds(send(talk, m.bind("s", "p"), m.execute("p", 1))) == "2Ds"
        assert only_refusal(talk, m.bind("s", "q"), m.execute("q", 1)) == (
            "54000",
            "too many portals in admin console",
        )


def test_a_command_that_waits_keeps_the_order() -> None:
    """Nothing more is read until it is answered, so a Sync behind it is answered behind it."""
    with Desk() as desk:
        server, talk = busy(desk), desk.session()
        desk.engine.calls.clear()
        assert kinds(send(talk, m.parse("", "pause"), m.bind(""))) == "12"
        wishes = [("proceed", talk.conn, 4096)] * 2
        assert [call for call in desk.engine.calls if call[:2] == ("proceed", talk.conn)] == wishes
        assert send(talk, m.execute()) == []
        assert [call for call in desk.engine.calls if call[:2] == ("proceed", talk.conn)] == wishes
        desk.worker.servers.gone(server, "pause mode")
        assert [words(one) for one in talk.messages()] == ["PAUSE"]
        assert desk.engine.calls[-1] == wishes[0]
        assert send(talk, m.SYNC) == [READY]
        assert tag(talk, "resume") == "RESUME"


def test_a_cancel_request_ends_the_wait() -> None:
    """With an error in the place of the answer, and readiness after the Sync."""
    with Desk() as desk:
        busy(desk)
        talk = desk.session()
        send(talk, m.parse("", "pause app"), m.bind(""), m.execute())
        desk.console.cancel(desk.console.sessions[talk.conn].login)
        (error,) = talk.messages()
        assert refusal(error) == ("57014", "PAUSE was interrupted")
        assert send(talk, m.execute(), m.SYNC) == [READY]
        assert not desk.worker.pools.databases["app"].paused


def test_a_cancel_request_that_is_late_resumes_nothing() -> None:
    """Drivers send them on their own; a session that knows only Query resumes by one, as in PgBouncer."""
    with Desk() as desk:
        driver, operator = desk.session("stats"), desk.session()
        assert kinds(send(driver, m.parse("", "show version"), m.SYNC)) == "1Z"
        assert tag(operator, "pause") == "PAUSE"
        desk.console.cancel(desk.console.sessions[driver.conn].login)
        assert desk.worker.pause.everything
        desk.console.cancel(desk.console.sessions[operator.conn].login)
        assert not desk.worker.pause.everything


def test_a_table_of_the_fleet_comes_later() -> None:
    """What a worker cannot tell is missing, with a NOTICE; the row limit holds for what comes late, too."""
    with Desk() as desk, desk.another() as other:
        stop(other)
        talk = desk.session()
        assert kinds(send(talk, m.parse("", "show totals"), bind("", codes=(0, 1)), m.execute(rows=2))) == "12"
        desk.head.loop.run(2.0)
        notice, *rows, suspended = talk.messages()
        assert words(notice) == "no answer from worker 1: its rows are missing"
        assert [read_numeric(cells(row)[1] or b"")[0] for row in rows] == [0, 1]
        assert suspended == SUSPENDED
        assert kinds(send(talk, m.execute(), m.SYNC)) == "D" * 22 + "CZ"


def test_what_drivers_send_unasked() -> None:
    """Answered as PostgreSQL would, though there is nothing to do."""
    with Desk() as desk:
        talk = desk.session("stats")
        for text, expected in {
            "DISCARD ALL": "DISCARD ALL",
            "set application_name = 'PostgreSQL JDBC Driver'": "SET",
            "SET extra_float_digits = 3": "SET",
            "SHOW TRANSACTION ISOLATION LEVEL": "SHOW",
        }.items():
            found = send(talk, m.parse("", text), m.bind(""), m.execute(), m.SYNC)
            assert (words(found[-2]), found[-1]) == (expected, READY)
        nothing = send(talk, m.parse("", ""), m.describe("S", ""), m.bind(""), m.execute(), m.execute(), m.SYNC)
        assert kinds(nothing) == "1tn2IIZ"


def test_a_reset_of_the_session_is_answered_once_the_extended_protocol_was_used() -> None:
    """Before, a Query is answered as by PgBouncer, byte for byte."""
    reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"
    with Desk() as desk:
        talk = desk.session()
        for text in (reset, "reset all", "discard all", ""):
            assert tag(talk, text) == f"invalid command '{text}', use SHOW HELP;"
        send(talk, m.parse("s", "show version"), m.SYNC)
        assert kinds(ask(talk, reset)) == "TDCCCCZ"
        assert kinds(ask(talk, "")) == "IZ"
        assert tag(talk, "reset all; show version") == "invalid command 'reset all; show version', use SHOW HELP;"


def test_statements_are_deallocated_in_sql() -> None:
    """One by name, or all."""
    with Desk() as desk:
        talk = desk.session()
        send(talk, m.parse("a", "show version"), m.parse("B", "show version"), m.parse("c", "show version"), m.SYNC)
        assert tag(talk, "deallocate A") == "DEALLOCATE"
        assert tag(talk, 'DEALLOCATE PREPARE "B"') == "DEALLOCATE"
        assert tag(talk, "deallocate b") == 'prepared statement "b" does not exist'
        assert kinds(send(talk, m.bind("c"), m.SYNC)) == "2Z"
        assert tag(talk, "discard all") == "DISCARD ALL"
        assert only_refusal(talk, m.bind("c"))[0] == "26000"
