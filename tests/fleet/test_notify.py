"""What systemd is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pgshoal.fleet.notify import notify
from tests.worker.bench import QuietLog


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States go to the socket of NOTIFY_SOCKET; one that is gone harms nothing."""
    path = tmp_path / "notify"
    log = QuietLog()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        notify("READY=1", log)
        assert listener.recv(100) == b"READY=1"
    path.unlink()
    notify("STOPPING=1", log)
    assert log.has("sd_notify: ")


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that begins with @."""
    name = f"pgshoal-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify("RELOADING=1", QuietLog())
        assert listener.recv(100) == b"RELOADING=1"


def test_without_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said to nobody."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    log = QuietLog()
    notify("READY=1", log)
    assert log.lines == []
