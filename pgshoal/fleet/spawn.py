"""Starts a worker process by exec, with the descriptors it needs and nothing else of ours."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pgshoal
from pgshoal.worker.signals import FOR_THE_SUPERVISOR

#: Meant for the supervisor alone.
_NOT_FOR_WORKERS: Final = (
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)


def spawn(channel: socket.socket, ledger_fd: int, bell_fds: Sequence[int]) -> int:
    """Start a worker on the other end of `channel`; returns its process id.

    Every descriptor of ours closes at exec but those named here. The signals that are for us are blocked in it until
    it ignores them, as a Ctrl-C goes to all processes of the terminal.
    """
    kept = (channel.fileno(), ledger_fd, *bell_fds)
    numbers = [str(kept[0]), str(kept[1]), ",".join(map(str, bell_fds))]
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "pgshoal.worker", *numbers],
        environment(),
        # To duplicate a descriptor onto itself is how posix_spawn lets it survive exec.
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd) for fd in kept],
        setsigmask=FOR_THE_SUPERVISOR,
    )


def environment() -> dict[str, str]:
    """Ours, with a way to this very package: -P keeps the working directory, which may hold anything, out of it."""
    found = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS}
    package = str(Path(pgshoal.__file__).parent.parent)
    before = [place for place in found.get("PYTHONPATH", "").split(os.pathsep) if place and place != package]
    found["PYTHONPATH"] = os.pathsep.join([package, *before])
    return found
