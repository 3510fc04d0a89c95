"""Starting and not starting: configuration, account, pid file, exit codes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.fleet import takeover
from pgshoal.fleet.ledger import Ledger
from pgshoal.fleet.pidfile import Fatal, Pidfile
from pgshoal.fleet.run import main
from tests.worker.bench import QuietLog


def test_a_broken_file_is_exit_code_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The log says where and what, then that nothing can be loaded."""
    path = tmp_path / "broken.ini"
    path.write_text("[pgbouncer]\nlisten_prot = 1\n")
    assert main(str(path)) == 1
    said = capfd.readouterr().err
    assert f"{path}:2: listen_prot: unknown parameter" in said
    assert "FATAL cannot load config file" in said


def test_a_missing_file_is_exit_code_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a broken one."""
    assert main(str(tmp_path / "none.ini")) == 1
    assert "FATAL cannot load config file" in capfd.readouterr().err


def test_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Without user= the pooler does not run as root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = tmp_path / "fine.ini"
    path.write_text("[pgbouncer]\nunix_socket_dir=\n")
    assert main(str(path)) == 1
    assert "FATAL PgBouncer should not run as root" in capfd.readouterr().err


def test_quiet_says_nothing_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--quiet holds for failures too."""
    assert main(str(tmp_path / "none.ini"), quiet=True) == 1
    assert capfd.readouterr().err == ""


def test_a_bug_while_starting_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the background the log is the only place for it."""
    path = tmp_path / "fine.ini"
    path.write_text(f"[pgbouncer]\nunix_socket_dir=\nlogfile={tmp_path}/log\n")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr("pgshoal.fleet.run.Pidfile", lambda *args, **more: 1 // 0)
    assert main(str(path), quiet=True) == 1
    assert capfd.readouterr().err == ""
    assert "FATAL internal error: Traceback" in (said := (tmp_path / "log").read_text())
    assert "ZeroDivisionError" in said


@pytest.fixture
def estate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What an older supervisor hands over when it only asks."""
    ledger = Ledger.create(4)
    state = {"workers": 1, "kept": {"workers": 1}, "ledger": ledger.fd, "bells": list(ledger.bells)}
    monkeypatch.setenv(takeover.TRY, str(takeover.write(state)))
    yield
    ledger.close()
    ledger.close_descriptors()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("listen_port = 7000", ""),
        ("pool_mode = swimming", "pool_mode = swimming"),
        ("worker_cpu_affinity = 4000", "worker_cpu_affinity = 4000"),
        ("logfile = /nowhere/log", "logfile = /nowhere/log"),
    ],
)
@pytest.mark.usefixtures("estate")
def test_whether_it_could_take_over(tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, wrong: str) -> None:
    """A trial starts nothing; what would stop the new program is said in one line."""
    path = tmp_path / "x.ini"
    path.write_text(f"[pgbouncer]\n{line}\n")
    assert main(str(path)) == (1 if wrong else 0)
    said = capfd.readouterr().err
    assert wrong in said
    assert len(said.splitlines()) == (1 if wrong else 0)


def test_pidfile_of_a_living_process(tmp_path: Path) -> None:
    """Another instance is not disturbed."""
    path = tmp_path / "pid"
    path.write_text(f"{os.getppid()}\n")
    with pytest.raises(Fatal, match="another instance running"):
        Pidfile(str(path), QuietLog())
    assert path.exists()


@pytest.mark.parametrize("text", ["4194305\n", "ours", "nonsense", ""])
def test_stale_pidfile(tmp_path: Path, text: str) -> None:
    """What names no process, or ourselves, is removed, and ours is written and removed in its time."""
    path = tmp_path / "pid"
    path.write_text(str(os.getpid()) if text == "ours" else text)
    log = QuietLog()
    pidfile = Pidfile(str(path), log)
    assert log.has("stale pidfile, removing")
    assert not path.exists()
    pidfile.remove()
    pidfile.write()
    assert path.read_text() == f"{os.getpid()}\n"
    pidfile.remove()
    assert not path.exists()


def test_no_pidfile() -> None:
    """An empty setting means none."""
    pidfile = Pidfile("", QuietLog())
    pidfile.write()
    pidfile.remove()
    assert not pidfile.written
