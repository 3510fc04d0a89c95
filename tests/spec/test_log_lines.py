"""Lines of the log that clients, servers and operators cause, each from a real cause."""

from __future__ import annotations

import re
import signal

import psycopg
import pytest

from pgshoal.auth.md5 import md5_secret
from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

STAMP = re.compile(r"^\S+ \S+ \S+ \[\d+\] ", re.MULTILINE)
SOCKET = re.compile(r"\b([CS])-0x[0-9a-f]+: (\S+)@\S+ ")


def lines(pooler: Pooler) -> list[str]:
    """The log without times; of a socket's name its side, database and user are left."""
    return [SOCKET.sub(r"\1 \2 ", line) for line in STAMP.sub("", pooler.log_text()).splitlines()]


def said(pooler: Pooler, *wanted: str) -> None:
    """Each of these stands in the log; numbers of seconds do not matter."""

    def missing() -> list[str]:
        found = [re.sub(r"\(age=\d+s\)", "(age=0s)", line) for line in lines(pooler)]
        return [line for line in wanted if line not in found]

    until(lambda: not missing(), f"{missing()} in {lines(pooler)}")


def refusal(pooler: Pooler, user: str = "alice", password: str = "", dbname: str = "app") -> str:
    """The text a login is refused with."""
    with FakeClient((pooler.host, pooler.port)) as client, pytest.raises(LoginRefused) as refused:
        client.login(user, dbname, password)
    return str(refused.value.fields["M"])


def test_an_unknown_user(start: MakePooler) -> None:
    """Who is in no list is told nothing, and the log has the name."""
    pooler = start()
    assert refusal(pooler, "mallory") == '"trust" authentication failed'
    said(
        pooler,
        "LOG C (nodb)/(nouser) no such user: mallory",
        'WARNING C (nodb)/mallory pooler error: "trust" authentication failed',
    )


def test_connect_query_that_fails(make: MakePooler, pg15: Postgres) -> None:
    """Its error is logged and otherwise ignored."""
    pooler = make({"app": database(pg15, connect_query="'select 1/0'")})
    assert pooler.query("select 1") == [(1,)]
    said(pooler, "ERROR S: error while executing exec_on_query: ERROR: division by zero")


def test_connect_query_that_leaves_a_transaction(make: MakePooler, pg15: Postgres) -> None:
    """Its server cannot be used and is closed."""
    pooler = make({"app": database(pg15, connect_query="begin")}, client_login_timeout=2)
    assert "client_login_timeout" in refusal(pooler)
    said(pooler, "LOG S app/alice closing because: exec_on_connect query failed (age=0s)")


def test_auth_query_that_fails(start: MakePooler) -> None:
    """The server's words stand in the log; the client learns nothing of them."""
    pooler = start(auth_type="plain", auth_user="alice", auth_query="select 1/0, $1", userlist={"alice": ""})
    assert refusal(pooler, "zed") == "bouncer config error"
    said(
        pooler,
        "ERROR S: error in auth_query: ERROR: division by zero",
        "LOG S app/alice closing because: error response from auth_query (age=0s)",
    )


def copying(server: ServerSide) -> None:
    """A server that answers a lookup with something no query gives."""
    server.log_in()
    server.read_until("S")
    server.send(m.message(b"1"), m.message(b"2"), m.message(b"G", b"\0\0\0"))
    server.hold()


def test_auth_query_answered_by_something_else(start: MakePooler) -> None:
    """A lookup that begins a COPY ends, with its server."""
    with FakeServer(copying) as server:
        pooler = start({"app": server.database()}, auth_type="plain", auth_user="alice")
        assert refusal(pooler, "zed") == "bouncer config error"
        said(pooler, "LOG S app/alice closing because: unexpected response from auth_query (age=0s)")


@pytest.mark.parametrize(
    ("user", "secret", "line"),
    [
        ("md5_user", "scram", "cannot do MD5 authentication: wrong password type"),
        ("scram_user", "md5", "cannot do SCRAM authentication: wrong password type"),
        (
            "scram_user",
            "scram",
            "cannot do SCRAM authentication: "
            "password is SCRAM secret but client authentication did not provide SCRAM keys",
        ),
    ],
)
def test_secrets_that_do_not_fit(start: MakePooler, pg15: Postgres, user: str, secret: str, line: str) -> None:
    """A stored secret of the wrong kind cannot answer the server, and the log says which kind it wants."""
    known = "select rolpassword from pg_authid where rolname = 'scram_user'"
    kept = pg15.query(known)[0][0] if secret == "scram" else md5_secret(PASSWORDS[user], user)
    pooler = start(userlist={user: str(kept)})
    assert refusal(pooler, user) == "server login failed: wrong password type"
    said(
        pooler,
        f"ERROR S app/{user} {line}",
        f"LOG S app/{user} closing because: failed to answer authreq (age=0s)",
        f"WARNING C app/{user} pooler error: server login failed: wrong password type",
    )


def test_simple_queries_that_are_not_wanted(make: MakePooler) -> None:
    """disable_pqexec refuses them, and the log says what the client used."""
    pooler = make(disable_pqexec=1)
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("alice", "app")
        client.send(m.query("select 1"))
        assert m.error_fields(client.read_to_end()[-1].payload)["M"] == "PQexec disallowed"
    said(pooler, 'ERROR C app/alice client used "Query" packet type')


def test_a_reload_with_tls_that_cannot_be_used(start: MakePooler) -> None:
    """RELOAD fails and keeps everything; the log says that it was TLS."""
    pooler = start()
    for more in ({}, {"client_tls_cert_file": "/nowhere/c", "client_tls_key_file": "/nowhere/k"}):
        pooler.settings |= {"client_tls_sslmode": "require", **more}
        pooler.write_config()
        with pytest.raises(psycopg.Error, match="RELOAD failed, see logs for additional details"):
            pooler.admin("reload")
    said(pooler, "LOG RELOAD command issued", "WARNING config file loading failed")
    assert lines(pooler).count("ERROR TLS configuration could not be reloaded, keeping old configuration") == 2
    assert pooler.query("select 1") == [(1,)]


def test_a_start_with_tls_that_cannot_be_used(start: MakePooler) -> None:
    """Nothing starts, and the setting is named."""
    with pytest.raises(RuntimeError, match=r"FATAL.*client_tls_cert_file"):
        start(client_tls_sslmode="require", client_tls_cert_file="/nowhere/c", client_tls_key_file="/nowhere/k")


def test_a_database_that_leaves_the_file(start: MakePooler, pg15: Postgres) -> None:
    """After a RELOAD it is dropped, and the log says so."""
    pooler = start({"app": database(pg15), "gone": database(pg15)})
    pooler.query("select 1", "gone")
    del pooler.databases["gone"]
    pooler.write_config()
    pooler.admin("reload")
    said(pooler, "WARNING dropping database 'gone' as it does not exist anymore or inactive auto-database")
    assert refusal(pooler, dbname="gone") == "no such database: gone"


def test_bytes_behind_a_gss_request(start: MakePooler) -> None:
    """What is sent before the answer is never read."""
    pooler = start()
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(m.GSSENC_REQUEST, m.startup({"user": "alice", "database": "app"}))
        (refused,) = client.read_to_end()
    assert m.error_fields(refused.payload)["M"] == "received unencrypted data after GSSAPI encryption request"


def test_a_cancel_request_for_the_console(start: MakePooler) -> None:
    """It is understood, and closed with its reason."""
    pooler = start()
    with FakeClient((pooler.host, pooler.port)) as console, FakeClient((pooler.host, pooler.port)) as other:
        console.login("admin", "pgbouncer")
        other.send(m.cancel_request(console.key))
        other.read_to_end()
        said(pooler, "LOG C (nodb)/(nouser) closing because: cancel request for console client (age=0s)")
        assert console.query("show version")[-1].kind == "Z"


def many_parameters(server: ServerSide) -> None:
    """A server that reports a parameter without a value."""
    server.read_startup()
    server.send(m.auth(0), m.message(b"S", b"TimeZone\0"))
    server.hold()


def test_a_broken_parameter(make: MakePooler) -> None:
    """Such a server is not used."""
    with FakeServer(many_parameters) as server:
        pooler = make({"app": server.database()}, client_login_timeout=1, server_login_retry=0.2)
        refusal(pooler)
        said(pooler, "LOG S app/alice closing because: broken ParameterStatus packet (age=0s)")


def unchecked(server: ServerSide) -> None:
    """Answers queries, and the check with a transaction that is left open."""
    server.log_in()
    while True:
        got = server.read()
        if got.kind == "Q" and b"check" in got.payload:
            server.send(m.command_complete("BEGIN"), m.ready("T"))
        elif got.kind == "Q":
            server.answer_rows("1")


def test_a_check_that_fails(make: MakePooler) -> None:
    """A server that does not come out of server_check_query as it went in is closed, and another one serves."""
    with FakeServer(unchecked) as server:
        pooler = make(
            {"app": server.database()}, server_check_delay=0, server_check_query="check", server_login_retry=0
        )
        with FakeClient((pooler.host, pooler.port)) as client:
            client.login("alice", "app")
            client.query("select 1")
            assert client.query("select 1")[-1].kind == "Z"
            said(pooler, "LOG S app/alice closing because: test query failed (age=0s)")


def talkative(server: ServerSide) -> None:
    """Answers one query and then speaks unasked, once it is set aside."""
    server.log_in()
    server.read_until("Q")
    server.answer_rows("1")
    server.hold()


def test_a_server_that_was_set_aside_and_speaks(make: MakePooler) -> None:
    """Nobody has asked it, so it is closed."""
    with FakeServer(talkative) as server:
        pooler = make({"app": server.database()}, server_check_delay=0)
        with FakeClient((pooler.host, pooler.port)) as client:
            client.login("alice", "app")
            client.query("select 1")

            def used() -> bool:
                return any(row["sv_used"] for row in pooler.admin("show pools"))

            until(used, "a server set aside")
            server.connections[0].send(m.data_row("surprise"))
            said(pooler, "LOG S app/alice closing because: SV_USED server got dirty (age=0s)")


def test_an_authority_that_has_left_the_disk(make: MakePooler, authority: Authority, pg15: Postgres) -> None:
    """New attempts fail with a line that names the file; the pooler goes on."""
    pooler = make({"app": database(pg15)}, server_tls_ca_file=authority.ca_file, client_login_timeout=1)
    kept = pooler.write("ca.pem", authority.ca_file.read_text())
    pooler.settings |= {"server_tls_sslmode": "verify-ca", "server_tls_ca_file": kept}
    pooler.write_config()
    pooler.admin("reload")
    kept.unlink()
    assert "client_login_timeout" in refusal(pooler)
    said(pooler, "LOG S app/alice closing because: TLS startup failed (age=0s)")
    assert f"TLS setup failed: server_tls_ca_file: {kept}: No such file or directory" in pooler.log_text()


def test_signals_that_end_it(start: MakePooler) -> None:
    """SIGINT waits for servers to be released, twice means now, SIGQUIT does not wait."""
    pooler = start()
    said_up = [line for line in lines(pooler) if line.startswith("LOG process up: PgBouncer 1.26.1, ")]
    assert len(said_up) == 1
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("alice", "app")
        client.query("begin")
        pooler.signal(signal.SIGINT)
        said(pooler, "LOG got SIGINT, shutting down, waiting for all servers connections to be released")
        pooler.signal(signal.SIGINT)
        pooler.wait()
    said(pooler, "LOG got SIGINT while shutting down, fast exit")
    other = start()
    other.signal(signal.SIGQUIT)
    other.wait()
    said(other, "LOG got SIGQUIT, fast exit")
