"""Behind a balancer that speaks the PROXY protocol: clients are who they are, and nobody can pretend to be another."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgshoal.bench.targets.balancer import Balancer
from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import Closed, FakeClient, LoginRefused
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres
from tests.wire.test_proxy import LOCAL, PROXY, TCP4, UNSPEC, header, tcp

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

#: The balancers' network; who comes from another address of loopback is no balancer.
BALANCER = "127.0.0.2"
ON = {"proxy_protocol": "on", "proxy_protocol_networks": f"{BALANCER}, 10.0.0.0/8"}


@pytest.fixture
def pooler(make: MakePooler) -> Pooler:
    """A pooler behind balancers."""
    return make(auth_type="trust", **ON)


def passed(peer: str, port: int = 40001) -> bytes:
    """The header of a client with this address."""
    return header(PROXY, TCP4, tcp(peer, port, "198.51.100.1", 5432))


def arrive(pooler: Pooler, first: bytes, source: str = BALANCER) -> FakeClient:
    """Connects from there and sends this before everything else."""
    client = FakeClient((pooler.host, pooler.port), source=source)
    client.send(first)
    return client


def closed(client: FakeClient) -> bool:
    """Whether the pooler closes without a word."""
    try:
        client.read_bytes(1)
    except Closed:
        return True
    return False


def rows(pooler: Pooler) -> list[dict[str, Any]]:
    """SHOW CLIENTS without the consoles."""
    return [row for row in pooler.admin("SHOW CLIENTS") if row["database"] != "pgbouncer"]


def test_the_clients_address_everywhere(pooler: Pooler) -> None:
    """SHOW CLIENTS, the log and application_name have the address of the header."""
    with arrive(pooler, passed("192.0.2.7") + m.startup({"user": "alice", "database": "app"})) as c:
        c.finish_login("alice", "")
        assert c.query("select 1")[-1].kind == "Z"
        (row,) = rows(pooler)
        assert [row[name] for name in ("addr", "port", "local_addr", "local_port")] == [
            "192.0.2.7", 40001, "198.51.100.1", 5432,
        ]  # fmt: skip
        assert "app/alice@192.0.2.7:40001 login attempt" in pooler.log_text()
    until(lambda: "app/alice@192.0.2.7:40001 closing because" in pooler.log_text(), "the end in the log")


def test_a_header_in_single_bytes(pooler: Pooler) -> None:
    """And a login in single bytes behind it."""
    with arrive(pooler, b"") as c:
        c.send_cut(passed("192.0.2.7"), pause_s=0.002)
        c.login("alice", "app", cut=1)
        assert rows(pooler)[0]["addr"] == "192.0.2.7"


@pytest.mark.parametrize("first", [header(LOCAL, UNSPEC, b""), header(PROXY, UNSPEC, b"")])
def test_the_balancers_own_connections(pooler: Pooler, first: bytes) -> None:
    """They have the balancer's address."""
    with arrive(pooler, first) as c:
        c.login("alice", "app")
        assert rows(pooler)[0]["addr"] == BALANCER


@pytest.mark.parametrize(
    "first", [m.startup({"user": "alice", "database": "app"}), b"\0\0\0\x08\x04\xd2\x16\x2f", b"PROXY UNKNOWN\r\n"]
)
def test_a_balancer_must_send_a_header(pooler: Pooler, first: bytes) -> None:
    """Without one, or with one of version 1, it is closed, and others go on."""
    with arrive(pooler, first) as c:
        assert closed(c)
    until(lambda: f"closing connection from {BALANCER}:" in pooler.log_text(), "a line in the log")
    with arrive(pooler, passed("192.0.2.7")) as c:
        c.login("alice", "app")


def test_nobody_else_may_send_one(pooler: Pooler) -> None:
    """From elsewhere it is no startup packet; who sends none there is a client like any other, on Unix sockets too."""
    with arrive(pooler, passed("192.0.2.7"), "127.0.0.3") as c:
        c.read_to_end()
    assert "login attempt" not in pooler.log_text()
    with arrive(pooler, b"", "127.0.0.3") as c:
        c.login("alice", "app")
        assert rows(pooler)[0]["addr"] == "127.0.0.3"
    with FakeClient(f"{pooler.socket_dir}/.s.PGSQL.{pooler.port}") as c:
        c.login("alice", "app")
        assert "unix" in [row["addr"] for row in rows(pooler)]


def test_a_silent_balancer_is_closed(make: MakePooler) -> None:
    """client_login_timeout begins with the connection, and there is one for header and login together."""
    pooler = make(auth_type="trust", client_login_timeout=1, **ON)
    with arrive(pooler, passed("192.0.2.7")[:20]) as half, arrive(pooler, passed("192.0.2.7")) as whole:
        assert closed(half)
        assert m.error_fields(whole.read_to_end()[0].payload)["M"] == "client_login_timeout"


def test_hba_sees_the_client(make: MakePooler) -> None:
    """A line for an address is for clients with that address, not for the balancer that brings them."""
    text = "host all all 192.0.2.0/24 trust\nhost all all 127.0.0.2/32 reject\nlocal all all trust\n"
    # Not pytest's own folder, which other accounts cannot read.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        hba = Path(folder) / "hba.conf"
        hba.write_text(text)
        pooler = make(auth_type="hba", auth_hba_file=hba, **ON)
    with arrive(pooler, passed("192.0.2.7")) as c:
        c.login("alice", "app")
    for first in (passed("203.0.113.9"), header(LOCAL, UNSPEC, b"")):
        with arrive(pooler, first) as c, pytest.raises(LoginRefused):
            c.login("alice", "app")


def test_a_cancel_request_through_the_balancer(pooler: Pooler) -> None:
    """It brings its own header, and arrives."""
    with arrive(pooler, passed("192.0.2.7")) as c:
        c.login("alice", "app")

        def cancel() -> None:
            with arrive(pooler, passed("192.0.2.8") + m.cancel_request(c.key)) as carrier:
                closed(carrier)

        timer = threading.Timer(0.3, cancel)
        timer.start()
        answer = c.query("select pg_sleep(20)")
        timer.join()
        (error,) = [message for message in answer if message.kind == "E"]
        assert m.error_fields(error.payload)["C"] == "57014"
    assert "@192.0.2.8:40001 closing because: successfully sent cancel request" in pooler.log_text()


def test_a_balancer_of_the_trade(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """HAProxy passes clients on, in TLS too, and its checks are no trouble."""
    settings = tls_client_side(authority.server, "allow") | {"auth_type": "scram-sha-256"} | ON
    pooler = make({"app": database(pg15)}, userlist={**PASSWORDS, "admin": "admin-secret"}, **settings)
    options = f"source {BALANCER} send-proxy-v2 check inter 100ms"
    with Balancer([(pooler.host, pooler.port)], options) as balancer:
        tls: dict[str, Any] = {
            "sslmode": "verify-full",
            "sslrootcert": str(authority.ca_file),
            "channel_binding": "require",
        }
        for how in (tls, {"sslmode": "disable"}):
            dsn = f"host={balancer.host} port={balancer.port} user=alice dbname=app password={PASSWORDS['alice']}"
            with psycopg.connect(dsn, **how) as conn:
                own = socket.socket(fileno=conn.fileno())
                try:
                    port = own.getsockname()[1]
                finally:
                    own.detach()
                assert conn.execute("select 1").fetchone() == (1,)
                found = pooler.admin("SHOW CLIENTS", password="admin-secret")
                assert (balancer.host, port) in [(row["addr"], row["port"]) for row in found]
    assert "PROXY header" not in pooler.log_text()


def test_a_fleet_keeps_them_apart(make: MakePooler, pg15: Postgres) -> None:
    """Whoever reads a header, every client has its own address, all workers get some, and a restart changes none."""
    pooler = make({"app": database(pg15)}, workers=3, auth_type="trust", **ON)
    # All have looked at one another by then.
    until(lambda: [row["uptime"] > 0 for row in pooler.admin("SHOW WORKERS")] == [True] * 3, "all workers")
    wanted = {(f"192.0.2.{number}", 1000 + number): f"c{number}" for number in range(1, 31)}
    clients = [arrive(pooler, passed(*end)) for end in wanted]
    for c, name in zip(clients, wanted.values(), strict=True):
        c.login("alice", "app", application_name=name)

    def seen() -> dict[tuple[str, int], str]:
        return {(row["addr"], row["port"]): row["application_name"] for row in rows(pooler)}

    assert seen() == wanted
    assert len({c.key[0] for c in clients}) == 3
    pooler.admin("RESTART")
    for c in clients:
        assert c.query("select 1")[-1].kind == "Z"
    assert seen() == wanted
    for c in clients:
        c.close()


def test_clients_handed_on_keep_their_addresses(make: MakePooler, pg15: Postgres) -> None:
    """Two workers hand nearly all they accept to a third (pack): header and login come to it, whole or in pieces."""
    # Strangers may share the port, so the kernel is not steered: its hash spreads what pack then puts together.
    pooler = make({"app": database(pg15)}, workers=3, auth_type="trust", accept_balance="pack", so_reuseport=1, **ON)
    until(lambda: [row["uptime"] > 0 for row in pooler.admin("SHOW WORKERS")] == [True] * 3, "all workers")
    wanted: dict[tuple[str, int], str] = {}
    clients: list[FakeClient] = []
    with ExitStack() as stack:

        def enter(source: str, first: bytes = b"", cut: int = 0) -> FakeClient:
            client = stack.enter_context(arrive(pooler, b"" if cut else first, source))
            clients.append(client)
            if cut:
                client.send_cut(first, size=cut, pause_s=0.002)
            client.login("alice", "app", cut=cut, application_name=f"c{len(clients)}")
            return client

        for number in range(1, 25):
            end = f"192.0.2.{number}", 1000 + number
            if number % 6 == 0:  # no balancer: who it is
                end = enter("127.0.0.3").socket.getsockname()
            else:
                enter(BALANCER, passed(*end), cut=number % 3)
            wanted[end] = f"c{number}"
        assert max(Counter(client.key[0] for client in clients).values()) > 12  # of 24: 16, less if it was busy
        assert {(row["addr"], row["port"]): row["application_name"] for row in rows(pooler)} == wanted
        for client in clients:
            assert client.query("select 1")[-1].kind == "Z"
