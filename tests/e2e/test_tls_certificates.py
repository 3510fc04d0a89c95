"""Certificates made by hand, on both sides: whatever PgBouncer takes where nothing is verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import plaincerts
from tests.support.certs import Authority, Certificate
from tests.support.pooler import Pooler, database, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres


@pytest.fixture(scope="module", params=["rsa-1", "p256-1", "p521-3"])
def plain_server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """PostgreSQL 15 with a certificate of this kind of key and version."""
    kind, _, version = request.param.partition("-")
    authority = Authority()
    authority.server = plaincerts.issue(
        authority.folder, request.param, kind, common_name="localhost", version=int(version)
    )
    with Postgres(15, tls=authority) as server:
        yield server


def is_large(server: Postgres) -> bool:
    """Whether the server's key is on P-521."""
    assert server.tls is not None
    return server.tls.server.cert.stem.startswith("p521")


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_servers_that_nobody_verifies(plain_server: Postgres, engine: str, mode: str) -> None:
    """TLS comes about with any certificate, and so does a login bound to it."""
    # Before TLS 1.3 such a key needs a client that exchanges keys on its curve, too.
    protocols = "tlsv1.2" if mode == "require" and not is_large(plain_server) else "secure"
    settings = {"server_tls_sslmode": mode, "server_tls_protocols": protocols, "auth_type": "scram-sha-256"}
    with Pooler({"app": database(plain_server)}, engine=engine, **settings) as pooler:
        asked = "select ssl, current_user::text from pg_stat_ssl where pid = pg_backend_pid()"
        assert pooler.query(asked, user="tls_user", password=PASSWORDS["tls_user"]) == [(True, "tls_user")]
        assert "TLS handshake error" not in pooler.log_text()


@pytest.mark.parametrize("kind", ["rsa", "p256"])
def test_clients_meet_a_version_1_certificate(pg15: Postgres, engine: str, kind: str) -> None:
    """It is served as it is: libpq verifies it and binds its login to it."""
    folder = Authority().folder
    pair = plaincerts.issue(folder, "old", kind, common_name="localhost", version=1)
    with Pooler({"app": database(pg15)}, engine=engine, auth_type="scram-sha-256", **tls_client_side(pair)) as pooler:
        for mode in ("require", "verify-full"):
            how = {"host": "localhost", "sslmode": mode, "sslrootcert": str(pair.cert), "channel_binding": "require"}
            assert pooler.query("select 1", password=PASSWORDS["alice"], **how) == [(1,)]


def test_pairs_that_cannot_be_used_are_fatal(pg15: Postgres, engine: str) -> None:
    """The line names the setting with its file, and the reason: a key of another certificate, or of an unknown kind."""
    folder = Authority().folder
    old, other = (plaincerts.issue(folder, name, common_name="localhost", version=1) for name in ("old", "other"))
    large = plaincerts.issue(folder, "large", "p521", common_name="localhost")
    bad = [(Certificate(old.cert, other.key), "key values mismatch" if engine == "python" else "does not belong")]
    if engine != "python":
        bad.append((large, "P-521 is not"))
    for pair, reason in bad:
        pooler = Pooler({"app": database(pg15)}, engine=engine, auth_type="trust", **tls_client_side(pair))
        with pytest.raises(RuntimeError) as told, pooler:
            pass
        line = next(line for line in str(told.value).splitlines() if " FATAL " in line)
        assert f"client_tls_key_file = {pair.key}" in line
        assert reason in line


def verifying(server: Postgres, engine: str, ca_file: Path) -> bool:
    """Whether verify-ca with this file lets clients reach the server."""
    settings = {"server_tls_sslmode": "verify-ca", "server_tls_ca_file": ca_file, "auth_type": "trust"}
    waits = {"client_login_timeout": 1, "server_login_retry": 1}
    with Pooler({"app": database(server)}, engine=engine, **settings, **waits) as pooler:
        try:
            return pooler.query("select 1") == [(1,)]
        except psycopg.OperationalError:
            assert "TLS handshake error: " in pooler.log_text()
            return False


def test_such_servers_where_certificates_are_verified(plain_server: Postgres, engine: str) -> None:
    """A certificate that is trusted itself will do if its key can be used, a stranger's never."""
    assert plain_server.tls is not None
    usable = engine == "python" or not is_large(plain_server)
    assert verifying(plain_server, engine, plain_server.tls.server.cert) is usable
    assert not verifying(plain_server, engine, Authority().ca_file)
