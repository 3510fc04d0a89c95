"""Text that is not UTF-8, from clients and from servers, is passed on as it is and breaks nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.e2e.conftest import MakePooler
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler

LATIN = b"caf\xe9"


def login(pooler: Pooler, *more: bytes) -> FakeClient:
    """A startup packet of raw bytes."""
    words = (b"user", b"alice", b"database", b"app", *more)
    body = struct.pack("!i", m.PROTOCOL_3_0) + b"".join(word + b"\0" for word in words) + b"\0"
    client = FakeClient((pooler.host, pooler.port))
    client.send(struct.pack("!i", len(body) + 4) + body)
    return client


def test_of_a_client(make: MakePooler) -> None:
    """A value costs the client that sent it, a name is refused in its own bytes, and others are served meanwhile."""
    pooler = make()
    with login(pooler, b"application_name", LATIN) as odd, login(pooler) as other:
        assert odd.read_until("ZE")[-1].kind == "Z"
        assert other.read_until("ZE")[-1].kind == "Z"
        # Not a text in the client's encoding: the server refuses to set it.
        odd.send(m.query("select 1"))
        assert m.error_fields(odd.read().payload)["M"] == "invalid server parameter"
        assert other.query("show application_name")[1].payload.endswith(b"\0\0\0\0")
    with login(pooler, LATIN, b"x") as refused:
        assert LATIN in refused.read().payload
    assert "Traceback" not in pooler.log_text()


def refusing(server: ServerSide) -> None:
    """Refuses the login in Latin-1, as servers do before they know the client's encoding."""
    server.read_startup()
    server.send(m.message(b"E", b"SFATAL\0C28000\0M" + LATIN + b"\0\0"))


def speaking(server: ServerSide) -> None:
    """Reports and answers in Latin-1."""
    server.read_startup()
    report = m.message(b"S", b"application_name\0" + LATIN + b"\0")
    server.send(m.auth(0), m.parameter_status("client_encoding", "LATIN1"), report, m.ready())
    while server.read().kind == "Q":
        server.send(
            report, m.message(b"N", b"SNOTICE\0C00000\0M" + LATIN + b"\0\0"), m.command_complete("X"), m.ready()
        )


@pytest.mark.parametrize("script", [refusing, speaking], ids=lambda script: script.__name__)
def test_of_a_server(engine: str, script: Callable[[ServerSide], None]) -> None:
    """The client gets the server's bytes, in an error as in a report, and the console stays usable."""
    settings = {"engine": engine, "pool_mode": "transaction"}
    with FakeServer(script) as server, Pooler({"app": server.database()}, **settings) as pooler:
        with login(pooler) as client:
            found = client.read_until("ZE")
            if script is speaking:
                client.send(m.query("x"))
                found += client.read_until("ZE")
            assert any(LATIN in message.payload for message in found)
        assert pooler.admin("SHOW LISTS")
        assert "Traceback" not in pooler.log_text()
