"""The balancer before several nodes."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pgshoal.bench.targets.balancer import Balancer, program


@pytest.fixture(autouse=True)
def installed() -> None:
    """HAProxy is a package that not every machine has."""
    try:
        program()
    except RuntimeError as missing:
        pytest.skip(str(missing))


def greet(node: socket.socket, word: bytes) -> None:
    """Serves until the node is closed: a word to whoever connects."""
    while True:
        try:
            conn, _ = node.accept()
        except OSError:
            return
        with conn, contextlib.suppress(OSError):
            conn.sendall(word)


@pytest.fixture
def nodes() -> Iterator[list[socket.socket]]:
    """Two nodes that say which they are."""
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    threads = [threading.Thread(target=greet, args=(one, word)) for one, word in zip(made, (b"a", b"b"), strict=True)]
    for thread in threads:
        thread.start()
    yield made
    for one, thread in zip(made, threads, strict=True):
        one.shutdown(socket.SHUT_RDWR)
        one.close()
        thread.join(10)


def test_nodes_are_taken_in_turn(nodes: list[socket.socket]) -> None:
    """Eight connections, half of them for each node but for the one that saw whether it is up; nothing is left."""
    heard = b""
    with Balancer([node.getsockname() for node in nodes]) as balancer:
        assert balancer.running
        for _ in range(8):
            with socket.create_connection((balancer.host, balancer.port), timeout=10) as conn:
                heard += conn.recv(1)
    assert heard.count(b"a") in (3, 4, 5)
    assert len(heard) == 8
    assert not balancer.running
    assert not balancer.folder.exists()


#: Starts a balancer, says its process id and folder, and waits.
KIT = """
from pgshoal.bench.targets.balancer import Balancer
balancer = Balancer([("127.0.0.1", 9)])
balancer.start()
print(balancer.pid, balancer.folder, flush=True)
input()
"""


def test_it_ends_with_a_kit_that_is_killed() -> None:
    """Nobody else would stop it."""
    kit = subprocess.Popen([sys.executable, "-c", KIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert kit.stdout is not None
    pid, folder = kit.stdout.readline().split()
    watch = os.pidfd_open(int(pid))
    try:
        kit.kill()
        kit.communicate()
        assert select.select([watch], [], [], 20)[0] == [watch]
    finally:
        os.close(watch)
        shutil.rmtree(folder)


def test_its_log_says_why_it_does_not_start(nodes: list[socket.socket]) -> None:
    """An option it does not know; its files are removed."""
    balancer = Balancer([node.getsockname() for node in nodes], options="no-such-option")
    with pytest.raises(RuntimeError, match=r"(?s)does not start.*no-such-option"), balancer:
        raise AssertionError("it must not start")
    assert not balancer.folder.exists()
