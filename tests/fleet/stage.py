"""A real supervisor with stand-ins for workers."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pgshoal.config.model import Config, Settings
from pgshoal.demo.cluster import free_port
from pgshoal.fleet import supervisor as module
from pgshoal.fleet.children import Child
from pgshoal.fleet.supervisor import Supervisor
from pgshoal.worker.signals import FOR_THE_SUPERVISOR
from tests.worker.bench import QuietLog

HEEDED = ("listen", "lend", "unlend", "go", "drain", "shutdown", "stop")
ROOT = str(Path(__file__).resolve().parents[2])


class Stage:
    """`parts` are given to processes in the order of their start; those after the last are good."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, parts: Sequence[str] = (), **settings: Any) -> None:
        self.parts = list(parts)
        self.diary = folder / "diary"
        self.diary.touch()
        self.loop = asyncio.new_event_loop()
        self.log = QuietLog()
        patch.setattr(module, "spawn", self._spawn)
        known = {"listen_addr": ("127.0.0.1",), "listen_port": free_port(), "unix_socket_dir": "", "workers": 2}
        self.fleet = Supervisor(Config("test.ini", Settings(**{**known, **settings})), self.log, self.loop)
        self.fleet.sockets.open(self.fleet.config.settings)
        self.ups = 0
        self.fleet.on_up = self._up

    def _up(self) -> None:
        self.ups += 1

    def _spawn(self, channel: socket.socket, ledger_fd: int, bell_fds: Sequence[int]) -> int:
        part = self.parts.pop(0) if self.parts else "good"
        fd = channel.fileno()
        argv = [sys.executable, "-m", "tests.fleet.understudy", str(fd), part, str(self.diary)]
        actions = [(os.POSIX_SPAWN_DUP2, fd, fd)]
        environment = {**os.environ, "PYTHONPATH": ROOT}
        return os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsigmask=FOR_THE_SUPERVISOR)

    def begin(self) -> None:
        """Start all workers and wait until they serve."""
        self.fleet.begin()
        self.until(lambda: self.fleet.up)

    def until(self, reached: Callable[[], bool], limit_s: float = 20) -> None:
        """Run the loop until then."""

        async def wait() -> None:
            while not reached():
                await asyncio.sleep(0.005)

        self.loop.run_until_complete(asyncio.wait_for(wait(), limit_s))

    def child(self, number: int) -> Child:
        """Who serves a number."""
        found = self.fleet.posts[number].child
        assert found is not None
        return found

    def told(self) -> list[str]:
        """What the workers heard of sockets and of the end: "NUMBER VERB LISTENER"."""
        lines = [line.strip() for line in self.diary.read_text().splitlines()]
        return [line for line in lines if set(line.split()) & set(HEEDED)]

    def serves(self, number: int, but: Child | None = None) -> bool:
        """Whether the number has a process that is ready, and not that one."""
        found = self.fleet.posts[number].child
        return found is not None and found is not but and found.ready

    def run(self) -> int:
        """Until the fleet ends; its exit code."""
        if self.fleet.exit_code is None or self.fleet.children:
            self.loop.call_later(20, self.loop.stop)
            self.loop.run_forever()
        assert self.fleet.children == []
        assert self.fleet.exit_code is not None
        return self.fleet.exit_code

    def close(self) -> None:
        """No process is left behind."""
        for child in list(self.fleet.children):
            self.fleet.kill(child)
        self.fleet.stop(0)
        if self.fleet.children:
            self.loop.run_forever()
        self.fleet.close()
        self.loop.close()
