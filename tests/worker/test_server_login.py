"""Logging in to servers: every password request, and every kind of lie a server may tell; without sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pgshoal.auth.md5 import md5_answer
from pgshoal.auth.scram import ScramServer
from pgshoal.auth.secret import derive_verifier
from tests.support import messages as m
from tests.worker.bench import Bench, close

ENTRY = "user=bob password=hidden client_encoding=UTF8 timezone=Asia/Tokyo application_name=pool dbname=real"


class Attempt:
    """One login attempt under way."""

    def __init__(self, **settings: Any) -> None:
        self.bench = Bench({"app": ENTRY}, server_tls_sslmode="disable", **settings)
        self.client = self.bench.login()
        (self.server,) = self.bench.new_servers()
        self.bench.connect(self.server)
        self.startup = self.bench.heard(self.server)

    def say(self, *data: bytes) -> bytes:
        """The server speaks; what we answer."""
        self.bench.say(self.server, *data)
        return self.bench.heard(self.server)

    @property
    def alive(self) -> bool:
        """Whether the attempt is still under way or has succeeded."""
        return self.bench.alive(self.server)

    def finish(self) -> bool:
        """The rest of an honest login; True if the client was let in."""
        self.say(m.parameter_status("client_encoding", "UTF8"), m.message(b"K", b"12345678"), m.ready())
        return self.bench.heard(self.client).endswith(m.ready())


@pytest.fixture
def attempts() -> Iterator[Any]:
    """Makes attempts and ends their workers."""
    made: list[Attempt] = []

    def make(**settings: Any) -> Attempt:
        made.append(Attempt(**settings))
        return made[-1]

    yield make
    for attempt in made:
        close(attempt.bench)


def test_startup_packet_carries_the_entrys_wishes(attempts: Any) -> None:
    """Database, user and the four parameters an entry may name, and nothing else."""
    wanted = {
        "database": "real",
        "user": "bob",
        "client_encoding": "UTF8",
        "timezone": "Asia/Tokyo",
        "application_name": "pool",
    }
    assert attempts().startup == m.startup(wanted)


def test_cleartext(attempts: Any) -> None:
    """A request for the password gets it."""
    attempt = attempts()
    assert attempt.say(m.auth(3)) == m.message(b"p", b"hidden\0")
    attempt.say(m.auth(0))
    assert attempt.finish()


def test_md5(attempts: Any) -> None:
    """An md5 challenge is answered with its salt."""
    attempt = attempts()
    expected = md5_answer("hidden", "bob", b"salt")
    assert expected is not None
    assert attempt.say(m.auth(5, b"salt")) == m.message(b"p", expected + b"\0")
    attempt.say(m.auth(0))
    assert attempt.finish()


def scram(attempt: Attempt, password: str = "hidden") -> tuple[ScramServer, bytes]:
    """The exchange up to the server's signature, which is returned unsent; the work runs in the thread."""
    server = ScramServer(derive_verifier(password, 4096))
    first = attempt.say(m.auth(10, b"SCRAM-SHA-256\0\0"))
    answer = server.feed(first[5:].partition(b"\0")[2][4:])
    attempt.bench.say(attempt.server, m.auth(11, answer))
    done = threading.Event()
    attempt.bench.worker.threads.run(lambda: None, lambda nothing: done.set())
    assert done.wait(10)
    final = attempt.bench.heard(attempt.server)
    return server, server.feed(final[5:])


def test_scram(attempts: Any) -> None:
    """SCRAM succeeds when both sides have proved themselves."""
    attempt = attempts()
    _, signature = scram(attempt)
    attempt.say(m.auth(12, signature), m.auth(0))
    assert attempt.finish()


def test_server_that_skips_its_proof(attempts: Any) -> None:
    """AuthenticationOk before the server's signature ends the attempt: that server may not know the password."""
    attempt = attempts()
    scram(attempt)
    attempt.say(m.auth(0))
    assert not attempt.alive
    assert attempt.bench.error(attempt.client) == "server login failed: failed to verify server signature"


def test_wrong_signature(attempts: Any) -> None:
    """A signature that was made from another password ends the attempt."""
    attempt = attempts()
    scram(attempt)
    attempt.say(m.auth(12, b"v=QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="))
    assert not attempt.alive
    assert attempt.bench.error(attempt.client) == "server login failed: invalid server signature"


def test_unknown_mechanisms(attempts: Any) -> None:
    """Only SCRAM is spoken."""
    attempt = attempts()
    attempt.say(m.auth(10, b"OAUTHBEARER\0\0"))
    text = "server login failed: none of the server's SASL authentication mechanisms are supported"
    assert attempt.bench.error(attempt.client) == text


LIES = {
    "ready before ok": m.ready(),
    "key before ok": m.message(b"K", b"12345678"),
    "row": m.data_row("x"),
    "copy": m.message(b"G", b"\0\0\0"),
    "unknown type": m.message(b"?", b""),
    "empty auth": m.message(b"R", b""),
    "short auth": m.message(b"R", b"\0\0"),
    "kerberos": m.auth(2),
    "unknown auth": m.auth(99),
    "negative auth": m.auth(-1),
    "md5 without salt": m.auth(5),
    "md5 long salt": m.auth(5, b"x" * 400),
    "sasl without end": m.auth(10, b"SCRAM-SHA-256"),
    "sasl unasked": m.auth(11, b"r=x,s=QQ==,i=1"),
    "sasl final unasked": m.auth(12, b"v=QQ=="),
    "long auth": m.auth(10, b"A" * 64_000 + b"\0\0"),
    "second ok": m.auth(0) + m.auth(0),
    "in transaction": m.auth(0) + m.ready("T"),
    "bad status": m.auth(0) + m.message(b"Z", b"?"),
    "short key": m.auth(0) + m.message(b"K", b"1234"),
    "long key": m.auth(0) + m.message(b"K", b"1" * 400),
    "half parameter": m.auth(0) + m.message(b"S", b"name\0value"),
    "many parameters": m.auth(0) + b"".join(m.parameter_status(f"p{n}", "x") for n in range(300)),
    "error without fields": m.message(b"E", b"\0"),
    "error without end": m.message(b"E", b"SFATAL"),
    "error without sqlstate": m.message(b"E", b"SFATAL\0Mno\0\0"),
    "length 0": b"R\0\0\0\0",
    "length 3": b"R\0\0\0\3",
    "length -1": b"R\xff\xff\xff\xff",
    "length 2^31-1": b"R\x7f\xff\xff\xff",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_lies_end_the_attempt(attempts: Any, lie: bytes) -> None:
    """Each costs that one connection; nothing is an internal error, and the next attempt works."""
    attempt = attempts(server_login_retry=1.0)
    attempt.say(lie)
    assert not attempt.alive
    assert not attempt.bench.log.has("internal error")
    assert not attempt.bench.log.has("hidden")
    attempt.bench.pass_time(1.1)
    late = attempt.bench.login()
    attempt.bench.pass_time(0.4)
    for server in attempt.bench.new_servers():
        attempt.bench.connect(server)
        attempt.bench.heard(server)
        attempt.bench.say(server, m.auth(0), m.message(b"K", b"12345678"), m.ready())
    assert attempt.bench.heard(late).endswith(m.ready())


@pytest.mark.parametrize(
    "first",
    [b"r=short,s=QQ==,i=4096", b"r=%s,s=,i=4096", b"r=%sx,s=QQ==,i=0", b"r=%sx,s=QQ==,i=1000001", b"r=%sx", b"", b"%s"],
)
def test_hostile_scram(attempts: Any, first: bytes) -> None:
    """Foreign nonces, empty salts and impossible counts are a failed login, and cost no work."""
    attempt = attempts()
    nonce = attempt.say(m.auth(10, b"SCRAM-SHA-256\0\0")).rpartition(b"r=")[2]
    attempt.say(m.auth(11, first.replace(b"%s", nonce)))
    assert not attempt.alive
    assert attempt.bench.error(attempt.client) == "login failed"


def test_every_cut(attempts: Any) -> None:
    """A login that arrives byte by byte works like one in a single piece."""
    attempt = attempts()
    whole = m.auth(0) + m.parameter_status("client_encoding", "UTF8") + m.message(b"K", b"12345678") + m.ready()
    for at in range(len(whole)):
        attempt.say(whole[at : at + 1])
    assert attempt.bench.heard(attempt.client).endswith(m.ready())


def test_refused_tls_when_it_is_required() -> None:
    """N ends the attempt in mode require, and so does anything that is neither S nor N, or comes behind it."""
    for answer in (b"N", b"E", b"\0", b"Sx"):
        bench = Bench(server_tls_sslmode="require")
        bench.login()
        (server,) = bench.new_servers()
        bench.connect(server)
        bench.say(server, answer)
        assert not bench.alive(server)
        close(bench)
