"""Workers die, and clients leave, in the middle of long queries: the backend goes, then the slot comes back."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

ONE = {"workers": 2, "default_pool_size": 1}
RUNNING = "select pid from pg_stat_activity where query like 'select pg_sleep(6%' and state = 'active'"


def asleep(pooler: Pooler, pg: Postgres) -> tuple[FakeClient, int]:
    """A client whose server sleeps for ten minutes, and the backend's process id."""
    client = FakeClient((pooler.host, pooler.port))
    client.login("alice", "app")
    client.send(m.query("select pg_sleep(600)"))
    until(lambda: bool(pg.query(RUNNING)), "the query runs")
    return client, int(pg.query(RUNNING)[0][0])


def owner_of(pooler: Pooler, client: FakeClient) -> int:
    """The worker process that has the client."""
    wanted = f"socket:[{inode_of(pooler.port, client.socket.getsockname()[1])}]"
    for pid in pooler.worker_pids():
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == wanted:
                    return pid
    raise AssertionError("nobody has the client")


def inode_of(local: int, remote: int) -> str:
    """The inode of the pooler's end of a loopback connection."""
    with open("/proc/net/tcp") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == local and int(fields[2].split(":")[1], 16) == remote:
                return fields[9]
    raise AssertionError("no such connection")


@pytest.mark.parametrize("tls", ["disable", "require"])
def test_killed_worker_with_a_long_query(make: MakePooler, pg15: Postgres, tls: str) -> None:
    """The only slot of a pool comes back within seconds, and never are there two backends."""
    pooler = make(server_tls_sslmode=tls, **ONE)
    client, backend = asleep(pooler, pg15)
    os.kill(owner_of(pooler, client), signal.SIGKILL)
    found: list[int] = []
    most = 0

    def ask() -> None:
        found.append(int(pooler.query("select pg_backend_pid()")[0][0]))

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        most = max(most, int(pg15.query("select count(*) from pg_stat_activity where usename = 'alice'")[0][0]))
    asking.join()
    assert found
    assert found[0] != backend
    assert most <= 1
    client.close()


def test_client_leaves_a_long_query(make: MakePooler, pg15: Postgres) -> None:
    """A client that resets its connection costs its server, whose slot is used again when the backend is gone."""
    pooler = make(**ONE)
    client, backend = asleep(pooler, pg15)
    client.reset()
    assert int(pooler.query("select pg_backend_pid()")[0][0]) != backend
    assert pg15.query(f"select 1 from pg_stat_activity where pid = {backend}") == []


def test_all_workers_die_at_once(make: MakePooler, pg15: Postgres) -> None:
    """After kill -9 of every worker nothing is left on the server, and the fleet serves again."""
    pooler = make(workers=2, default_pool_size=4, pool_mode="session")
    clients = [pooler.connect() for _ in range(4)]
    for client in clients:
        client.execute("select 1")
    old = {row[0] for row in pg15.query("select pid from pg_stat_activity where usename = 'alice'")}
    assert len(old) == 4
    for pid in pooler.worker_pids():
        os.kill(pid, signal.SIGKILL)

    def served() -> bool:
        with suppress(psycopg.OperationalError):
            return pooler.query("select 1") == [(1,)]
        return False

    until(served, "the fleet serves again")
    until(
        lambda: not old & {row[0] for row in pg15.query("select pid from pg_stat_activity where usename = 'alice'")},
        "the old backends are gone",
    )
    for client in clients:
        client.close()
