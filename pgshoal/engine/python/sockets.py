"""Sockets as the driver holds them: options, addresses, peers."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgshoal.engine.contract import Address, SocketOptions
    from pgshoal.engine.python.conn import Conn
    from pgshoal.engine.python.tls import TlsChannel


def clock_us() -> int:
    """Monotonic microseconds."""
    return time.monotonic_ns() // 1000


class Channel:
    """A connection's socket."""

    __slots__ = (
        "again",
        "blocked",
        "chunk",
        "closed",
        "conn",
        "connecting",
        "ending",
        "fd",
        "recv",
        "send",
        "sock",
        "tls",
    )

    def __init__(self, sock: socket.socket, conn: Conn, connecting: bool, chunk: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.conn = conn
        self.recv = sock.recv
        self.send = sock.send
        self.connecting = connecting
        self.chunk = chunk
        self.tls: TlsChannel | None = None
        #: The socket took less than it was given: wait for EPOLLOUT.
        self.blocked = False
        #: To be read again at the next wake; the peer has closed; our socket is closed.
        self.again = False
        self.ending = False
        self.closed = False


class Listener:
    """A listening socket, our own duplicate."""

    __slots__ = ("fd", "number", "options", "paused", "sock")

    def __init__(self, fd: int, number: int, options: SocketOptions) -> None:
        self.sock = socket.socket(fileno=os.dup(fd))
        self.sock.setblocking(False)
        self.fd = self.sock.fileno()
        self.number = number
        self.options = options
        self.paused = False


def tune(sock: socket.socket, options: SocketOptions) -> None:
    """Set the TCP options; a socket that does not know one goes without it."""
    if sock.family == socket.AF_UNIX:
        return
    wanted = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if options.keepalive:
        wanted.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
        wanted += [
            (socket.IPPROTO_TCP, option, value)
            for option, value in (
                (socket.TCP_KEEPIDLE, options.keepidle_s),
                (socket.TCP_KEEPINTVL, options.keepintvl_s),
                (socket.TCP_KEEPCNT, options.keepcnt),
            )
            if value
        ]
    if options.user_timeout_ms:
        wanted.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, options.user_timeout_ms))
    if options.buffer_bytes:
        wanted.append((socket.SOL_SOCKET, socket.SO_SNDBUF, options.buffer_bytes))
        wanted.append((socket.SOL_SOCKET, socket.SO_RCVBUF, options.buffer_bytes))
    for level, option, value in wanted:
        try:
            sock.setsockopt(level, option, value)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP):
                raise


def begin_connect(address: Address, options: SocketOptions) -> socket.socket:
    """A socket whose connection is under way; OSError if it cannot even begin."""
    target: tuple[str, int] | str
    if isinstance(address, str):
        family, target = socket.AF_UNIX, "\0" + address[1:] if address.startswith("@") else address
    else:
        family, target = (socket.AF_INET6 if ":" in address[0] else socket.AF_INET), address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        tune(sock, options)
        error = sock.connect_ex(target)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))
    except (OSError, OverflowError) as failure:
        sock.close()
        if isinstance(failure, OSError):
            raise
        raise OSError(errno.EINVAL, str(failure)) from failure
    return sock


def take_over(fd: int) -> socket.socket:
    """Own a descriptor that is given away; it is closed if it is no socket."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError as error:
        if error.errno != errno.EBADF:
            os.close(fd)
        raise
    sock.setblocking(False)
    return sock


def shut_writing(sock: socket.socket) -> None:
    """Tell the peer that we are done; what it still sends can be read from a duplicate."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


def addresses(channel: Channel | None) -> tuple[str, int, str, int]:
    """(peer host, peer port, local host, local port)."""
    if channel is None or channel.sock.family == socket.AF_UNIX:
        return ("unix", 0, "unix", 0)
    try:
        peer = channel.sock.getpeername()
        local = channel.sock.getsockname()
    except OSError:
        return ("", 0, "", 0)
    return (_plain(peer[0]), peer[1], _plain(local[0]), local[1])


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:")


def credentials(channel: Channel | None) -> tuple[int, int, int]:
    """(pid, uid, gid)."""
    if channel is None or channel.sock.family != socket.AF_UNIX:
        raise RuntimeError("not a Unix socket")
    found = channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, gid = struct.unpack("3i", found)
    return pid, uid, gid
