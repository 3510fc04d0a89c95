"""server_tls_* of one database: how its servers are reached, whatever holds for the others."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.e2e.test_reload import ended, reload
from tests.support.certs import Authority
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

QUICK = {"client_login_timeout": 2, "server_login_retry": 1}
SSL = "select ssl, version from pg_stat_ssl where pid = pg_backend_pid()"


def server_pid(pooler: Pooler, dbname: str) -> int:
    """Whose connection a client of this database is given."""
    return int(pooler.query("select pg_backend_pid()", dbname)[0][0])


def test_each_database_has_its_own(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Modes, authorities and versions; one that cannot be satisfied stops only its own clients."""
    stranger = Authority()
    verified: dict[str, Any] = {"server_tls_sslmode": "verify-full", "server_tls_ca_file": authority.ca_file}
    pooler = make(
        {
            "plain": database(pg15),
            "secure": database(pg15, **verified),
            "old": database(pg15, server_tls_sslmode="require", server_tls_protocols="tlsv1.2"),
            "wrong": database(pg15, server_tls_sslmode="verify-ca", server_tls_ca_file=stranger.ca_file),
            "*": database(pg15, server_tls_sslmode="require"),
        },
        auth_type="trust",
        server_tls_sslmode="disable",
        **QUICK,
    )
    assert pooler.query(SSL, "plain") == [(False, None)]
    assert pooler.query(SSL, "secure") == [(True, "TLSv1.3")]
    assert pooler.query(SSL, "old") == [(True, "TLSv1.2")]
    assert pooler.query(SSL, "anything") == [(True, "TLSv1.3")]
    with pytest.raises(psycopg.OperationalError, match="client_login_timeout"):
        pooler.query("select 1", "wrong")
    shown = {row["database"]: bool(row["tls"]) for row in pooler.admin("SHOW SERVERS")}
    assert (shown["plain"], shown["secure"], shown["anything"]) == (False, True, True)


def test_a_certificate_of_ones_own(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Each database may show another certificate, or none."""
    entries = {}
    for name in ("first", "second"):
        pair = authority.issue(f"db-{name}", common_name=name)
        entries[name] = database(pg15, server_tls_cert_file=pair.cert, server_tls_key_file=pair.key)
    pooler = make({**entries, "none": database(pg15)}, auth_type="trust")
    asked = "select client_dn from pg_stat_ssl where pid = pg_backend_pid()"
    found = {name: str(pooler.query(asked, name)[0][0]) for name in (*entries, "none")}
    assert "CN=first" in found["first"]
    assert "CN=second" in found["second"]
    assert "CN" not in found["none"]


def test_a_reload_reconnects_only_what_has_changed(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Neither the entries that stay as they are, nor after a global change those with values of their own."""
    entries: dict[str, Any] = {
        "one": database(pg15),
        "two": database(pg15),
        "own": database(pg15, server_tls_sslmode="require"),
    }
    pooler = make(entries, auth_type="trust", server_tls_sslmode="disable")
    before = {name: server_pid(pooler, name) for name in entries}
    pooler.databases = entries | {
        "one": database(pg15, server_tls_sslmode="verify-ca", server_tls_ca_file=authority.ca_file)
    }
    reload(pooler)
    after = {name: server_pid(pooler, name) for name in entries}
    assert {name for name in entries if before[name] != after[name]} == {"one"}
    assert pooler.query(SSL, "one")[0][0] is True
    pooler.settings["server_tls_sslmode"] = "require"
    reload(pooler)
    last = {name: server_pid(pooler, name) for name in entries}
    assert {name for name in entries if last[name] != after[name]} == {"two"}
    assert pooler.query(SSL, "two")[0][0] is True


def test_files_that_cannot_be_used_stop_a_reload(make: MakePooler, pg15: Postgres) -> None:
    """Nothing changes, and the log names entry, setting and file."""
    pooler = make({"app": database(pg15)}, auth_type="trust")
    pid = server_pid(pooler, "app")
    pooler.databases = {"app": database(pg15, server_tls_ca_file="/nowhere/ca.pem")}
    reload(pooler)
    assert ended(pooler)[-1] == "config file loading failed"
    until(lambda: "app: server_tls_ca_file = /nowhere/ca.pem: No such file" in pooler.log_text(), "the reason")
    assert server_pid(pooler, "app") == pid


def test_cancels(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """They go the way of the connection, and a query whose client has left ends, too."""
    secure = database(pg15, server_tls_sslmode="verify-full", server_tls_ca_file=authority.ca_file)
    pooler = make({"app": secure}, auth_type="trust", server_tls_sslmode="disable")
    with pooler.connect() as conn:
        timer = threading.Timer(0.3, conn.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            conn.execute("select pg_sleep(20)")
        timer.join()
    left = pooler.connect()
    left.pgconn.send_query(b"select pg_sleep(60) /* abandoned */")
    running = "select count(*) from pg_stat_activity where query like '%/* abandoned%' and state = 'active' and pid <> "
    until(lambda: pg15.query(f"{running} pg_backend_pid()") == [(1,)], "the query")
    left.close()
    until(lambda: pg15.query(f"{running} pg_backend_pid()") == [(0,)], "its end")
    assert "cannot send a cancel request" not in pooler.log_text()


def test_ciphers_of_ones_own(make: MakePooler, pg15: Postgres, engine: str) -> None:
    """Each database may have other ciphers; those of TLS 1.3 can be chosen on the native engines."""
    wanted = {"small": "ECDHE-ECDSA-AES128-GCM-SHA256", "large": "ECDHE-ECDSA-AES256-GCM-SHA384"}
    entries = {
        name: database(pg15, server_tls_protocols="tlsv1.2", server_tls_ciphers=cipher)
        for name, cipher in wanted.items()
    }
    if engine != "python":
        wanted["modern"] = "TLS_CHACHA20_POLY1305_SHA256"
        entries["modern"] = database(pg15, server_tls13_ciphers=wanted["modern"])
    pooler = make(entries, auth_type="trust", server_tls_sslmode="require")
    asked = "select cipher from pg_stat_ssl where pid = pg_backend_pid()"
    assert {name: pooler.query(asked, name)[0][0] for name in wanted} == wanted
