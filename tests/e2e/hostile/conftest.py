"""One pooler per engine that must outlive everything in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


def rss_kb(pid: int) -> int:
    """Resident memory of a process in KiB."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.fixture(scope="module")
def victim(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """A pooler in front of a real server; after the module it must still run, serve and be small."""
    settings = {"pool_mode": "transaction", "default_pool_size": 2, "auth_type": "trust", "max_client_conn": 2000}
    with Pooler({"app": database(pg15)}, engine=engine, server_login_retry=0, **settings) as running:
        running.query("select 1")
        before = rss_kb(running.pid)
        yield running
        assert running.running
        assert running.query("select 1") == [(1,)]
        assert rss_kb(running.pid) - before < 30_000
        assert "Traceback" not in running.log_text()
        assert "panicked" not in running.log_text()
