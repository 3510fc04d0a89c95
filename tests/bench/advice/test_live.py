"""A fleet at work is seen: its rate, its workers' processors, PostgreSQL's, and who waits for which limit."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from pgshoal.bench.advice import advise, live
from pgshoal.bench.advice.live import Limit, Moment, evidence, postmaster, tightest
from pgshoal.bench.measure.machine import Times
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def ledger(kind: str, database: str, limit: int, used: int, waiting: int) -> dict[str, str]:
    """A row of SHOW LEDGER."""
    return {"kind": kind, "database": database, "limit": str(limit), "used": str(used), "waiting": str(waiting)}


def worker(pid: int, cpu: float = 0.0, state: str = "running") -> dict[str, str]:
    """A row of SHOW WORKERS."""
    return {"pid": str(pid), "cpu": str(cpu), "state": state, "clients": "10"}


def test_the_limit_for_which_most_wait_is_found() -> None:
    """Of those that were reached; without a limit, and for clients, nobody waits for servers."""
    first = [ledger("pool", "a", 4, 4, 2), ledger("pool", "b", 8, 7, 90), ledger("pool", "c", 0, 5, 90)]
    second = [ledger("pool", "a", 4, 3, 0), ledger("database", "d", 9, 9, 0), ledger("clients", "", 10, 10, 99)]
    assert tightest([first, second]) == Limit("pool a", 4, 4, 1.0)
    assert tightest([]) is None


def test_what_lies_between_two_moments() -> None:
    """Rates and processors over the time between; a worker whose process is not seen by the console's figure."""
    before = Moment(10.0, 1000.0, {1: 0, 3: 0}, Times(0, 0, 0))
    after = Moment(12.0, 5000.0, {1: 1_800_000_000, 3: 1_000_000_000}, Times(1000, 400, 0))
    rows = [worker(1), worker(2, cpu=50), worker(9, state="draining")]
    seen = evidence(before, after, rows, [3], Limit("pool a", 4, 4, 1.5))
    assert (seen.workers, seen.rate, seen.clients, seen.idle) == (2, 2000.0, 20, 0.4)
    assert list(seen.by_worker) == pytest.approx([0.9, 0.5])
    assert seen.postgres == pytest.approx(0.5)
    assert (seen.budget, seen.servers, seen.waiting, seen.limit) == (4, 4, 1.5, "pool a")
    assert evidence(before, after, rows, None, None).postgres is None


def test_statistics_that_begin_anew_give_no_negative_rate() -> None:
    """As after a restart of the pooler."""
    before, after = (Moment(at, count, {}, Times(0, 0, 0)) for at, count in ((1.0, 500.0), (2.0, 3.0)))
    assert evidence(before, after, [worker(1)], None, None).rate == 0


def test_postgres_is_found_by_lock_file_and_by_port(pg15: Postgres) -> None:
    """Its first process, not its children; none on other machines and none where nobody listens."""
    assert postmaster(pg15.host, pg15.port) == pg15.pid
    assert postmaster(str(pg15.socket_dir), pg15.port) == pg15.pid
    assert postmaster("192.0.2.1", pg15.port) is None
    assert postmaster(str(pg15.socket_dir), 1) is None
    with socket.create_server(("127.0.0.1", 0)) as stranger:  # such as a balancer
        assert postmaster("127.0.0.1", stranger.getsockname()[1]) is None
    assert live.postmasters([{"name": "a", "host": "192.0.2.1", "port": "5432"}]) is None


def test_a_fleet_at_work_is_advised(pg15: Postgres, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What it did while it was watched, its workers, and PostgreSQL on this machine."""
    over = threading.Event()
    with Pooler({"app": database(pg15)}, engine=engine, workers=2, pool_mode="transaction") as pooler:

        def work() -> None:
            with pooler.connect() as conn:
                while not over.is_set():
                    conn.execute("select 1")

        client = threading.Thread(target=work)
        client.start()
        try:
            before = os.geteuid()
            assert advise.main(Path(pooler.folder) / "pgbouncer.ini", 1) == 0
            assert os.geteuid() == before
        finally:
            over.set()
            client.join()
    said = capsys.readouterr().out
    assert "stay with 2 workers" in said or "Run " in said
    assert "Watched for 1 s" in said
    assert "workers used" in said
    assert "not to be seen from here" not in said


def test_a_fleet_without_work_changes_nothing(pg15: Postgres, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to advise on."""
    with Pooler({"app": database(pg15)}, engine=engine) as pooler:
        assert advise.main(Path(pooler.folder) / "pgbouncer.ini", 1) == 0
    assert "No change: no transaction ended" in capsys.readouterr().out


def test_a_fleet_that_does_not_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the place where it was looked for."""
    file = tmp_path / "pgbouncer.ini"
    file.write_text(f"[databases]\n[pgbouncer]\nunix_socket_dir = {tmp_path}\nlisten_port = 6432\n")
    assert advise.main(file, 1) == 1
    assert "no pooler answers at" in capsys.readouterr().err
