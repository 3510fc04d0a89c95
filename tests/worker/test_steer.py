"""The kernel is told which of the sockets on one port gets the next connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pgshoal.worker.steer import release, steer

MANY = 40


@pytest.fixture
def shoal() -> Iterator[list[socket.socket]]:
    """Four listening sockets on one port, as a fleet of four has them."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(4)]
        for sock in found:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.setblocking(False)
            sock.bind(("127.0.0.1", found[0].getsockname()[1]))
        for sock in found:
            sock.listen(MANY)
        yield found


def arrivals(shoal: list[socket.socket]) -> list[int]:
    """How many of many new connections each socket gets."""
    counts = [0] * len(shoal)
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(shoal[0].getsockname()))
        for number, sock in enumerate(shoal):
            while True:
                try:
                    stack.enter_context(sock.accept()[0])
                except BlockingIOError:
                    break
                counts[number] += 1
    return counts


def test_connections_go_where_they_are_steered(shoal: list[socket.socket]) -> None:
    """All of them reach the chosen socket, whichever socket it was said on, and the next choice replaces it."""
    steer(shoal[1], 2)
    assert arrivals(shoal) == [0, 0, MANY, 0]
    steer(shoal[3], 0)
    assert arrivals(shoal) == [MANY, 0, 0, 0]


def test_the_kernel_chooses_again_after_release(shoal: list[socket.socket]) -> None:
    """Released, connections are spread over the sockets."""
    steer(shoal[0], 2)
    release(shoal[0])
    found = arrivals(shoal)
    assert sum(found) == MANY
    assert max(found) < MANY


def test_a_lonely_socket_cannot_be_steered() -> None:
    """A Unix socket shares no port: that is an error, not silence."""
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(OSError, match=r"\[Errno"):
        steer(sock, 0)
