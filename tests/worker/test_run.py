"""A worker process: boot, exit codes, and its end when the supervisor is gone."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgshoal.config.model import Config, DatabaseConfig, Settings
from pgshoal.fleet.channel import Channel, Message
from pgshoal.fleet.ledger import Ledger
from pgshoal.fleet.spawn import spawn

LIMIT_S = 30


class Parent:
    """As much of a supervisor as one real worker needs."""

    def __init__(self, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.ledger = Ledger.create(4)
        self.ledger.set_fleet(1, False)
        self.ledger.occupy(2, 0)
        ours, theirs = socket.socketpair()
        self.pid = spawn(theirs, self.ledger.fd, self.ledger.bells)
        theirs.close()
        self.heard: list[Message] = []
        self.ended = False
        self.channel = Channel(ours, self.loop, self._end)
        self.channel.on("ready", self.heard.append)
        entries = {"app": DatabaseConfig("app", hosts=("127.0.0.1",))}
        self.config = Config("test.ini", Settings(**{"auth_type": "any", "log_stats": False, **settings}), entries)

    def _end(self) -> None:
        self.ended = True

    def boot(self, **changed: Any) -> None:
        """The first message."""
        fields = {
            "number": 0, "seat": 2, "workers": 1, "generation": 1, "overrides": {}, "quiet": True, "cpus": [],
            "key_secret": "00" * 32, "state": {}, **changed,
        }  # fmt: skip
        self.channel.send("boot", fields, pickle.dumps(self.config))

    def until(self, reached: Callable[[], bool]) -> None:
        """Run the loop until then."""

        async def wait() -> None:
            while not reached():
                await asyncio.sleep(0.005)

        self.loop.run_until_complete(asyncio.wait_for(wait(), LIMIT_S))

    def exit_code(self) -> int:
        """Wait for the end of the process."""
        self.until(lambda: self.ended)
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        """Leave nothing behind."""
        self.channel.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.ledger.close()
        self.ledger.close_descriptors()
        self.loop.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Parent]]:
    """Makes one; it is cleared at the end."""
    made: list[Parent] = []

    def one(**settings: Any) -> Parent:
        made.append(Parent(**settings))
        return made[-1]

    yield one
    for parent in made:
        parent.close()


def serving(parent: Parent) -> None:
    """Boot it to the end."""
    parent.boot()
    parent.channel.send("go")
    parent.until(lambda: bool(parent.heard))


def test_it_serves_answers_and_ends_as_told(make: Callable[..., Parent], engine: str) -> None:
    """ready names the engine, ping is answered, stop gives the exit code."""
    parent = make(engine=engine)
    serving(parent)
    assert (parent.heard[0]["pid"], parent.heard[0]["engine"]) == (parent.pid, engine)
    assert Path(f"/proc/{parent.pid}/comm").read_text() == "pgshoal-0\n"
    answers: list[Message | None] = []
    parent.channel.ask("ping", answers.append)
    parent.until(lambda: bool(answers))
    assert answers[0] is not None
    assert answers[0]["clients"] == 0
    assert answers[0]["rss_bytes"] > 0
    parent.channel.send("stop", {"code": 5})
    assert parent.exit_code() == 5


def test_it_accepts_from_the_socket_it_was_sent(make: Callable[..., Parent]) -> None:
    """A client that came before all was ready is served too."""
    parent = make(engine="epoll")
    with socket.socket() as listening, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        client.connect(listening.getsockname())
        client.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")
        parent.boot()
        parent.channel.send("listen", {"listener": 1, "name": "x", "tcp": True}, fd=listening.fileno())
        parent.channel.send("go")
        client.settimeout(LIMIT_S)
        parent.until(lambda: bool(parent.heard))
        assert client.recv(1) == b"N"


def test_signals_of_the_terminal_do_not_end_it(make: Callable[..., Parent]) -> None:
    """Those are for the supervisor, whenever they come."""
    parent = make(engine="epoll")
    os.kill(parent.pid, signal.SIGINT)
    serving(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        os.kill(parent.pid, number)
    answers: list[Message | None] = []
    parent.channel.ask("ping", answers.append)
    parent.until(lambda: bool(answers))
    assert answers[0] is not None


@pytest.mark.parametrize("booted", [False, True])
def test_an_orphan_ends(make: Callable[..., Parent], booted: bool) -> None:
    """Before its boot and after it."""
    parent = make(engine="epoll")
    if booted:
        serving(parent)
    parent.channel.close()
    pid, parent.pid = parent.pid, 0
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"logfile": "/nowhere/log"},
        {"client_tls_sslmode": "require", "client_tls_cert_file": "/nowhere/c", "client_tls_key_file": "/nowhere/k"},
    ],
)
def test_what_it_cannot_boot_with_is_exit_code_3(make: Callable[..., Parent], settings: dict[str, Any]) -> None:
    """A file that is missing is no crash."""
    parent = make(engine="epoll", **settings)
    parent.boot()
    assert parent.exit_code() == 3


def test_a_pause_decided_before_holds_in_a_new_worker(make: Callable[..., Parent], tmp_path: Path) -> None:
    """`state` in boot; and a CPU that may not be used costs a warning, not the worker."""
    log = tmp_path / "log"
    parent = make(engine="epoll", logfile=str(log))
    parent.boot(state={"paused": True, "shutdown": "clients"}, cpus=[4000])
    parent.channel.on("empty", parent.heard.append)
    parent.channel.send("go")
    parent.until(lambda: {message.verb for message in parent.heard} == {"ready", "empty"})
    assert "cannot run on CPU 4000 only" in log.read_text()


def test_the_program_needs_its_arguments() -> None:
    """Nobody starts it by hand."""
    pid = os.posix_spawn(
        sys.executable, [sys.executable, "-m", "pgshoal.worker"], {**os.environ, "PYTHONPATH": "."},
        file_actions=[(os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)],
    )  # fmt: skip
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
