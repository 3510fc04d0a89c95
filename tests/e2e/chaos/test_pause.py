"""PostgreSQL is away under load, or stands still, for longer than any limit of the pooler."""

from __future__ import annotations

import time
from typing import Any

import psutil

from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

PAUSE_S = 30.0
WAIT_S = 5.0


def test_half_a_minute_without_postgresql(make: MakePooler, pg15: Postgres, mortal: Postgres) -> None:
    """Who waits is told so after query_wait_timeout, who is served waits on, other databases work, and it passes."""
    settings = {"default_pool_size": 3, "server_login_retry": 0.5, "query_wait_timeout": WAIT_S}
    pooler = make({"app": database(mortal), "other": database(pg15)}, server_connect_timeout=3, **settings)
    with Crowd(pooler, ["app"], size=10, wait_s=PAUSE_S + 20) as crowd:
        crowd.more()
        processes = [psutil.Process(mortal.pid), *psutil.Process(mortal.pid).children(recursive=True)]
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
    settled(pooler, mortal, pg15)


def test_an_outage_longer_than_anybody_waits(mortal: Postgres, engine: str) -> None:
    """When the server is back, an attempt is made although everybody who waited for one has long been refused."""
    settings: dict[str, Any] = {"default_pool_size": 3, "server_login_retry": 0.3, "query_wait_timeout": 1}
    with Pooler({"app": database(mortal)}, engine=engine, pool_mode="transaction", **settings) as pooler:
        with Crowd(pooler, ["app"]) as crowd:
            crowd.more()
            mortal.stop()
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > 4 * settings["query_wait_timeout"], "the outage lasts")
            mortal.start()
            crowd.more(100)
        assert crowd.strange == {}
        settled(pooler, mortal)
