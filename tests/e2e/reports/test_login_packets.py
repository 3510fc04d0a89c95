"""Recipes about version negotiation and odd login packets that broke other poolers."""

from __future__ import annotations

import struct

import pytest

from tests.e2e.reports.conftest import MakePooler
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, LoginRefused, Message
from tests.support.pooler import Pooler
from tests.support.postgres import PASSWORDS, Postgres
from tests.support.proxy import BrokenProxy, Fault


def start(pooler: Pooler) -> FakeClient:
    """A client that has connected and sent nothing."""
    return FakeClient((pooler.host, pooler.port))


def negotiations(found: list[Message]) -> list[bytes]:
    """The NegotiateProtocolVersion payloads."""
    return [message.payload for message in found if message.kind == "v"]


@pytest.mark.parametrize("protocol", [0x30001, 0x30002, 0x3270F])
def test_newer_minor_is_negotiated_once(make_pooler: MakePooler, cut: bool, protocol: int) -> None:
    """A newer minor version and unknown protocol options get exactly one answer that names the options."""
    with start(make_pooler()) as client:
        options = {"_pq_.test_protocol_negotiation": "on", "_pq_.x": "1"}
        found = client.login("alice", "app", "alice-secret", protocol=protocol, cut=int(cut), **options)
        (answer,) = negotiations(found)
        version, count = struct.unpack("!ii", answer[:8])
        assert (version, count) == (min(protocol, 0x30002), 2)
        assert answer[8:].split(b"\0")[:2] == [b"_pq_.test_protocol_negotiation", b"_pq_.x"]
        assert client.query("select 1")[-1].payload == b"I"


def test_negotiation_before_a_lookup(make_pooler: MakePooler, cut: bool) -> None:
    """A login that waits for auth_query is told once, too."""
    pooler = make_pooler(
        userlist={"bob": PASSWORDS["bob"]},
        auth_user="bob",
        auth_query=f"select $1::text, '{PASSWORDS['alice']}'::text",
    )
    with start(pooler) as client:
        found = client.login("alice", "app", PASSWORDS["alice"], protocol=0x30002, cut=int(cut), **{"_pq_.x": "1"})
        assert negotiations(found) == [b"\0\3\0\2\0\0\0\1_pq_.x\0"]
        assert client.query("select 1")[-1].payload == b"I"


def test_protocol_options_with_the_known_version(make_pooler: MakePooler) -> None:
    """Unknown protocol options alone are negotiated, too."""
    with start(make_pooler()) as client:
        assert len(negotiations(client.login("alice", "app", "alice-secret", **{"_pq_.only": "1"}))) == 1


@pytest.mark.parametrize(("protocol", "text"), [(0x20000, "V2"), (0x40000, "bad packet header")])
def test_other_majors_are_refused(make_pooler: MakePooler, protocol: int, text: str) -> None:
    """Protocol 2.0 and 4.0 are refused with a text."""
    with start(make_pooler()) as client, pytest.raises(LoginRefused, match=text):
        client.login("alice", "app", "alice-secret", protocol=protocol)


def test_large_startup_packet_in_single_bytes(make_pooler: MakePooler) -> None:
    """A start-up packet of 9,900 bytes works even when each byte travels alone."""
    pooler = make_pooler(ignore_startup_parameters="filler")
    with start(pooler) as client:
        client.login("alice", "app", "alice-secret", cut=1, filler="x" * 9800)
        assert client.query("select 1")[-1].payload == b"I"


def test_oversized_startup_packet_is_refused(make_pooler: MakePooler) -> None:
    """Past PostgreSQL's 10,000 bytes the connection ends, with a clear error or at once."""
    with start(make_pooler(ignore_startup_parameters="filler")) as client, pytest.raises(Exception, match="bad packet"):
        client.login("alice", "app", "alice-secret", filler="x" * 11000)


def test_password_of_sixty_kilobytes(make_pooler: MakePooler, cut: bool) -> None:
    """A password of 60 KB that is wrong is refused as wrong, and the pooler goes on."""
    pooler = make_pooler(auth_type="plain")
    with start(pooler) as client, pytest.raises(LoginRefused, match="password authentication failed"):
        client.login("alice", "app", "p" * 60000, cut=4000 if cut else 0)
    with start(pooler) as client:
        client.login("alice", "app", "alice-secret")


def test_server_login_in_single_bytes(pg15: Postgres, engine: str) -> None:
    """A server whose login, SCRAM included, travels byte by byte both ways is logged in to and relayed."""
    slow = Fault(chunk=1)
    settings = {"engine": engine, "auth_type": "trust", "server_tls_sslmode": "disable"}
    with BrokenProxy((pg15.host, pg15.port), up=slow, down=slow) as proxy:
        entry = proxy.database(user="scram_user", password=PASSWORDS["scram_user"])
        with Pooler({"app": entry}, **settings) as pooler:
            assert pooler.query("select current_user, repeat('x', 3000)") == [("scram_user", "x" * 3000)]


def test_memory_stays_flat_over_negotiating_logins(make_pooler: MakePooler) -> None:
    """Thousands of logins with protocol options leave no memory behind worth speaking of."""
    pooler = make_pooler(auth_type="trust", log_connections=0, log_disconnections=0)

    def rss_kb() -> int:
        (worker,) = pooler.worker_pids()
        with open(f"/proc/{worker}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    def logins(count: int) -> None:
        for _ in range(count):
            with start(pooler) as client:
                client.login("alice", "app", protocol=0x3270F, **{f"_pq_.option{n}": "x" for n in range(20)})
                client.send(m.TERMINATE)

    logins(1500)
    before = rss_kb()
    logins(2500)
    assert rss_kb() - before < 2000
