"""The balancer before several nodes."""

from __future__ import annotations

import contextlib
import socket
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
    """Four connections, two for each node; afterwards nothing is left."""
    heard = b""
    with Balancer([node.getsockname() for node in nodes]) as balancer:
        assert balancer.running
        for _ in range(4):
            with socket.create_connection((balancer.host, balancer.port), timeout=10) as conn:
                heard += conn.recv(1)
    assert heard in (b"abab", b"baba")
    assert not balancer.running
    assert not balancer.folder.exists()


def test_its_log_says_why_it_does_not_start(nodes: list[socket.socket]) -> None:
    """An option it does not know; its files are removed."""
    balancer = Balancer([node.getsockname() for node in nodes], options="no-such-option")
    with pytest.raises(RuntimeError, match=r"(?s)does not start.*no-such-option"), balancer:
        raise AssertionError("it must not start")
    assert not balancer.folder.exists()
