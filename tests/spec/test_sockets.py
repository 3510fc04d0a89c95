"""Options of the pooler's own sockets, read from the running process."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import MakePooler
from tests.support.pooler import Pooler

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

PIDFD_GETFD = 438
#: struct tcp_info of a listener: the bound on its queue stands where other sockets count what was acknowledged.
TCP_INFO_BACKLOG = 28


def sockets(pooler: Pooler) -> Iterator[socket.socket]:
    """Copies of all TCP sockets of the supervisor and its workers."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    for pid in (pooler.pid, *pooler.worker_pids()):
        handle = os.pidfd_open(pid)
        try:
            for fd in map(int, os.listdir(f"/proc/{pid}/fd")):
                if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                    continue
                copy = call(PIDFD_GETFD, handle, fd, 0)
                if copy < 0:
                    pytest.skip(f"descriptors of other processes cannot be read: {os.strerror(ctypes.get_errno())}")
                with socket.socket(fileno=copy) as found:
                    if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
                        yield found
        finally:
            os.close(handle)


def options(found: socket.socket) -> tuple[int, ...]:
    """Keepalive, its three numbers and the user timeout."""
    numbers = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    on = found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return (on, *(found.getsockopt(socket.IPPROTO_TCP, number) for number in numbers))


def _peer(found: socket.socket) -> bool:
    try:
        found.getpeername()
    except OSError:
        return False
    return True


def test_keepalive_and_timeouts(make: MakePooler) -> None:
    """tcp_keepalive, tcp_keepidle, tcp_keepintvl, tcp_keepcnt and tcp_user_timeout stand on both sides of a link."""
    pooler = make(tcp_keepalive=1, tcp_keepidle=77, tcp_keepintvl=11, tcp_keepcnt=4, tcp_user_timeout=5000)
    with pooler.connect() as conn:
        conn.execute("select 1")
        found = [options(end) for end in sockets(pooler) if _peer(end)]
    assert len(found) >= 2
    assert set(found) == {(1, 77, 11, 4, 5000)}


def test_no_keepalive(make: MakePooler) -> None:
    """tcp_keepalive = 0 leaves it off."""
    pooler = make(tcp_keepalive=0)
    with pooler.connect() as conn:
        conn.execute("select 1")
        assert {options(end)[0] for end in sockets(pooler) if _peer(end)} == {0}


def test_kernel_buffers(make: MakePooler) -> None:
    """tcp_socket_buffer is the size of both kernel buffers, on both sides (Linux doubles what it is asked for)."""
    pooler = make(tcp_socket_buffer=50_000)
    with pooler.connect() as conn:
        conn.execute("select 1")
        sizes = [
            (end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), end.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            for end in sockets(pooler)
            if _peer(end)
        ]
    assert len(sizes) >= 2
    assert set(sizes) == {(100_000, 100_000)}


def test_the_queue_of_new_connections(start: MakePooler) -> None:
    """listen_backlog bounds it."""
    pooler = start(listen_backlog=37)
    listening = [
        int.from_bytes(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[TCP_INFO_BACKLOG:32], "little")
        for found in sockets(pooler)
        if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]
    assert listening
    assert set(listening) == {37}
