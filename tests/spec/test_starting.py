"""What an operator reads when nothing starts, and where the log goes when it does."""

from __future__ import annotations

import os
import subprocess
import sys
import syslog
from typing import Any

import pytest

from pgshoal.config.model import Config, Settings
from pgshoal.worker.reload import reopen_log
from tests.e2e.conftest import MakePooler
from tests.worker.bench import QuietLog


def test_a_pidfile_of_another_process(start: MakePooler) -> None:
    """A second instance on the same pidfile is refused by name, and the first one goes on."""
    first = start()
    path = first.write("pid", f"{os.getpid()}\n")
    with pytest.raises(RuntimeError, match=f"FATAL pidfile '{path}' exists, another instance running?"):
        start(pidfile=path)
    assert first.query("select 1") == [(1,)]


def test_a_daemon_without_a_pidfile(start: MakePooler) -> None:
    """-d needs a place to write the number of the process to."""
    pooler = start()
    pooler.stop()
    pooler.settings["logfile"] = pooler.folder / "second.log"
    pooler.write_config()
    command = [sys.executable, "-m", "pgshoal.bouncer", "-d", str(pooler.config)]
    if pooler.account is not None:
        command += ["-u", pooler.account.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    log = pooler.folder / "second.log"
    assert done.returncode == 1
    assert "FATAL daemon needs pidfile configured" in done.stderr + (log.read_text() if log.exists() else "")


def test_the_system_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """With syslog = 1, syslog_ident and syslog_facility say under which name lines go there; at 0 it is closed."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(syslog, "openlog", lambda *values: calls.append(("open", *values)))
    monkeypatch.setattr(syslog, "closelog", lambda: calls.append(("close",)))
    log = QuietLog()
    reopen_log(Config("x.ini", Settings(syslog=True, syslog_ident="till", syslog_facility="local3")), log)
    reopen_log(Config("x.ini", Settings(syslog=False)), log)
    assert calls == [("open", "till", syslog.LOG_PID, syslog.LOG_LOCAL3), ("close",)]


@pytest.mark.parametrize("address", ["no:such:address", "a..b", "x" * 70])
def test_an_address_that_cannot_be_one(start: MakePooler, address: str) -> None:
    """Nothing starts, and the log has the address and the port as they were asked for."""
    with pytest.raises(RuntimeError, match=rf"FATAL getaddrinfo\('{address}', '\d+'\) = "):
        start(listen_addr=address)
