"""Servers that cannot be reached by what the configuration says of them; others are served meanwhile."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MakePooler
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.pooler import database
from tests.support.postgres import Postgres

HOSTS = (
    "fe80::1%lo", "fe80::1%no_such_card", "fe80::1%4294967295", "[::1]", "a..b", "x" * 64 + ".example", "256.1.1.1",
    "/no/such/folder", "/tmp/" + "x" * 120, "@nobody", "a b",
)  # fmt: skip


def test_hosts_that_lead_nowhere(make: MakePooler, pg15: Postgres) -> None:
    """Each costs its own clients a query_wait_timeout, nobody else anything, and no connection is counted for it."""
    entries = {f"odd{number}": f"host='{host}' port=1" for number, host in enumerate(HOSTS)}
    pooler = make({"app": database(pg15), **entries}, query_wait_timeout=1, server_login_retry=0.2)
    clients = [FakeClient((pooler.host, pooler.port)) for _ in HOSTS]
    for name, client in zip(entries, clients, strict=True):
        client.send(m.startup({"user": "alice", "database": name}))
    assert pooler.query("select 1") == [(1,)]
    for client in clients:
        with client, pytest.raises(LoginRefused, match="query_wait_timeout"):
            client.finish_login("alice", "")
    counts = {row["name"]: row["current_connections"] for row in pooler.admin("SHOW DATABASES")}
    assert not any(counts[name] for name in entries)
    assert pooler.query("select 1") == [(1,)]
    assert "internal error" not in pooler.log_text()
