"""The supervisor becomes another program while clients work: same process, same sockets, nothing forgotten."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import psycopg
import pytest

import pgshoal
from pgshoal.demo.account import spawn
from tests.e2e.conftest import MakePooler, backends, until
from tests.e2e.fleet.load import Load, zombies
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

TAKEN_OVER = "has taken over from"


def upgraded(pooler: Pooler, before: list[int], times: int = 1) -> bool:
    """Whether the new program and new workers run."""
    return pooler.log_text().count(TAKEN_OVER) == times and not set(before) & set(pooler.worker_pids())


def test_an_upgrade_under_load_refuses_nobody(pg15: Postgres, make: MakePooler) -> None:
    """Clients that stay and clients that come and go lose neither a connection nor a transaction."""
    pooler = make(workers=2, auth_type="trust", max_client_conn=300, log_connections=0, log_disconnections=0)
    before = pooler.worker_pids()
    with (
        Load(pg15, pooler, "-c", "50", "-T", "10") as steady,
        Load(pg15, pooler, "-C", "-c", "10", "-T", "10") as passing,
    ):
        pooler.admin("UPGRADE")
        until(lambda: upgraded(pooler, before), "the new program and new workers")
    steady.report()
    passing.report()
    assert pooler.running
    assert len(pooler.worker_pids()) == 2
    assert zombies(pooler) == []
    assert " died: " not in pooler.log_text()


@pytest.mark.parametrize("content", [None, '"admin" "new"\n"alice" broken\n'])
def test_secrets_outlive_a_broken_auth_file(make: MakePooler, content: str | None) -> None:
    """A reload locks nobody out, nor do restart and upgrade; the rest is taken, and the log names the place."""
    secrets = {"alice": PASSWORDS["alice"], "admin": "boss"}
    pooler = make(auth_type="scram-sha-256", userlist=secrets)
    pooler.settings["default_pool_size"] = 7
    pooler.write_config()
    file = pooler.folder / "userlist.txt"
    file.unlink()
    if content is not None:
        file.write_text(content)
        file.chmod(0o644)
    for command in ("RELOAD", "RELOAD", "RESTART 0", "UPGRADE"):
        before = pooler.worker_pids()
        pooler.admin(command, password="boss")
        if command != "RELOAD":
            until(lambda old=before: len(pooler.worker_pids()) == 1 and old != pooler.worker_pids(), "a new worker")  # type: ignore[misc]
        assert pooler.query("select 1", password=secrets["alice"]) == [(1,)]
        shown = {row["key"]: row["value"] for row in pooler.admin("SHOW CONFIG", password="boss")}
        assert shown["default_pool_size"] == "7"
    said = f"{file}: could not open auth_file" if content is None else f"{file}:2: broken auth file"
    # Of two reloads and an upgrade.
    assert pooler.log_text().count(f"ERROR {said}") == 3


def test_what_was_decided_outlives_the_upgrade(pg15: Postgres, make: MakePooler) -> None:
    """DISABLE, totals, pidfile, signals and a second upgrade: all as if nothing had happened."""
    pooler = make({"app": database(pg15), "other": database(pg15)}, workers=2)
    pooler.admin("DISABLE other")
    for _ in range(20):
        pooler.query("select 1")
    before = pooler.worker_pids()
    done = subprocess.run(
        [sys.executable, "-m", "pgshoal", "upgrade", str(pooler.config)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "UPGRADE\n"), done.stderr
    until(lambda: upgraded(pooler, before), "new workers")
    with pytest.raises(psycopg.OperationalError, match="is disabled"):
        pooler.query("select 1", dbname="other")
    until(lambda: totals(pooler) >= 20, "the totals of the dead")
    before = pooler.worker_pids()
    pooler.admin("UPGRADE")
    until(lambda: upgraded(pooler, before, times=2), "new workers again")
    assert pooler.query("select 1") == [(1,)]
    until(lambda: 21 <= totals(pooler) < 40, "each counted once")


def totals(pooler: Pooler) -> int:
    """Transactions of the database so far."""
    return next(int(row["total_xact_count"]) for row in pooler.admin("SHOW STATS") if row["database"] == "app")


def test_a_worker_that_dies_after_the_upgrade_is_known(pg15: Postgres, make: MakePooler) -> None:
    """Its servers' sockets were handed over too: a busy backend of a killed worker is cancelled."""
    pooler = make(workers=1, auth_type="trust")
    threads = []
    pooler.admin("UPGRADE")
    until(lambda: TAKEN_OVER in pooler.log_text(), "the new program")
    (old, *_) = pooler.worker_pids()

    def sleep() -> None:
        with pytest.raises(psycopg.OperationalError):
            pooler.query("select pg_sleep(60)")

    threads.append(threading.Thread(target=sleep))
    threads[0].start()
    until(lambda: backends(pg15, "alice") == 1, "a busy backend")
    time.sleep(0.2)
    for pid in pooler.worker_pids():
        psutil.Process(pid).kill()
    threads[0].join()
    until(lambda: backends(pg15, "alice") == 0, "the backend is gone")
    until(lambda: old not in pooler.worker_pids(), "the old worker is reaped")
    assert pooler.query("select 1") == [(1,)]


def test_a_file_with_a_mistake_refuses_the_upgrade(make: MakePooler) -> None:
    """The program that runs goes on, and the console names the line."""
    pooler = make(workers=2)
    before = pooler.worker_pids()
    pooler.write(pooler.config.name, "[pgbouncer]\nno_such_setting = 1\n")
    with pytest.raises(psycopg.Error, match=r"cannot take over.*:2: no_such_setting: unknown parameter"):
        pooler.admin("UPGRADE")
    assert pooler.worker_pids() == before
    assert pooler.query("select 1") == [(1,)]
    pooler.write_config()
    pooler.admin("UPGRADE")
    until(lambda: upgraded(pooler, before), "new workers")


class Installed(Pooler):
    """A pooler that runs from a copy of the package, which a test can change as a package manager would."""

    def __init__(self, databases: dict[str, str], **settings: object) -> None:
        super().__init__(databases, **settings)
        self.package = self.folder / "installed" / "pgshoal"
        shutil.copytree(Path(pgshoal.__file__).parent, self.package, ignore=shutil.ignore_patterns("__pycache__"))

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv: list[str | Path] = [sys.executable, "-m", "pgshoal", "run", self.config]
        if self.account is not None:
            argv = [sys.executable, "-m", "pgshoal.demo.launch", self.account.name, self.config]
        with self.log.open("ab") as log:
            return spawn(argv, None, stdout=log, env={"PYTHONPATH": str(self.package.parent)})

    def change(self, file_name: str, text: str) -> str:
        """Replace a file; returns what it was."""
        path = self.package / file_name
        before = path.read_text()
        path.write_text(text)
        return before


def test_another_version(pg15: Postgres, engine: str) -> None:
    """It is loaded from where the first was; one that is broken is refused, and then only replacements suffer."""
    with Installed({"app": database(pg15)}, engine=engine, workers=2, pool_mode="transaction") as pooler:
        before = pooler.worker_pids()
        with pooler.connect() as client:
            client.execute("select 1")
            pooler.change("__init__.py", '__version__ = "9.9.9"\n')
            pooler.admin("UPGRADE")
            until(lambda: upgraded(pooler, before), "new workers")
            assert f"pgshoal 9.9.9 has taken over from {pgshoal.__version__}" in pooler.log_text()
            assert client.execute("select 2").fetchone() == (2,)
            good = pooler.change("worker/moving.py", "this is no Python\n")
            with pytest.raises(psycopg.Error, match=r"cannot take over: SyntaxError"):
                pooler.admin("UPGRADE")
            with pytest.raises(psycopg.Error, match="worker 0 could not be started again"):
                pooler.admin("RESTART")
            assert client.execute("select 3").fetchone() == (3,)
        victim = pooler.worker_pids()[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: "is started again in 0.2 s" in pooler.log_text(), "some attempts")
        for _ in range(5):
            assert pooler.query("select 1") == [(1,)]
        pooler.change("worker/moving.py", good)
        until(lambda: len(pooler.admin("SHOW WORKERS")) == 2, "both workers")
