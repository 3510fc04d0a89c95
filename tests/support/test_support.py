"""The test tools themselves, tried on real servers before anything is judged with them."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient, LoginRefused
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.postgres import PASSWORDS, Postgres
from tests.support.proxy import BrokenProxy, Ending, Fault


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


def test_proxy_resets(pg15: Postgres) -> None:
    """A reset is one for the reader, not just an end."""
    with BrokenProxy((pg15.host, pg15.port)) as proxy, FakeClient((proxy.host, proxy.port)) as client:
        client.login("alice", "app")
        proxy.cut(Ending.RESET)
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)


def test_proxy_half_closes(pg15: Postgres) -> None:
    """The reader sees the end, while the other side is still there and hears what is sent to it."""
    with BrokenProxy((pg15.host, pg15.port)) as proxy, FakeClient((proxy.host, proxy.port)) as client:
        client.login("alice", "app", application_name="half")
        proxy.down.become(Fault(cut_within=1, ending=Ending.HALF))
        client.send(m.query("select 1"))
        assert client.read_to_end() == []
        client.send(m.query("select 'heard'"))
        asked = "select query from pg_stat_activity where application_name = 'half'"
        until(lambda: pg15.query(asked) == [("select 'heard'",)], "the server hears it")


def test_proxy_lets_answers_overtake_each_other(pg15: Postgres) -> None:
    """With jitter, answers of several connections come in another order than the questions went."""
    with BrokenProxy((pg15.host, pg15.port)) as proxy, ExitStack() as stack:
        clients = [stack.enter_context(FakeClient((proxy.host, proxy.port))) for _ in range(8)]
        for client in clients:
            client.login("alice", "app")
        proxy.down.jitter_s = 0.1
        order: list[FakeClient] = []

        def ask(client: FakeClient) -> None:
            client.query("select 1")
            order.append(client)

        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert order != clients


def test_proxy_rewrites(pg15: Postgres) -> None:
    """What a connection is told can be changed, by the number of the connection."""
    with BrokenProxy((pg15.host, pg15.port)) as proxy, FakeClient((proxy.host, proxy.port)) as client:
        client.login("alice", "app")
        proxy.down.rewrite = lambda number, block: block.replace(b"true", b"lies" if number == 0 else b"what")
        assert client.query("select 'true'")[1].payload.endswith(b"lies")
