"""TLS on both sides: the modes, certificates, direct TLS, and material that changes under way."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from contextlib import closing
from pathlib import Path

import pg8000.dbapi
import psycopg
import pytest

from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres


def trust(authority: Authority, **more: str) -> dict[str, str]:
    """What a client needs to verify the pooler."""
    return {"sslmode": "verify-full", "sslrootcert": str(authority.ca_file), **more}


def shown_tls(pooler: Pooler) -> str:
    """The tls= of the last login attempt in the log."""
    return pooler.log_text().rpartition(" tls=")[2].split()[0]


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
def test_client_modes(pg15: Postgres, engine: str, authority: Authority, mode: str) -> None:
    """Who gets in with TLS, without it, and with a certificate, ours or of somebody else, in each mode."""
    settings = tls_client_side(authority.server, mode) | {"client_tls_ca_file": authority.ca_file}
    pair = authority.issue("alice", common_name="alice")
    with_certificate = trust(authority, sslcert=str(pair.cert), sslkey=str(pair.key))

    def enters(**how: str) -> bool:
        try:
            return pooler.query("select 1", **how) == [(1,)]
        except psycopg.OperationalError:
            return False

    foreign = Authority().issue("alice", common_name="alice")
    of_somebody_else = trust(authority, sslcert=str(foreign.cert), sslkey=str(foreign.key))
    pair.key.chmod(0o600)
    foreign.key.chmod(0o600)
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="trust", **settings) as pooler:
        assert enters(sslmode="disable") is (mode in ("disable", "allow", "prefer"))
        assert enters(**trust(authority)) is (mode in ("allow", "prefer", "require"))
        assert enters(**with_certificate) is (mode != "disable")
        assert not enters(**of_somebody_else)  # it could pass for alice's, where a line of the hba file says cert


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_direct_tls(pg15: Postgres, engine: str, authority: Authority, version: ssl.TLSVersion) -> None:
    """A handshake without SSLRequest, with ALPN, and then an ordinary login."""
    settings = tls_client_side(authority.server)
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["postgresql"])
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="scram-sha-256", **settings) as pooler:
        c = FakeClient((pooler.host, pooler.port))
        with context.wrap_socket(c.socket, server_hostname="localhost") as wrapped:
            c.socket = wrapped
            assert wrapped.selected_alpn_protocol() == "postgresql"
            c.login("alice", "app", PASSWORDS["alice"])
            assert c.query("select 1")[-1].kind == "Z"
        assert shown_tls(pooler).startswith(version.name.replace("_", ".") + "/")


def test_bytes_before_the_handshake_are_refused(pg15: Postgres, engine: str, authority: Authority) -> None:
    """A startup packet behind the SSLRequest in one write is never read as if it came inside TLS."""
    with Pooler(
        {"app": database(pg15)}, engine=engine, auth_type="trust", **tls_client_side(authority.server)
    ) as pooler:
        with FakeClient((pooler.host, pooler.port)) as c:
            c.send(b"\0\0\0\x08\x04\xd2\x16\x2f", m.startup({"user": "alice", "database": "app"}))
            (refused,) = c.read_to_end()
            assert m.error_fields(refused.payload)["M"] == "received unencrypted data after SSL request"
        assert "login attempt" not in pooler.log_text()


def test_a_failed_handshake_ends_one_connection(pg15: Postgres, engine: str, authority: Authority) -> None:
    """Rubbish instead of a handshake closes it, with a warning, and others go on."""
    with Pooler(
        {"app": database(pg15)}, engine=engine, auth_type="trust", **tls_client_side(authority.server)
    ) as pooler:
        with FakeClient((pooler.host, pooler.port)) as c:
            c.send(b"\0\0\0\x08\x04\xd2\x16\x2f")
            assert c.read_bytes(1) == b"S"
            c.send(b"rubbish" * 100)
            c.socket.settimeout(10)
            while True:
                try:
                    if not c.socket.recv(1000):
                        break
                except ConnectionResetError:
                    break
        assert pooler.query("select 1", **trust(authority)) == [(1,)]
        assert "TLS handshake error: " in pooler.log_text()


def test_large_results_through_tls_on_both_sides(pg15: Postgres, engine: str, authority: Authority) -> None:
    """A result of some megabytes arrives whole, whatever way the records are cut."""
    settings = tls_client_side(authority.server) | {"server_tls_sslmode": "require", "auth_type": "trust"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        sql = "select md5(g::text) from generate_series(1, 100000) g"
        assert pooler.query(sql, **trust(authority)) == pg15.query(sql, dbname="app")


@pytest.mark.parametrize(
    ("mode", "ca", "host", "works"),
    [
        ("require", False, "127.0.0.1", True),
        ("verify-ca", True, "127.0.0.1", True),
        ("verify-full", True, "127.0.0.1", True),
        ("verify-full", True, "localhost", True),
        ("verify-ca", False, "127.0.0.1", False),
    ],
)
def test_server_modes(
    pg15: Postgres, engine: str, authority: Authority, mode: str, ca: bool, host: str, works: bool
) -> None:
    """The server's certificate is checked as far as the mode asks; one that fails leaves the client waiting."""
    settings = {"server_tls_sslmode": mode, "auth_type": "trust", "client_login_timeout": 2, "server_login_retry": 1}
    if ca:
        settings["server_tls_ca_file"] = authority.ca_file
    entry = f"host={host} port={pg15.port} dbname=app"
    with Pooler({"app": entry}, engine=engine, **settings) as pooler:
        if works:
            assert pooler.query("select ssl from pg_stat_ssl where pid = pg_backend_pid()") == [(True,)]
            return
        with pytest.raises(psycopg.OperationalError, match="client_login_timeout"):
            pooler.query("select 1")
        assert "TLS handshake error: " in pooler.log_text()


def test_a_certificate_for_another_name_is_refused(pg15: Postgres, engine: str) -> None:
    """verify-full looks at the name, verify-ca does not."""
    other = Authority()
    other.server = other.issue("other", "db.example")
    listen = {"unix_socket_dir": "", "auth_type": "trust"}
    # A pooler that speaks TLS to its clients serves as the server with the wrong name.
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="trust", **tls_client_side(other.server)) as server:
        entry = f"host=127.0.0.1 port={server.port} dbname=app"
        ca = {"server_tls_ca_file": other.ca_file, "client_login_timeout": 2, "server_login_retry": 1} | listen
        with Pooler({"app": entry}, engine=engine, server_tls_sslmode="verify-ca", **ca) as pooler:
            assert pooler.query("select 1") == [(1,)]
        with (
            Pooler({"app": entry}, engine=engine, server_tls_sslmode="verify-full", **ca) as pooler,
            pytest.raises(psycopg.OperationalError, match="client_login_timeout"),
        ):
            pooler.query("select 1")


def test_channel_binding_to_the_server(pg15: Postgres, engine: str) -> None:
    """Over TLS the server offers SCRAM-SHA-256-PLUS and the pooler logs in with it."""
    settings = {"server_tls_sslmode": "require", "auth_type": "scram-sha-256"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        got = pooler.query("select current_user::text", user="tls_user", password=PASSWORDS["tls_user"])
        assert got == [("tls_user",)]


def test_renewed_certificates_are_used_after_a_reload(pg15: Postgres, engine: str, tmp_path: Path) -> None:
    """New connections see the new certificate; those that exist go on."""
    old, new = Authority(), Authority()
    folder = old.folder
    for name in ("cert", "key"):
        (folder / name).write_bytes(getattr(old.server, name).read_bytes())
        (folder / name).chmod(0o644)
    settings = {
        "client_tls_sslmode": "require",
        "client_tls_cert_file": folder / "cert",
        "client_tls_key_file": folder / "key",
        "auth_type": "trust",
    }
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler, pooler.connect(**trust(old)) as before:
        for name in ("cert", "key"):
            (folder / name).write_bytes(getattr(new.server, name).read_bytes())
        pooler.signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while not accepted(pooler, new) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert accepted(pooler, new)
        assert not accepted(pooler, old)
        assert before.execute("select 1").fetchall() == [(1,)]


def accepted(pooler: Pooler, authority: Authority) -> bool:
    """Whether a client that trusts this authority can log in."""
    try:
        return pooler.query("select 1", **trust(authority)) == [(1,)]
    except psycopg.OperationalError:
        return False


def test_a_login_cut_into_single_bytes_inside_tls(pg15: Postgres, engine: str, authority: Authority) -> None:
    """Records of one byte each are put together like any other cut."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    settings = tls_client_side(authority.server) | {"auth_type": "scram-sha-256"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        c = FakeClient((pooler.host, pooler.port))
        c.send(b"\0\0\0\x08\x04\xd2\x16\x2f")
        assert c.socket.recv(1) == b"S"
        with context.wrap_socket(c.socket, server_hostname="localhost") as wrapped:
            c.socket = wrapped
            wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            c.login("alice", "app", PASSWORDS["alice"], cut=1)
            assert c.query("select 1")[-1].kind == "Z"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_channel_binding(pg15: Postgres, engine: str, authority: Authority, version: str) -> None:
    """libpq binds its login to our certificate when it is told to; SCRAM pass-through works with it."""
    with pg15.connect() as direct:
        secret = direct.execute("select rolpassword from pg_authid where rolname = 'alice'").fetchone()
    assert secret is not None
    settings = tls_client_side(authority.server) | {"userlist": {"alice": secret[0]}, "auth_type": "scram-sha-256"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        versions = {"ssl_min_protocol_version": version, "ssl_max_protocol_version": version}
        how = trust(authority, password=PASSWORDS["alice"], **versions)
        for binding in ("require", "prefer", "disable"):
            assert pooler.query("select current_user", channel_binding=binding, **how) == [("alice",)]
        for wrong in ({"password": "wrong"}, {"user": "stranger", "password": "x"}):
            with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
                pooler.query("select 1", channel_binding="require", **{**how, **wrong})


def test_channel_binding_by_another_implementation(pg15: Postgres, engine: str, authority: Authority) -> None:
    """pg8000, whose SCRAM is its own, takes SCRAM-SHA-256-PLUS in TLS, and a wrong password is one there, too."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    settings = tls_client_side(authority.server, "allow") | {"auth_type": "scram-sha-256"}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:

        def mechanism(secret: str, tls: ssl.SSLContext | bool) -> object:
            where = {"host": "localhost", "port": pooler.port, "database": "app"}
            conn = pg8000.dbapi.connect(user="alice", password=secret, ssl_context=tls, **where)
            with closing(conn), closing(conn.cursor()) as cursor:
                cursor.execute("select current_user::text")
                assert list(cursor.fetchone()) == ["alice"]
                return conn.auth.mechanism_name

        assert mechanism(PASSWORDS["alice"], context) == "SCRAM-SHA-256-PLUS"
        assert mechanism(PASSWORDS["alice"], False) == "SCRAM-SHA-256"
        with pytest.raises(pg8000.dbapi.DatabaseError, match="SASL authentication failed"):
            mechanism("wrong", context)


def test_channel_binding_follows_the_certificate(pg15: Postgres, engine: str) -> None:
    """After a reload with another certificate new logins are bound to that one."""
    authority = Authority()
    userlist = {**PASSWORDS, "admin": "admin-secret"}
    settings = tls_client_side(authority.server) | {"auth_type": "scram-sha-256", "userlist": userlist}
    with Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler:
        bound = trust(authority, channel_binding="require", password=PASSWORDS["alice"])
        with pooler.connect(**bound) as kept:
            other = authority.issue("next", "localhost", "127.0.0.1")
            authority.server.cert.write_bytes(other.cert.read_bytes())
            authority.server.key.write_bytes(other.key.read_bytes())
            pooler.admin("reload", **trust(authority, password=userlist["admin"]))
            assert pooler.query("select 1", **bound) == [(1,)]
            assert kept.execute("select 1").fetchone() == (1,)


def test_no_channel_binding_without_tls(pg15: Postgres, engine: str, authority: Authority) -> None:
    """There it is not offered, so a client that insists gives up."""
    settings = tls_client_side(authority.server, "allow") | {"auth_type": "scram-sha-256"}
    with (
        Pooler({"app": database(pg15)}, engine=engine, **settings) as pooler,
        pytest.raises(psycopg.OperationalError, match="channel binding"),
    ):
        pooler.query("select 1", sslmode="disable", channel_binding="require")
