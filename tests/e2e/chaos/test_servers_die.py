"""PostgreSQL dies, restarts and stands still under load; the pooler goes on with what is left."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def pooler(mortal: Postgres, engine: str) -> Iterator[Pooler]:
    """Few servers for many clients, with short tempers; it lives through all that happens to its server."""
    settings = {"pool_mode": "transaction", "default_pool_size": 3, "server_login_retry": 0.3, "query_wait_timeout": 8}
    with Pooler({"app": database(mortal)}, engine=engine, server_connect_timeout=2, **settings) as running:
        yield running


def felt(crowd: Crowd, pooler: Pooler) -> bool:
    """Whether somebody has lost its server, or waits for one: nobody may have been served at that very moment."""
    return sum(crowd.lost.values()) > 0 or max(row["maxwait"] for row in pooler.admin("SHOW POOLS")) >= 1


def test_backends_are_terminated(pooler: Pooler, mortal: Postgres) -> None:
    """Their clients hear of it, others are served by new ones."""
    with Crowd(pooler, ["app"]) as crowd:
        for _ in range(6):
            crowd.more()
            mortal.query("select pg_terminate_backend(pid) from pg_stat_activity where usename in ('alice', 'bob')")
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_a_backend_is_killed(pooler: Pooler, mortal: Postgres) -> None:
    """SIGKILL of one backend makes PostgreSQL end all and recover; then all goes on."""
    with Crowd(pooler, ["app"]) as crowd:
        crowd.more()
        backends = [child for child in psutil.Process(mortal.pid).children() if "alice" in " ".join(child.cmdline())]
        backends[0].kill()
        backends[0].wait(10)
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_a_restart(pooler: Pooler, mortal: Postgres) -> None:
    """A fast shutdown under load; the clients that come during it are told, those that come after it are served."""
    with Crowd(pooler, ["app"]) as crowd:
        crowd.more()
        mortal.stop()
        until(lambda: felt(crowd, pooler), "somebody hears of the shutdown")
        mortal.start()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_an_immediate_shutdown(pooler: Pooler, mortal: Postgres) -> None:
    """All backends end at once, without a checkpoint, and the server comes back through recovery."""
    with Crowd(pooler, ["app"]) as crowd:
        crowd.more()
        psutil.Process(mortal.pid).send_signal(signal.SIGQUIT)
        until(lambda: felt(crowd, pooler), "somebody hears of it")
        mortal.stop()
        mortal.start()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_a_server_that_stands_still(pooler: Pooler, mortal: Postgres) -> None:
    """Its clients wait, the console answers, and when it moves again all is as before."""
    with Crowd(pooler, ["app"], size=16) as crowd:
        crowd.more()
        processes = [psutil.Process(mortal.pid), *psutil.Process(mortal.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            until(lambda: max(row["maxwait"] for row in pooler.admin("SHOW POOLS")) >= 1, "clients wait")
            before = crowd.answered
            assert pooler.admin("SHOW STATE")
            assert crowd.answered == before
        finally:
            for process in processes:
                process.resume()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)
