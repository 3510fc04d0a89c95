"""The sockets clients connect to: opened before any worker starts, and kept until the fleet ends."""

from __future__ import annotations

import errno
import grp
import itertools
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pgshoal.config.model import Settings
from pgshoal.worker.log import Log

#: How long the kernel keeps a connection back that has not sent anything.
_DEFER_ACCEPT_S: Final = 45
_WILDCARDS: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))
_LISTEN_FDS_START: Final = 3


def refuse_second(settings: Settings) -> None:
    """CannotListen if somebody serves the Unix socket that is to be opened; a left over file is removed."""
    if settings.unix_socket_dir and os.environ.get("LISTEN_PID") != str(os.getpid()):
        path = f"{settings.unix_socket_dir}/.s.PGSQL.{settings.listen_port}"
        _remove_stale("\0" + path[1:] if path.startswith("@") else path)


class CannotListen(OSError):
    """The pooler cannot start; the text is PgBouncer's."""


@dataclass(slots=True, eq=False)
class Listening:
    """One listening socket. `number` is the worker that owns it, None for one that all workers share."""

    id: int
    name: str
    tcp: bool
    number: int | None
    sock: socket.socket


class Sockets:
    """All listening sockets of the fleet: one for each worker and TCP address, and one for each Unix path."""

    def __init__(self, workers: int, log: Log) -> None:
        self.all: list[Listening] = []
        self._workers = workers
        self._log = log
        self._unix_path = ""
        self._ids = itertools.count(1)

    def open(self, settings: Settings) -> None:
        """Listen on all that the settings name, or systemd gave. CannotListen if that is nothing, or Unix fails."""
        given = _from_systemd()
        for sock in given:
            self._add(sock, None)
        if not given and settings.listen_addr:
            self._open_tcp(settings)
        if not given and settings.unix_socket_dir:
            self._add(self._open_unix(settings), None)
        if not self.all:
            raise CannotListen("nowhere to listen on")
        for name in dict.fromkeys(listening.name for listening in self.all):
            self._log.log(f"listening on {name}")

    def of(self, number: int) -> list[Listening]:
        """What the worker of that number accepts from."""
        return [listening for listening in self.all if listening.number in (number, None)]

    def own(self, number: int) -> list[Listening]:
        """What nobody accepts from while that number has no process."""
        return [listening for listening in self.all if listening.number == number]

    def close_tcp(self) -> None:
        """A shutdown has begun: only Unix sockets stay, for the console."""
        for listening in [listening for listening in self.all if listening.tcp]:
            self.all.remove(listening)
            listening.sock.close()

    def close(self) -> None:
        """Close everything and remove the Unix socket's file."""
        for listening in self.all:
            listening.sock.close()
        self.all.clear()
        if self._unix_path:
            with suppress(OSError):
                os.unlink(self._unix_path)
            self._unix_path = ""

    # -- for an upgrade

    def export(self) -> dict[str, object]:
        """What the next program needs to take over the sockets; their descriptors stay open across exec."""
        rows = [[one.id, one.name, one.tcp, one.number, one.sock.fileno()] for one in self.all]
        return {"sockets": rows, "unix_path": self._unix_path}

    def adopt(self, carried: dict[str, object]) -> None:
        """Take over what `export` wrote."""
        rows = carried["sockets"]
        assert isinstance(rows, list)
        for ident, name, tcp, number, fd in rows:
            self.all.append(Listening(ident, name, tcp, number, socket.socket(fileno=fd)))
        self._unix_path = str(carried["unix_path"])
        self._ids = itertools.count(max((one.id for one in self.all), default=0) + 1)

    def _add(self, sock: socket.socket, number: int | None) -> None:
        tcp = sock.family != socket.AF_UNIX
        self.all.append(Listening(next(self._ids), _name(sock), tcp, number, sock))

    # -- TCP

    def _open_tcp(self, settings: Settings) -> None:
        for address in settings.listen_addr:
            for family, host in resolve(address, settings.listen_port):
                for number, sock in enumerate(self._listen_tcp(family, host, settings)):
                    self._add(sock, number)
        if not self.all:
            names = ",".join(settings.listen_addr)
            raise CannotListen(f"failed to listen on any address in listen_addr list: {names}")

    def _listen_tcp(self, family: socket.AddressFamily, host: str, settings: Settings) -> list[socket.socket]:
        """One socket for each worker; an address that cannot be used costs a warning."""
        found: list[socket.socket] = []
        where = (host, settings.listen_port)
        step = "socket"
        try:
            if not settings.so_reuseport:
                # All our own sockets have SO_REUSEPORT; whether somebody else is there shows without it only.
                with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
                    _prepare(probe, settings, reuse_port=False)
                    step = "bind"
                    probe.bind(where)
            for _ in range(self._workers):
                step = "socket"
                sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
                found.append(sock)
                _prepare(sock, settings, reuse_port=True)
                step = "bind"
                sock.bind(where)
            step = "listen"
            for sock in found:
                sock.listen(settings.listen_backlog)
        except OSError as error:
            for sock in found:
                sock.close()
            shown = _bracketed(host)
            self._log.warning(f"cannot listen on {shown}:{settings.listen_port}: {step}(): {error.strerror}")
            return []
        return found

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
            reason = f"bind(): {error.strerror}" if isinstance(error, OSError) else str(error)
            self._log.warning(f"cannot listen on unix:{path}: {reason}")
            raise CannotListen("failed to create unix socket") from None
        return sock


def _prepare(sock: socket.socket, settings: Settings, reuse_port: bool) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if settings.tcp_defer_accept:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_ACCEPT_S)


def _from_systemd() -> list[socket.socket]:
    """The sockets of a systemd socket unit, if there is one; what is not a listening stream socket is left out."""
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()):
        return []
    names = os.environ.pop("LISTEN_FDS", "0")
    found = []
    for fd in range(_LISTEN_FDS_START, _LISTEN_FDS_START + (int(names) if names.isdigit() else 0)):
        try:
            os.set_inheritable(fd, False)
            sock = socket.socket(fileno=fd)
        except OSError:
            continue  # not there, or no socket
        if sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.setblocking(False)
            found.append(sock)
        else:
            sock.close()
    return found


def resolve(address: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """What one word of listen_addr stands for; CannotListen if that is nothing."""
    if address == "*":
        return list(_WILDCARDS)
    try:
        rows = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListen(f"getaddrinfo('{address}', '{port}') = {error.strerror} [{error.errno}]") from None
    except UnicodeError:  # Python looks at names before the resolver does
        raise CannotListen(f"getaddrinfo('{address}', '{port}') = not a name") from None
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
            if not path.startswith("\0"):
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
        os.chown(path, -1, group_id(settings.unix_socket_group))
    os.chmod(path, settings.unix_socket_mode)


def group_id(group: str) -> int:
    """The number of a group given by name or number; KeyError if there is none of that name."""
    return int(group) if group.isdigit() else grp.getgrnam(group).gr_gid


def _name(sock: socket.socket) -> str:
    where = sock.getsockname()
    if isinstance(where, bytes):
        return "unix:@" + where[1:].decode("utf-8", "replace")
    if isinstance(where, str):
        return f"unix:{where}"
    return f"{_bracketed(where[0])}:{where[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
