"""Starting a worker: what it inherits, and what it does not."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from pgshoal.fleet import spawn as module
from pgshoal.fleet.spawn import environment, spawn
from pgshoal.worker.signals import FOR_THE_SUPERVISOR

#: In place of the interpreter: tells what it has got over the channel, and ends.
PROGRAM = """#!{python}
import json, os, signal, socket, sys
fds = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
sock = socket.socket(fileno=int(sys.argv[4]))
blocked = sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
sock.sendall(json.dumps([sys.argv[1:], fds, blocked, dict(os.environ)]).encode())
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was meant for a worker; its arguments, descriptors, blocked signals, environment; and what was not."""
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("NOTIFY_SOCKET", "/secret")
    monkeypatch.setenv("PGSHOAL_TEST", "passes")
    monkeypatch.setattr(sys, "executable", str(program))
    ours, theirs = socket.socketpair()
    ledger = os.memfd_create("ledger")
    bells = [os.eventfd(0) for _ in range(3)]
    secret = os.open("/dev/null", os.O_RDONLY)
    try:
        with ours:
            pid = spawn(theirs, ledger, bells)
            expected = [theirs.fileno(), ledger, *bells]
            theirs.close()
            data = b""
            while piece := ours.recv(65536):
                data += piece
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        for fd in (ledger, secret, *bells):
            os.close(fd)
    return [expected, *json.loads(data), secret]


def test_only_the_named_descriptors_pass(told: list[object]) -> None:
    """Standard streams, the channel, the ledger and the bells; nothing else of the supervisor's."""
    expected, arguments, fds = told[:3]
    assert isinstance(expected, list)
    assert isinstance(fds, list)
    assert told[5] not in fds
    assert set(expected) <= set(fds)
    channel, ledger, *bells = map(str, expected)
    assert arguments == ["-P", "-m", "pgshoal.worker", channel, ledger, ",".join(bells)]


def test_signals_for_the_supervisor_are_blocked(told: list[object]) -> None:
    """Until the worker ignores them."""
    assert told[3] == sorted(map(int, FOR_THE_SUPERVISOR))


def test_the_environment_leads_to_this_package(told: list[object]) -> None:
    """Without what systemd means for the supervisor."""
    found = told[4]
    assert isinstance(found, dict)
    assert found["PGSHOAL_TEST"] == "passes"
    assert "NOTIFY_SOCKET" not in found
    root = str(Path(module.__file__).parents[2])
    assert found["PYTHONPATH"].split(os.pathsep)[0] == root


def test_the_packages_way_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that was executed anew many times does not grow its environment."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    first = environment()["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", first)
    assert environment()["PYTHONPATH"] == first


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSError, and the caller goes on."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(FileNotFoundError):
        spawn(theirs, theirs.fileno(), [])
