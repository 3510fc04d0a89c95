"""The test tools themselves, tried on real servers before anything is judged with them."""

from __future__ import annotations

import pytest

from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient, LoginRefused
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.postgres import PASSWORDS, Postgres
from tests.support.proxy import BrokenProxy, Fault


@pytest.mark.parametrize("user", sorted(PASSWORDS.keys() - {"tls_user"}))
def test_fake_client_logs_in_by_every_method(pg: Postgres, user: str) -> None:
    """Trust, plain, md5 and SCRAM logins all reach ReadyForQuery on a real server, also written byte by byte."""
    for cut in (0, 1):
        with FakeClient((pg.host, pg.port)) as client:
            client.login(user, "app", PASSWORDS[user], cut=cut)
            assert len(client.key) == 8
            kinds = "".join(kind for kind, _ in client.query("select 1"))
            assert kinds == "TDCZ"


def test_fake_client_reports_a_refused_login(pg15: Postgres) -> None:
    """A wrong SCRAM password is reported with the server's SQLSTATE."""
    with FakeClient((pg15.host, pg15.port)) as client:
        with pytest.raises(LoginRefused) as refused:
            client.login("scram_user", "app", "wrong")
        assert refused.value.fields["C"] == "28P01"


def test_server_with_tls_refuses_plain_connections_where_told(pg15: Postgres) -> None:
    """The user reserved for TLS is turned away without it and let in with it."""
    with FakeClient((pg15.host, pg15.port)) as client, pytest.raises(LoginRefused):
        client.login("tls_user", "app", PASSWORDS["tls_user"])
    rows = pg15.query(
        "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
        user="tls_user",
        password=PASSWORDS["tls_user"],
        dbname="app",
        sslmode="verify-full",
        sslrootcert=str(pg15.tls.ca_file) if pg15.tls else "",
    )
    assert rows == [(True,)]


def test_fake_server_answers_and_records() -> None:
    """An honest script logs a client in, answers a query and keeps what was sent."""
    with FakeServer() as server, FakeClient((server.host, server.port)) as client:
        client.login("alice", "app", application_name="me")
        assert client.parameters["server_version"] == "15.0"
        answer = client.query("hello")
        assert answer[1].payload.endswith(b"hello")
        seen = server.wait_for(1)
        assert seen.startup["application_name"] == "me"
        assert [got.kind for got in seen.received] == ["Q"]


def test_a_mistake_in_a_script_fails_the_test() -> None:
    """An assertion inside a script is raised where the server is closed."""

    def script(server: ServerSide) -> None:
        server.read_startup()
        raise AssertionError("not what the script expected")

    def visit() -> None:
        with FakeServer(script) as server, FakeClient((server.host, server.port)) as client:
            client.send(m.startup({"user": "alice"}))
            assert client.read_to_end() == []

    with pytest.raises(AssertionError, match="not what the script expected"):
        visit()


def test_proxy_splits_and_cuts(pg15: Postgres) -> None:
    """A login passes a proxy that forwards single bytes; a cut ends the connection in the middle of a message."""
    with BrokenProxy((pg15.host, pg15.port), up=Fault(chunk=1), down=Fault(chunk=1)) as proxy:
        with FakeClient((proxy.host, proxy.port)) as client:
            client.login("scram_user", "app", PASSWORDS["scram_user"])
            proxy.down.cut_within = 1
            client.send(m.query("select 1"))
            with pytest.raises(Closed):
                client.read()
        assert proxy.connections == 1


def test_proxy_cut_ends_open_connections(pg15: Postgres) -> None:
    """A cut from outside closes what is open and leaves the proxy usable."""
    with BrokenProxy((pg15.host, pg15.port)) as proxy:
        with FakeClient((proxy.host, proxy.port)) as client:
            client.login("alice", "app")
            proxy.cut()
            with pytest.raises(Closed):
                client.read()
        with FakeClient((proxy.host, proxy.port)) as client:
            client.login("alice", "app")
