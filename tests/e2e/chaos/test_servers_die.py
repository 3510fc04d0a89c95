"""PostgreSQL dies, restarts and stands still under load; the pooler goes on with what is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import psutil
import pytest

from pgshoal.demo import account as account_module
from pgshoal.demo.account import Account
from tests.e2e.chaos.crowd import Crowd, settled
from tests.e2e.conftest import until
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def mortal() -> Iterator[Postgres]:
    """A server of our own, to be killed."""
    with Postgres(15) as server:
        yield server


@pytest.fixture
def pooler(mortal: Postgres, engine: str) -> Iterator[Pooler]:
    """Few servers for many clients, with short tempers."""
    settings = {"pool_mode": "transaction", "default_pool_size": 3, "server_login_retry": 0.3, "query_wait_timeout": 8}
    with Pooler({"app": database(mortal)}, engine=engine, server_connect_timeout=2, **settings) as running:
        yield running


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
        until(lambda: sum(crowd.lost.values()) > 0, "somebody hears of the shutdown")
        mortal.start()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_an_immediate_shutdown(pooler: Pooler, mortal: Postgres) -> None:
    """All backends end at once, without a checkpoint, and the server comes back through recovery."""
    with Crowd(pooler, ["app"]) as crowd:
        crowd.more()
        psutil.Process(mortal.pid).send_signal(signal.SIGQUIT)
        until(lambda: sum(crowd.lost.values()) > 0, "somebody hears of it")
        mortal.stop()
        mortal.start()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


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
            assert crowd.answered == before
        finally:
            for process in processes:
                process.resume()
        crowd.more(100)
    assert crowd.strange == {}
    settled(pooler, mortal)


def test_more_clients_than_descriptors(mortal: Postgres, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors nobody is accepted; those who are in are served, and when some leave others come in."""

    def few(argv: Sequence[object], account: Account | None, **more: Any) -> Any:
        return account_module.spawn(
            ["/bin/sh", "-c", 'ulimit -n 48; exec "$@"', "sh", *map(str, argv)], account, **more
        )

    monkeypatch.setattr("pgshoal.demo.pooler.spawn", few)
    with Pooler({"app": database(mortal)}, engine=engine, pool_mode="transaction", default_pool_size=3) as pooler:
        clients: list[FakeClient] = []
        with suppress(TimeoutError):
            while len(clients) < 60:
                clients.append(FakeClient((pooler.host, pooler.port), wait_s=0.5))
                clients[-1].login("alice", "app")
        assert 20 < len(clients) < 48
        assert clients[0].query("select 'in'")[1].payload.endswith(b"in")
        until(lambda: "accept() failed: Too many open files" in pooler.log_text(), "the log says why")
        for client in clients:
            client.close()
        assert pooler.query("select 1") == [(1,)]
        settled(pooler, mortal)
