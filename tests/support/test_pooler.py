"""The pooler's test face, tried on PgBouncer, whose behaviour is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.bench.targets import pgbouncer
from tests.support.certs import Authority
from tests.support.pooler import PgBouncer, database, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres


@pytest.fixture(scope="module")
def bouncer(pg15: Postgres, authority: Authority) -> Iterator[PgBouncer]:
    """A PgBouncer with TLS on both sides and SCRAM logins."""
    try:
        pgbouncer.find()
    except pgbouncer.NoPgBouncer as missing:
        pytest.skip(f"nothing to compare with: {missing}")
    settings = {**tls_client_side(authority.server, "allow"), "server_tls_sslmode": "require"}
    facts = {"auth_type": "scram-sha-256", "pool_mode": "transaction", "engine": "python", **settings}
    userlist = {**PASSWORDS, "admin": "admin-secret"}
    with PgBouncer({"app": database(pg15)}, userlist=userlist, **facts) as pooler:
        yield pooler


def test_queries_pass(bouncer: PgBouncer) -> None:
    """A statement run through the pooler returns the server's rows, over TLS as well."""
    for mode in ("disable", "require"):
        rows = bouncer.query("select 1", user="scram_user", password=PASSWORDS["scram_user"], sslmode=mode)
        assert rows == [(1,)]


def test_console_rows_are_dictionaries(bouncer: PgBouncer) -> None:
    """A SHOW command gives one dictionary per row; a command without rows gives none."""
    pools = bouncer.admin("SHOW POOLS", password="admin-secret")
    assert "pgbouncer" in {row["database"] for row in pools}
    assert bouncer.admin("RELOAD", password="admin-secret") == []
    assert "RELOAD" in bouncer.log_text()
