"""PostgreSQL stands still for half a minute under load, longer than any limit of the pooler."""

from __future__ import annotations

import time

import psutil

from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

PAUSE_S = 30.0
WAIT_S = 5.0


def test_half_a_minute_without_postgresql(make: MakePooler, pg15: Postgres) -> None:
    """Who waits is told so after query_wait_timeout, who is served waits on, other databases work, and it passes."""
    with Postgres(15) as frozen:
        settings = {"default_pool_size": 3, "server_login_retry": 0.5, "query_wait_timeout": WAIT_S}
        pooler = make({"app": database(frozen), "other": database(pg15)}, server_connect_timeout=3, **settings)
        with Crowd(pooler, ["app"], size=10, wait_s=PAUSE_S + 20) as crowd:
            crowd.more()
            processes = [psutil.Process(frozen.pid), *psutil.Process(frozen.pid).children(recursive=True)]
            for process in processes:
                process.suspend()
            begun = time.monotonic()
            try:
                until(lambda: max(row["maxwait"] for row in pooler.admin("SHOW POOLS")) >= WAIT_S - 1, "clients wait")
                while time.monotonic() - begun < PAUSE_S:
                    assert pooler.query("select 1", "other") == [(1,)]
                    time.sleep(0.5)
            finally:
                for process in processes:
                    process.resume()
            crowd.more(100)
        assert crowd.lost["query_wait_timeout"] > 0
        assert set(crowd.lost) <= {"query_wait_timeout", "client_login_timeout (server down)"}
        settled(pooler, frozen, pg15)
