"""kill -9 of anything: the others go on, and nothing is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.e2e.fleet.load import servants, zombies
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def test_other_workers_clients_see_nothing(make: MakePooler) -> None:
    """A worker is killed: its clients are cut off, the others' are not, new ones are served at once."""
    pooler = make(workers=3, auth_type="trust", max_client_conn=300)
    clients = [pooler.connect() for _ in range(30)]
    for client in clients:
        client.execute("select 1")
    served = servants(pooler, clients)
    assert all(served.values())
    victim = pooler.worker_pids()[1]
    os.kill(victim, signal.SIGKILL)
    for _ in range(20):
        assert pooler.query("select 1") == [(1,)]
    for pid, mine in served.items():
        for client in mine:
            if pid == victim:
                with pytest.raises(psycopg.OperationalError):
                    client.execute("select 2")
            else:
                assert client.execute("select 2").fetchone() == (2,)
    until(lambda: len(pooler.worker_pids()) == 3 and victim not in pooler.worker_pids(), "the worker is back")
    assert zombies(pooler) == []
    for client in clients:
        client.close()


def test_a_fleet_of_one_keeps_its_port(make: MakePooler) -> None:
    """While the only worker is away clients wait in the kernel, and are not refused."""
    pooler = make(workers=1)
    for _ in range(3):
        (victim,) = pooler.worker_pids()
        os.kill(victim, signal.SIGKILL)
        assert pooler.query("select 1") == [(1,)]
        until(lambda victim=victim: victim not in pooler.worker_pids(), "reaped")  # type: ignore[misc]


def test_a_worker_that_was_stopped_for_a_while_goes_on(make: MakePooler) -> None:
    """Its own clients wait meanwhile, the others' do not notice."""
    pooler = make(workers=2, auth_type="trust")
    clients = [pooler.connect() for _ in range(8)]
    served = servants(pooler, clients)
    victim, other = pooler.worker_pids()
    os.kill(victim, signal.SIGSTOP)
    try:
        for client in served[other]:
            assert client.execute("select 1").fetchone() == (1,)
    finally:
        os.kill(victim, signal.SIGCONT)
    for client in clients:
        assert client.execute("select 2").fetchone() == (2,)
        client.close()
    assert pooler.worker_pids() == [victim, other]


def test_without_a_supervisor_workers_end(pg15: Postgres, make: MakePooler) -> None:
    """Orphans close everything and exit; no process, no shared memory and no backend is left."""
    pooler = make(workers=2, auth_type="trust")
    client = pooler.connect()
    client.execute("select 1")
    workers = [psutil.Process(pid) for pid in pooler.worker_pids()]
    memory = ledger(pooler.pid)
    until(lambda: holders(memory) == 3, "all share it")
    os.kill(pooler.pid, signal.SIGKILL)
    assert pooler.wait() == -signal.SIGKILL
    gone, alive = psutil.wait_procs(workers, timeout=15)
    assert (len(gone), alive) == (2, [])
    with pytest.raises(psycopg.OperationalError):
        client.execute("select 2")
    assert holders(memory) == 0
    until(lambda: backends(pg15, "alice") == 0, "no backend")
    client.close()


def ledger(pid: int) -> tuple[int, int]:
    """Which memory a process shares with its fleet."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        if "pgshoal ledger" in os.readlink(fd):
            found = fd.stat()
            return found.st_dev, found.st_ino
    raise AssertionError(f"process {pid} has no ledger")


def holders(memory: tuple[int, int]) -> int:
    """Processes that hold that memory."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = {(found.st_dev, found.st_ino) for fd in (process / "fd").iterdir() if (found := fd.stat())}
        except OSError:
            continue
        count += memory in held
    return count
