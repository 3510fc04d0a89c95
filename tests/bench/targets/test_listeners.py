"""Processes behind a port are found when they are a pooler's, and never guessed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.bench.targets.listeners import pooler_roots
from pgshoal.demo.cluster import free_port

#: Connects to a port, listens on another with SO_REUSEPORT, lets a child inherit the socket, and waits.
LISTEN = r"""
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
os.fork()
os.write(1, b"up\n")
sys.stdin.read()
"""


class Listeners:
    """Processes under the name of a program, with a child each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.started: list[subprocess.Popen[str]] = []

    def start(self, name: str) -> int:
        """One more on the port; its process id."""
        program = self.folder / name
        program.write_text(LISTEN)
        argv = [sys.executable, str(program), str(self.port), str(self.server.getsockname()[1])]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() + child.stdout.readline() == "up\nup\n"
        return child.pid


@pytest.fixture
def listeners(tmp_path: Path) -> Iterator[Listeners]:
    """None yet; all are ended at the end."""
    made = Listeners(tmp_path)
    yield made
    for child in made.started:
        child.communicate(timeout=10)
    made.server.close()


def test_a_fleet_is_found_without_its_children(listeners: Listeners) -> None:
    """Two poolers on one port are two roots; what they started is theirs."""
    first = listeners.start("pgbouncer")
    assert pooler_roots("localhost", listeners.port) == {"main": first}
    second = listeners.start("pgbouncer")
    assert sorted(pooler_roots("127.0.0.1", listeners.port).values()) == sorted([first, second])
    assert list(pooler_roots("127.0.0.1", listeners.port)) == ["main/0", "main/1"]


def test_what_is_no_pooler_is_not_taken_for_one(listeners: Listeners) -> None:
    """A forwarder to a container, say."""
    listeners.start("docker-proxy")
    assert pooler_roots("127.0.0.1", listeners.port) == {}


def test_another_port_or_machine_has_none(listeners: Listeners) -> None:
    """A connection of a pooler's to its server is no listener; a host that is not loopback may be any machine."""
    listeners.start("pgbouncer")
    conn, address = listeners.server.accept()
    with conn:
        assert pooler_roots("127.0.0.1", address[1]) == {}
    assert pooler_roots("192.0.2.1", listeners.port) == {}
    assert pooler_roots("no such host.invalid", listeners.port) == {}
