"""A console session on the wire: its welcome, what it refuses, and how it ends."""

from __future__ import annotations

import os

import pytest

from tests.console.desk import Desk, ask, tag, words
from tests.support import messages as m
from tests.support.fakeclient import Message

ERROR, WARNING, LOG = 1, 2, 3


def test_the_welcome() -> None:
    """Parameters in PgBouncer's order, then the client's own, its cancel key and readiness."""
    with Desk() as desk:
        talk = desk.login("stats", "pgbouncer", application_name="top", TimeZone="Europe/Paris")
        auth, *parameters, key, ready = talk.messages()
        assert auth == Message("R", b"\0\0\0\0")
        assert [tuple(p.payload.decode().split("\0")[:2]) for p in parameters] == [
            ("pgbouncer.version", "1.26.1"),
            ("server_version", "1.26.1/bouncer"),
            ("client_encoding", "UTF8"),
            ("server_encoding", "UTF8"),
            ("DateStyle", "ISO"),
            ("TimeZone", "GMT"),
            ("standard_conforming_strings", "on"),
            ("is_superuser", "on"),
            ("application_name", "top"),
        ]
        assert (key.kind, key.payload) == ("K", desk.worker.front.consoles[talk.conn].cancel_key)
        assert ready == Message("Z", b"I")
        assert desk.engine.calls[-1] == ("proceed", talk.conn, 4096)


def test_one_message_at_a_time() -> None:
    """The next message is asked for after the answer, and not before."""
    with Desk(pkt_buf=8192) as desk:
        talk = desk.session()
        desk.engine.calls.clear()
        ask(talk, "show version")
        assert desk.engine.calls == [("proceed", talk.conn, 8192)]


def test_a_function_call_is_refused_by_number() -> None:
    """The type is named as a number, and the session ends."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(m.message(b"F", b""))
        assert words(talk.messages()[0]) == "unsupported packet type for admin console: 70"
        assert talk.refused() == "bad packet"


@pytest.mark.parametrize("packet", [m.message(b"y"), m.message(b"p", b"x\0"), m.message(b"\0")])
def test_unknown_messages_end_the_session(packet: bytes) -> None:
    """There is no answer but the end."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(packet)
        assert talk.messages() == []
        assert talk.refused() == "unknown pkt"


@pytest.mark.parametrize("packet", [m.message(b"d", b"row"), m.COPY_DONE, m.message(b"f", b"\0")])
def test_late_copy_messages_are_dropped(packet: bytes) -> None:
    """The session goes on as if nothing had come."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(packet)
        assert talk.messages() == []
        assert tag(talk, "show version") == "SHOW"


def test_closing_a_statement_is_answered() -> None:
    """A pooling driver may close what it never prepared here."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(m.close("S", "x"))
        assert talk.messages() == [Message("3", b"")]
        assert tag(talk, "show version") == "SHOW"


def test_a_query_ends_at_its_terminator() -> None:
    """Bytes behind it are not looked at; a query without one is refused."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(m.message(b"Q", b"show version\0;drop\0"))
        assert words(talk.messages()[-2]) == "SHOW"
        talk.message(m.message(b"Q", b"show version"))
        assert talk.refused() == "incomplete query"


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"Q\0\0\x13\x88", "incomplete pkt"),
        (b"Q\0\0\0\x03", "bad packet header: '5100000003'"),
        (b"Q\xff\xff\xff\xff", "bad packet header: '51ffffffff'"),
        (b"Q\x7f\xff\xff\xff", "bad packet header: '517fffffff'"),
    ],
)
def test_wrong_lengths(header: bytes, text: str) -> None:
    """A command larger than pkt_buf, and lengths that are none."""
    with Desk() as desk:
        talk = desk.session()
        talk.oversize(header)
        assert talk.refused() == text


def test_errors_are_logged_twice() -> None:
    """Once as what happened, once with the client it happened to; log_pooler_errors hides the second."""
    with Desk() as desk:
        talk = desk.session()
        desk.log.lines.clear()
        tag(talk, "enable")
        where = f"C-{talk.conn:#x}: pgbouncer/admin@127.0.0.1:{40000 + talk.conn} "
        assert desk.log.lines == [
            (ERROR, "a database is required"),
            (WARNING, f"{where}pooler error: a database is required"),
        ]
        tag(talk, "set log_pooler_errors=0")
        desk.log.lines.clear()
        tag(talk, "enable")
        assert desk.log.lines == [(ERROR, "a database is required")]


def test_a_polite_end() -> None:
    """Terminate closes without a packet, and nothing of the session is left."""
    with Desk() as desk:
        talk = desk.session()
        before = desk.worker.front.connections()
        desk.log.lines.clear()
        talk.message(m.TERMINATE)
        assert talk.refused() == ""
        assert "closing because: client close request (age=" in desk.log.texts()
        assert "pooler error" not in desk.log.texts()
        assert desk.worker.front.connections() == before - 1
        assert talk.conn not in desk.worker.handlers
        assert desk.console.sessions == {}


def test_a_sudden_end() -> None:
    """A session that is gone is forgotten, its user's count too."""
    with Desk() as desk:
        talk = desk.session()
        user = desk.worker.pools.users["admin"]
        assert user.client_connections == 1
        talk.gone()
        assert (user.client_connections, desk.console.sessions, desk.worker.front.consoles) == (0, {}, {})


def test_a_refused_session_is_forgotten() -> None:
    """As after any other end; the log names the reason and the error."""
    with Desk() as desk:
        talk = desk.session()
        talk.message(m.message(b"y"))
        assert (desk.console.sessions, desk.worker.front.consoles) == ({}, {})
        assert desk.log.lines[-1][1].endswith("pooler error: unknown pkt")


def test_the_owner_on_the_unix_socket_is_admin() -> None:
    """No password, no list."""
    with Desk(auth_type="scram-sha-256") as desk:
        talk = desk.accept(unix=(1, os.geteuid(), 1))
        talk.startup("pgbouncer", "pgbouncer")
        assert talk.messages()[-1].kind == "Z"
        assert tag(talk, "pause") == "PAUSE"
