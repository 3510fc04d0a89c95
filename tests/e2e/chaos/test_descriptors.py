"""More clients than the process may have descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pgshoal.demo import account as account_module
from pgshoal.demo.account import Account
from tests.e2e.chaos.crowd import settled
from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine, as accepting is paused for some seconds: see tests/conftest.py.
SPREAD = True

#: More than other poolers of the same account have on their way between processes: Linux counts those against it.
LIMIT = 256


def test_more_clients_than_descriptors(pg15: Postgres, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors nobody is accepted; those who are in are served, and when some leave others come in."""

    def few(argv: Sequence[object], account: Account | None, **more: Any) -> Any:
        return account_module.spawn(
            ["/bin/sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *map(str, argv)], account, **more
        )

    monkeypatch.setattr("pgshoal.demo.pooler.spawn", few)
    more: dict[str, Any] = {"max_client_conn": 2 * LIMIT}
    with Pooler({"app": database(pg15)}, engine=engine, pool_mode="transaction", default_pool_size=3, **more) as pooler:
        clients: list[FakeClient] = []

        def full() -> bool:
            return "accept() failed: Too many open files" in pooler.log_text()

        while len(clients) < LIMIT:
            clients.append(FakeClient((pooler.host, pooler.port)))
            clients[-1].send(m.startup({"user": "alice", "database": "app"}))
            until(lambda: not clients[-1].silent_for(0.2) or full(), "an answer, or the reason in the log")
            if clients[-1].silent_for(0.01):
                break
            clients[-1].finish_login("alice", "")
        assert LIMIT / 2 < len(clients) < LIMIT
        assert clients[0].query("select 'in'")[1].payload.endswith(b"in")
        for client in clients:
            client.close()
        assert pooler.query("select 1") == [(1,)]
        settled(pooler, pg15)
