"""`pgshoal check FILE --live` against real servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def check(tmp_path: Path, databases: str, main: str = "") -> subprocess.CompletedProcess[str]:
    """Writes a file and checks it."""
    users = tmp_path / "users.txt"
    users.write_text('"scram_user" "scram-secret"\n"alice" ""\n')
    file = tmp_path / "pgshoal.ini"
    file.write_text(f"[databases]\n{databases}\n[pgbouncer]\nauth_file = {users}\n{main}\n")
    command = [sys.executable, "-m", "pgshoal", "check", str(file), "--live"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_it_fits(pg15: Postgres, pg18: Postgres, tmp_path: Path) -> None:
    """Two servers, a line of the table for each, exit code 0."""
    entries = [f"app = host={pg15.host} port={pg15.port}", f"other = host={pg18.host} port={pg18.port} pool_size=48"]
    done = check(tmp_path, "\n".join(entries))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" fits ") == 2
    assert "assumed: entries without user=: one pool for each of the 2 users" in done.stdout


def test_it_does_not_fit(pg15: Postgres, tmp_path: Path) -> None:
    """Entries by name, address and socket lead to one server and add up; the sentence names numbers and settings."""
    ways = ("localhost", pg15.host, pg15.socket_dir)
    entries = [f"e{at} = host={host} port={pg15.port} dbname=app pool_size=17" for at, host in enumerate(ways)]
    done = check(tmp_path, "\n".join(entries))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "102 server connections are possible, 97 fit (max_connections 100 - superuser_reserved" in done.stdout
    assert check(tmp_path, "\n".join(entries), "max_user_connections = 48").returncode == 0


def test_limits_of_a_database(pg15: Postgres, tmp_path: Path) -> None:
    """CONNECTION LIMIT of a database is compared as well."""
    pg15.query("alter database other connection limit 39")
    try:
        done = check(tmp_path, f"other = host={pg15.host} port={pg15.port}")
    finally:
        pg15.query("alter database other connection limit -1")
    assert done.returncode == 1
    assert 'database "other": 40 server connections are possible, 39 fit (CONNECTION LIMIT)' in done.stdout


def test_server_that_is_down(pg15: Postgres, tmp_path: Path) -> None:
    """An unreachable server has its own line and exit code 2, and the others are told all the same."""
    done = check(tmp_path, f"app = host={pg15.host} port={pg15.port}\ngone = host=127.0.0.1 port=1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "server 127.0.0.1:1: cannot ask for its max_connections: Connection refused" in done.stdout
    assert " fits " in done.stdout


def test_no_secret_is_shown(pg15: Postgres, tmp_path: Path) -> None:
    """A password that does not work appears nowhere."""
    done = check(tmp_path, f"app = host={pg15.host} port={pg15.port} user=scram_user password=hush-hush")
    assert done.returncode == 2
    assert "hush" not in done.stdout + done.stderr
    assert 'password authentication failed for user "scram_user"' in done.stdout


def test_a_running_fleet_warns(make: MakePooler, pg15: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and again after a reload, the log tells what does not fit; serving goes on meanwhile."""
    monkeypatch.delenv("PGSHOAL_FORESIGHT")
    entry = database(pg15, user="alice", pool_size=98)
    pooler = make({"app": entry})
    text = "WARNING server 127.0.0.1:{}: {} server connections are possible, 97 fit (max_connections 100"
    until(lambda: text.format(pg15.port, 98) in pooler.log_text(), "the warning at the start")
    assert pooler.query("select 1") == [(1,)]
    pooler.databases["app"] = entry.replace("pool_size=98", "pool_size=99")
    pooler.write_config()
    pooler.admin("RELOAD")
    until(lambda: text.format(pg15.port, 99) in pooler.log_text(), "the warning after the reload")
    pooler.databases["app"] = entry.replace("pool_size=98", "pool_size=7")
    pooler.write_config()
    pooler.admin("RELOAD")
    assert pooler.query("select 1") == [(1,)]
    assert pooler.log_text().count("server connections are possible") == 2
