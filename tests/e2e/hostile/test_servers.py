"""Hostile servers: their connection is closed, their client is told, the pooler lives."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import pytest

from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler

Answer = Callable[[ServerSide], None]


def sasl_start(server: ServerSide) -> None:
    """Offer SCRAM and read the client's first message."""
    server.read_startup()
    server.send(m.auth(10, b"SCRAM-SHA-256\0\0"))
    server.read()


def long_nonce(server: ServerSide) -> None:
    """A server nonce of 64 KB."""
    sasl_start(server)
    server.send(m.auth(11, b"r=" + b"n" * 65536 + b",s=c2FsdA==,i=4096"))
    server.hold()


def many_iterations(server: ServerSide) -> None:
    """An iteration count that would take hours."""
    sasl_start(server)
    nonce = server.received[-1].payload.split(b"r=")[1]
    server.send(m.auth(11, b"r=" + nonce + b"x,s=c2FsdA==,i=2000000000"))
    server.hold()


def error_without_sqlstate(server: ServerSide) -> None:
    """A login error that has no fields but a message."""
    server.read_startup()
    server.send(m.message(b"E", b"Mno code here\0\0"))


def error_without_anything(server: ServerSide) -> None:
    """A login error that is empty."""
    server.read_startup()
    server.send(m.message(b"E", b""))


def unexpected_auth(server: ServerSide) -> None:
    """Authentication requests that nobody supports, one after another."""
    server.read_startup()
    server.send(m.auth(7), m.auth(8, b"x"), m.auth(99), m.auth(11, b"r=,"), m.auth(12, b"v="))
    server.hold()


def short_auth(server: ServerSide) -> None:
    """An authentication message without a code."""
    server.read_startup()
    server.send(m.message(b"R", b"\0"))
    server.hold()


def short_salt(server: ServerSide) -> None:
    """An md5 request whose salt is too short."""
    server.read_startup()
    server.send(m.auth(5, b"x"))
    server.hold()


def huge_length(server: ServerSide) -> None:
    """A message that announces two gigabytes during login."""
    server.read_startup()
    server.send(b"R" + struct.pack("!i", 2**31 - 1) + b"\0" * 100)
    server.hold()


def negative_length(server: ServerSide) -> None:
    """A message with a negative length during login."""
    server.read_startup()
    server.send(b"S" + struct.pack("!i", -5))
    server.hold()


def bad_tls_answer(server: ServerSide) -> None:
    """An answer to SSLRequest that is neither S nor N."""
    server.read_startup(tls_answer=b"?")


def plain_after_tls_answer(server: ServerSide) -> None:
    """Plain bytes right behind the S."""
    server.read_startup(tls_answer=b"S" + m.auth(0) + m.ready())


LOGINS: list[Answer] = [
    long_nonce,
    many_iterations,
    error_without_sqlstate,
    error_without_anything,
    unexpected_auth,
    short_auth,
    short_salt,
    huge_length,
    negative_length,
    bad_tls_answer,
    plain_after_tls_answer,
]


@pytest.mark.parametrize("script", LOGINS, ids=lambda script: script.__name__)
def test_server_login(engine: str, script: Answer) -> None:
    """A server that misbehaves during login costs its own connection; the console answers meanwhile."""
    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "server_connect_timeout": 1, "client_login_timeout": 2}
        with Pooler({"app": server.database()}, **settings) as pooler:
            with FakeClient((pooler.host, pooler.port)) as client:
                client.send(m.startup({"user": "alice", "database": "app"}))
                server.wait_for(1)
                began = time.monotonic()
                assert pooler.admin("SHOW VERSION")
                assert time.monotonic() - began < 5
                assert client.read_to_end()[-1].kind == "E"
            assert pooler.running
            assert "Traceback" not in pooler.log_text()


def relayed(answer: bytes) -> Callable[[ServerSide], None]:
    """A server that answers the first request after an honest login with these bytes and hangs up."""

    def script(server: ServerSide) -> None:
        server.log_in()
        while True:
            got = server.read()
            if got.kind == "Q" and b"hostile" in got.payload:
                server.send(answer)
                return
            if got.kind == "Q":
                server.answer_rows("fine")
            if got.kind == "X":
                return

    return script


@pytest.mark.parametrize("length", [0, 3, -1, 2**31 - 1])
def test_lengths_while_linked(engine: str, length: int) -> None:
    """Every message type with a hostile length from a linked server closes that link and nothing else."""
    for kind in b"123CDEGHINSTAVWZdcntsKRv\0\xff":
        answer = bytes([kind]) + struct.pack("!i", length) + b"\0" * 16
        with FakeServer(relayed(answer)) as server:
            settings = {"engine": engine, "auth_type": "trust", "pool_mode": "transaction", "server_login_retry": 0}
            with Pooler({"app": server.database()}, **settings) as pooler:
                with FakeClient((pooler.host, pooler.port)) as client:
                    client.login("alice", "app")
                    client.send(m.query("hostile"))
                    # What the server sent may be passed on before the FATAL: only the end counts.
                    drain(client)
                with FakeClient((pooler.host, pooler.port)) as other:
                    other.login("alice", "app")
                    assert other.query("select 1")[-1].payload == b"I"


def drain(client: FakeClient) -> None:
    """Reads raw bytes until the pooler closes."""
    while True:
        try:
            client.read_bytes(1)
        except Closed:
            return


def test_random_answers(engine: str) -> None:
    """Random bytes instead of an answer end one link each; the pooler goes on."""
    dice = random.Random(7)
    answers = [dice.randbytes(dice.randrange(1, 200)) for _ in range(25)]
    turn = iter(range(10_000))

    def script(server: ServerSide) -> None:
        server.log_in()
        while True:
            got = server.read()
            if got.kind == "Q" and b"hostile" in got.payload:
                server.send(answers[next(turn) % len(answers)])
                return
            if got.kind == "Q":
                server.answer_rows("fine")

    with FakeServer(script) as server:
        settings = {"engine": engine, "auth_type": "trust", "pool_mode": "transaction", "server_login_retry": 0}
        with Pooler({"app": server.database()}, **settings) as pooler:
            for _ in answers:
                with FakeClient((pooler.host, pooler.port)) as client:
                    client.login("alice", "app")
                    client.send(m.query("hostile"))
                    drain(client)
            with FakeClient((pooler.host, pooler.port)) as other:
                other.login("alice", "app")
                assert other.query("select 1")[-1].payload == b"I"
            assert "Traceback" not in pooler.log_text()
