"""TLS versions, ciphers, curves and certificates: what both sides of a connection come to, as the console shows it."""

from __future__ import annotations

import ssl
from typing import Any

import psycopg
import pytest

from tests.e2e.conftest import MakePooler
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

AES_128, AES_256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
CHACHA_13 = "TLS_CHACHA20_POLY1305_SHA256"


def shown(pooler: Pooler, command: str, user: str) -> str:
    """The tls column of this user's row."""
    (found,) = [row["tls"] for row in pooler.admin(command) if row["user"] == user]
    return str(found)


def met(pooler: Pooler) -> str:
    """What a client with TLS is shown as; its library takes anything."""
    with pooler.connect(sslmode="require"):
        return shown(pooler, "show clients", "alice")


def brought(pooler: Pooler, user: str = "alice") -> str:
    """What a server connection is shown as."""
    with pooler.connect(user=user) as conn:
        conn.execute("select 1")
        return shown(pooler, "show servers", user)


@pytest.mark.parametrize(("protocols", "version"), [("tlsv1.2", "TLSv1.2"), ("secure", "TLSv1.3")])
def test_versions_with_clients(make: MakePooler, authority: Authority, protocols: str, version: str) -> None:
    """client_tls_protocols names the versions that are taken, the highest of which is used."""
    pooler = make(**tls_client_side(authority.server, "allow"), client_tls_protocols=protocols)
    assert met(pooler).startswith(f"{version}/")


def test_a_version_that_is_not_taken(make: MakePooler, authority: Authority) -> None:
    """A client that must have another version is refused in the handshake, and the log says so."""
    pooler = make(**tls_client_side(authority.server, "allow"), client_tls_protocols="tlsv1.2")
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(m.SSL_REQUEST)
        assert client.read_bytes(1) == b"S"
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(client.socket, server_hostname="localhost")
    assert "WARNING" in pooler.log_text()
    assert "TLS handshake error: " in pooler.log_text()


@pytest.mark.parametrize("cipher", [AES_128, AES_256])
def test_ciphers_with_clients(make: MakePooler, authority: Authority, cipher: str) -> None:
    """client_tls_ciphers chooses among those of TLS 1.2."""
    pooler = make(
        **tls_client_side(authority.server, "allow"), client_tls_protocols="tlsv1.2", client_tls_ciphers=cipher
    )
    assert met(pooler) == f"TLSv1.2/{cipher}"


def test_suites_with_clients(make: MakePooler, authority: Authority, engine: str) -> None:
    """client_tls13_ciphers chooses among those of TLS 1.3; the twin refuses to start with it."""
    settings = {**tls_client_side(authority.server, "allow"), "client_tls13_ciphers": CHACHA_13}
    if engine == "python":
        with pytest.raises(RuntimeError, match=r"cannot choose TLS 1\.3 ciphers"):
            make(**settings)
        return
    assert met(make(**settings)) == f"TLSv1.3/{CHACHA_13}"


def test_a_curve_with_clients(make: MakePooler, authority: Authority) -> None:
    """client_tls_ecdhcurve is the only one that is taken."""
    pooler = make(**tls_client_side(authority.server, "allow"), client_tls_ecdhcurve="P-384")
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    for curve, enters in (("secp384r1", True), ("prime256v1", False)):
        context.set_ecdh_curve(curve)
        with FakeClient((pooler.host, pooler.port)) as client:
            client.send(m.SSL_REQUEST)
            assert client.read_bytes(1) == b"S"
            if enters:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                client.login("alice", "app")
            else:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(client.socket, server_hostname="localhost")


def test_an_unknown_curve(make: MakePooler, authority: Authority) -> None:
    """It is named, and nothing starts."""
    with pytest.raises(RuntimeError, match="client_tls_ecdhcurve = brainpool17"):
        make(**tls_client_side(authority.server, "allow"), client_tls_ecdhcurve="brainpool17")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"server_tls_protocols": "tlsv1.2", "server_tls_ciphers": AES_128}, f"TLSv1.2/{AES_128}"),
        ({"server_tls_protocols": "tlsv1.2", "server_tls_ciphers": AES_256}, f"TLSv1.2/{AES_256}"),
        ({"server_tls_protocols": "tlsv1.3"}, "TLSv1.3/"),
    ],
)
def test_versions_and_ciphers_with_servers(make: MakePooler, more: dict[str, Any], expected: str) -> None:
    """server_tls_protocols and server_tls_ciphers choose for our own connections; the log tells what came of it."""
    pooler = make(server_tls_sslmode="require", **more)
    assert brought(pooler).startswith(expected)
    assert f"SSL established: {expected}" in pooler.log_text()


def test_suites_with_servers(make: MakePooler, engine: str) -> None:
    """server_tls13_ciphers chooses among those of TLS 1.3; the twin refuses to start with it."""
    settings = {"server_tls_sslmode": "require", "server_tls13_ciphers": CHACHA_13}
    if engine == "python":
        with pytest.raises(RuntimeError, match=r"cannot choose TLS 1\.3 ciphers"):
            make(**settings)
        return
    assert brought(make(**settings)) == f"TLSv1.3/{CHACHA_13}"


@pytest.mark.parametrize("cipher", [AES_128, AES_256])
def test_ciphers_of_an_entry(make: MakePooler, pg15: Postgres, cipher: str) -> None:
    """server_tls_ciphers of an entry is for its servers."""
    entry = database(pg15, server_tls_sslmode="require", server_tls_protocols="tlsv1.2", server_tls_ciphers=cipher)
    pooler = make({"app": entry})
    assert brought(pooler) == f"TLSv1.2/{cipher}"


def test_suites_of_an_entry(make: MakePooler, pg15: Postgres, engine: str) -> None:
    """server_tls13_ciphers of an entry is for its servers; the twin cannot choose."""
    entry = database(pg15, server_tls_sslmode="require", server_tls13_ciphers=CHACHA_13)
    if engine == "python":
        with pytest.raises(RuntimeError, match=r"cannot choose TLS 1\.3 ciphers"):
            make({"app": entry})
        return
    assert brought(make({"app": entry})) == f"TLSv1.3/{CHACHA_13}"


def test_our_certificate_for_servers(make: MakePooler, authority: Authority) -> None:
    """server_tls_cert_file and server_tls_key_file let us in where the server asks for a certificate."""
    hba = ("local all all trust", "hostssl all alice all cert", "host all all all trust")
    pair = authority.issue("pooler-alice", common_name="alice")
    with Postgres(15, tls=authority, hba=hba) as server:
        entries = {"app": database(server)}
        settings = {"server_tls_sslmode": "require", "server_login_retry": 0}
        shown_one = {"server_tls_cert_file": pair.cert, "server_tls_key_file": pair.key}
        assert brought(make(entries, **settings, **shown_one)).startswith("TLSv1.3/")
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            make(entries, **settings).query("select 1")


def test_settings_without_a_meaning_here(make: MakePooler, authority: Authority) -> None:
    """client_tls_dheparams, sbuf_loopcnt and job_name are taken, shown, and said nothing about."""
    given = {"client_tls_dheparams": "legacy", "sbuf_loopcnt": "1", "job_name": "my-pool"}
    pooler = make(**tls_client_side(authority.server, "allow"), **given)
    assert met(pooler).startswith("TLSv1.3/")
    rows = {row["key"]: row["value"] for row in pooler.admin("show config")}
    assert {name: rows[name] for name in given} == given
    assert "not built" not in pooler.log_text()
