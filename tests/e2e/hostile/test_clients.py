"""Hostile clients: each loses its own connection at most, the pooler lives and others are served."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient, LoginRefused
from tests.support.pooler import Pooler

KINDS = b"QPBEDCSHFdcfXp\0Zzv\xff"
LENGTHS = (0, 3, 4, 5, 2**31 - 1, -1, -(2**31))


def connect(victim: Pooler) -> FakeClient:
    """A connection that has sent nothing."""
    return FakeClient((victim.host, victim.port))


def drained(client: FakeClient) -> bool:
    """Whether the connection ended after whatever it was told (a message that is due more bytes may wait)."""
    client.socket.settimeout(0.5)
    try:
        client.read_to_end()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_after_login(victim: Pooler, length: int) -> None:
    """Every message type with a hostile length closes at most its own connection."""
    with connect(victim) as witness:
        witness.login("alice", "app")
        for kind in KINDS:
            with connect(victim) as client:
                client.login("alice", "app")
                client.send(bytes([kind]) + struct.pack("!i", length) + b"\0" * 8)
                if length < 4:
                    assert drained(client), f"{kind:c} with length {length} left the connection open"
        assert witness.query("select 1")[-1].payload == b"I"


@pytest.mark.parametrize("length", [*LENGTHS, 7, 10_001, 70_000])
def test_lengths_of_startup_packets(victim: Pooler, length: int) -> None:
    """A startup packet with a hostile length is refused before anything is kept for it."""
    for code in (m.PROTOCOL_3_0, 80877103, 80877104, 80877102, 0x16030100, 0):
        with connect(victim) as client:
            client.send(struct.pack("!iI", length, code), b"\0" * 64)
            if length < 8 or length > 10_000:
                assert drained(client)


def test_every_prefix_of_a_session(victim: Pooler) -> None:
    """A session cut off after any byte disturbs nobody."""
    login = m.startup({"user": "alice", "database": "app"})
    batch = b"".join(
        (
            m.parse("s", "select $1::text", (25,)),
            m.bind("s", "", (b"value",)),
            m.describe("P", ""),
            m.execute(),
            m.close("S", "s"),
            m.SYNC,
            m.query("begin"),
            m.query("copy (select 1) to stdout"),
            m.query("rollback"),
            m.TERMINATE,
        )
    )
    whole = login + batch
    for end in range(1, len(whole)):
        with connect(victim) as client:
            client.send(whole[:end])
    with connect(victim) as witness:
        witness.login("alice", "app")
        assert witness.query("select 1")[-1].payload == b"I"


def test_random_bytes(victim: Pooler) -> None:
    """Random bytes before login, after login, and as message bodies do no harm."""
    dice = random.Random(20)
    for turn in range(150):
        with connect(victim) as client:
            if turn % 3:
                client.login("alice", "app")
            if turn % 3 == 2:
                kind = bytes([dice.choice(b"QPBEDCF")])
                client.send(m.message(kind, dice.randbytes(dice.randrange(60))), m.SYNC)
            else:
                client.send(dice.randbytes(dice.randrange(1, 400)))
    assert victim.query("select 1") == [(1,)]


def again(client: FakeClient) -> None:
    """A second startup packet."""
    client.send(m.startup({"user": "postgres", "database": "nowhere"}))


@pytest.mark.parametrize("auth", ["scram-sha-256", "md5", "plain"])
def test_second_startup_during_login(engine: str, auth: str) -> None:
    """A second StartupMessage in the middle of an exchange is refused; the identity cannot change."""
    settings = {"engine": engine, "auth_type": auth}
    with Pooler({"app": "host=127.0.0.1 port=1"}, **settings) as pooler, connect(pooler) as client:
        client.send(m.startup({"user": "alice", "database": "app"}))
        assert client.read().kind == "R"
        again(client)
        found = client.read_to_end()
        assert [message.kind for message in found] == ["E"]
        assert pooler.running


SCRAM_FIRST: dict[str, Callable[[str], bytes]] = {
    "no nonce in the final message": lambda nonce: b"c=biws,p=" + b"A" * 43 + b"=",
    "empty final message": lambda nonce: b"",
    "wrong nonce": lambda nonce: b"c=biws,r=nonsense,p=" + b"A" * 43 + b"=",
    "bad base64": lambda nonce: f"c=biws,r={nonce},p=***".encode(),
    "huge final message": lambda nonce: b"c=biws,r=" + b"x" * 60_000,
    "binary": lambda nonce: bytes(range(256)),
}


@pytest.mark.parametrize("case", SCRAM_FIRST)
@pytest.mark.parametrize("user", ["alice", "nobody_here"])
def test_malformed_scram(engine: str, case: str, user: str) -> None:
    """Malformed SCRAM messages are an authentication failure, also for unknown users."""
    with Pooler({"app": "host=127.0.0.1 port=1"}, engine=engine, auth_type="scram-sha-256") as pooler:
        with connect(pooler) as client:
            client.send(m.startup({"user": user, "database": "app"}))
            assert client.read().kind == "R"
            first = b"n,,n=,r=abcdefghijklmnop"
            client.send(m.message(b"p", m.text("SCRAM-SHA-256") + struct.pack("!i", len(first)) + first))
            answer = client.read()
            nonce = answer.payload[4:].split(b",")[0][2:].decode()
            client.send(m.message(b"p", SCRAM_FIRST[case](nonce)))
            (refusal,) = client.read_to_end()
            assert m.error_fields(refusal.payload)["M"] in ("SASL authentication failed",)
        with connect(pooler) as client:
            client.send(m.startup({"user": user, "database": "app"}))
            client.read()
            client.send(m.message(b"p", m.text("SCRAM-SHA-256") + struct.pack("!i", 2**31 - 1) + b"n"))
            assert [message.kind for message in client.read_to_end()] == ["E"]


@pytest.mark.parametrize("options", ["-c=", "-c =x", "--", "-c", "--=", "-c a", "\\", "-c a=\\", "  ", "-x 1", "a=b"])
def test_odd_options(victim: Pooler, options: str) -> None:
    """Odd `options` are refused or ignored at once; none makes the process spin."""
    with connect(victim) as client, contextlib.suppress(LoginRefused, Closed):
        client.login("alice", "app", options=options)
    assert victim.query("select 1") == [(1,)]


def test_bytes_before_tls(victim: Pooler) -> None:
    """Bytes behind an SSLRequest, sent before its answer, are never taken as a session."""
    with connect(victim) as client:
        client.send(m.SSL_REQUEST, m.startup({"user": "alice", "database": "app"}))
        found = client.read_bytes(1)
        assert found == b"E" or (found == b"N" and client.read().kind == "E")
