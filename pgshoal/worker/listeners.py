"""The sockets clients connect to: TCP addresses and the Unix socket, opened, watched and closed."""

from __future__ import annotations

import errno
import grp
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.config.model import Settings
from pgshoal.engine.contract import SocketOptions

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: After accept() has failed, which mostly means that descriptors ran out.
ACCEPT_PAUSE_S: Final = 5.0
#: How long the kernel keeps a connection back that has not sent anything.
_DEFER_ACCEPT_S: Final = 45
_WILDCARDS: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))


class CannotListen(OSError):
    """The pooler cannot start; the text is PgBouncer's."""


class Listeners:
    """All listening sockets; `open` makes them, the engine accepts from them under the numbers given here."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._open: dict[int, socket.socket] = {}
        self._unix_path = ""
        self._next = 0

    def open(self) -> None:
        """Listen on everything the settings name. CannotListen if that is nothing, or the Unix socket fails."""
        settings = self._worker.config.settings
        found = [] if not settings.listen_addr else self._open_tcp(settings)
        if settings.unix_socket_dir:
            found.append(self._open_unix(settings))
        if not found:
            raise CannotListen("nowhere to listen on")
        options = socket_options(settings)
        for sock in found:
            self._next += 1
            self._open[self._next] = sock
            self._worker.engine.listen(sock.fileno(), self._next, options)
            self._worker.log.log(f"listening on {_name(sock)}")

    def close_tcp(self) -> None:
        """A shutdown has begun: only the Unix socket stays, for the console."""
        for number, sock in list(self._open.items()):
            if sock.family != socket.AF_UNIX:
                self._drop(number)

    def close(self) -> None:
        """Close everything and remove the Unix socket's file."""
        for number in list(self._open):
            self._drop(number)
        if self._unix_path:
            with suppress(OSError):
                os.unlink(self._unix_path)
            self._unix_path = ""

    def accept_failed(self, listener: int, text: str) -> None:
        """The engine has paused the listener; it is tried again after a while."""
        worker = self._worker
        worker.log.error(f"accept() failed: {text}")
        worker.loop.call_later(ACCEPT_PAUSE_S, self._resume, listener)

    def _resume(self, listener: int) -> None:
        if listener in self._open:
            self._worker.engine.resume_listener(listener)
            self._worker.settle()

    def _drop(self, number: int) -> None:
        self._worker.engine.unlisten(number)
        self._open.pop(number).close()

    # -- TCP

    def _open_tcp(self, settings: Settings) -> list[socket.socket]:
        found: list[socket.socket] = []
        for address in settings.listen_addr:
            for family, host in _resolve(address, settings.listen_port):
                sock = self._listen_tcp(family, host, settings)
                if sock is not None:
                    found.append(sock)
        if not found:
            names = ",".join(settings.listen_addr)
            raise CannotListen(f"failed to listen on any address in listen_addr list: {names}")
        return found

    def _listen_tcp(self, family: socket.AddressFamily, host: str, settings: Settings) -> socket.socket | None:
        """One socket; an address that cannot be used costs a warning."""
        step = "socket"
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if settings.so_reuseport:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if settings.tcp_defer_accept:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_ACCEPT_S)
            step = "bind"
            sock.bind((host, settings.listen_port))
            step = "listen"
            sock.listen(settings.listen_backlog)
        except OSError as error:
            if sock is not None:
                sock.close()
            shown = _bracketed(host)
            self._worker.log.warning(f"cannot listen on {shown}:{settings.listen_port}: {step}(): {error.strerror}")
            return None
        return sock

    # -- Unix

    def _open_unix(self, settings: Settings) -> socket.socket:
        path = f"{settings.unix_socket_dir}/.s.PGSQL.{settings.listen_port}"
        abstract = path.startswith("@")
        name = "\0" + path[1:] if abstract else path
        if not abstract:
            _remove_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            sock.bind(name)
            if not abstract:
                self._unix_path = path
                _set_access(path, settings)
            sock.listen(settings.listen_backlog)
        except (OSError, KeyError) as error:
            sock.close()
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise CannotListen("unix socket is in use, cannot continue") from None
            self._worker.log.error(f"cannot listen on unix:{path}: {error}")
            raise CannotListen("failed to create unix socket") from None
        return sock


def socket_options(settings: Settings) -> SocketOptions:
    """What the settings say of TCP sockets."""
    return SocketOptions(
        keepalive=settings.tcp_keepalive,
        keepidle_s=settings.tcp_keepidle,
        keepintvl_s=settings.tcp_keepintvl,
        keepcnt=settings.tcp_keepcnt,
        user_timeout_ms=settings.tcp_user_timeout,
        buffer_bytes=settings.tcp_socket_buffer,
    )


def _resolve(address: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    if address == "*":
        return list(_WILDCARDS)
    try:
        rows = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListen(f"getaddrinfo('{address}', '{port}') = {error.strerror} [{error.errno}]") from None
    return [(row[0], str(row[4][0])) for row in rows]


def _remove_stale(path: str) -> None:
    """A file nobody listens behind is left over from a crash."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        except BlockingIOError:
            pass  # somebody listens, with a full queue
        except OSError:
            return  # not a socket, or no right to look: bind will say
    raise CannotListen("unix socket is in use, cannot continue")


def _set_access(path: str, settings: Settings) -> None:
    if settings.unix_socket_group:
        group = settings.unix_socket_group
        os.chown(path, -1, int(group) if group.isdigit() else grp.getgrnam(group).gr_gid)
    os.chmod(path, settings.unix_socket_mode)


def _name(sock: socket.socket) -> str:
    where = sock.getsockname()
    if isinstance(where, bytes):
        return "unix:@" + where[1:].decode("utf-8", "replace")
    if isinstance(where, str):
        return f"unix:{where}"
    return f"{_bracketed(where[0])}:{where[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
