"""One pooler per engine that must outlive everything in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


def rss_kb(pooler: Pooler) -> int:
    """Resident memory of all processes of a pooler in KiB."""
    total = 0
    for pid in (pooler.pid, *pooler.worker_pids()):
        with open(f"/proc/{pid}/status") as status:
            total += next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return total


@pytest.fixture(scope="module")
def victim(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """A pooler in front of a real server; after the module it must still run, serve and be small."""
    settings = {"pool_mode": "transaction", "default_pool_size": 2, "auth_type": "trust", "max_client_conn": 2000}
    with Pooler({"app": database(pg15)}, engine=engine, server_login_retry=0, **settings) as running:
        running.query("select 1")
        workers = running.worker_pids()
        before = rss_kb(running)
        yield running
        assert running.running
        assert running.worker_pids() == workers
        assert running.query("select 1") == [(1,)]
        assert rss_kb(running) - before < 30_000
        assert "Traceback" not in running.log_text()
        assert "panicked" not in running.log_text()
        assert " died: " not in running.log_text()
