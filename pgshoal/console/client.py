"""A small blocking client of a running pooler's console, over its Unix socket, as the owner of the process."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from pgshoal.config.load import load
from pgshoal.config.model import Settings
from pgshoal.policy.access import CONSOLE_DATABASE, CONSOLE_USER
from pgshoal.wire import build, read

_HEAD: Final = struct.Struct("!ci")
_MESSAGE_MAX: Final = 64 * 1024 * 1024
_CONNECT_LIMIT_S: Final = 10.0


class ConsoleError(Exception):
    """The console cannot be reached, or has refused; the text is for the operator."""


def command(config_path: str, text: str, say: Callable[[str], None]) -> None:
    """Run one command on the console of the pooler that runs from this file, however long it takes.

    `say` gets notices and the command's tag.
    """
    with Client(load(config_path).settings) as client:
        client.run(text, say)


class Client:
    """One session."""

    def __init__(self, settings: Settings) -> None:
        folder = settings.unix_socket_dir
        if not folder:
            raise ConsoleError("unix_socket_dir is not set, so that the console cannot be reached from here")
        path = f"{folder}/.s.PGSQL.{settings.listen_port}"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            _become_owner(path)
            self._sock.settimeout(_CONNECT_LIMIT_S)
            self._sock.connect("\0" + path[1:] if path.startswith("@") else path)
            self._sock.settimeout(None)
        except OSError as error:
            self._sock.close()
            raise ConsoleError(f"no pooler answers at {path}: {error.strerror or error}") from None
        try:
            self._login()
        except ConsoleError:
            self._sock.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *facts: object) -> None:
        with suppress(OSError):
            self._sock.sendall(build.terminate())
        self._sock.close()

    def run(self, text: str, say: Callable[[str], None]) -> None:
        """One command; ConsoleError with the console's own text if it is refused."""
        for kind, payload in self._answer(text):
            match kind:
                case b"N":
                    say(read.error_fields(payload).text)
                case b"C":
                    say(read.command_complete(payload))

    def rows(self, text: str) -> list[dict[str, str]]:
        """What one SHOW command answers, by column; ConsoleError if it is refused. A null is left out of its row."""
        columns: list[str] = []
        found = []
        for kind, payload in self._answer(text):
            if kind == b"T":
                columns = [column.name for column in read.row_description(payload)]
            elif kind == b"D":
                pairs = zip(columns, read.data_row(payload), strict=True)
                found.append({name: read.decode(value) for name, value in pairs if value is not None})
        return found

    def _answer(self, text: str) -> Iterator[tuple[bytes, bytes]]:
        """The messages that answer a command; ConsoleError in the end if an error was among them."""
        self._sock.sendall(build.query(text))
        wrong = ""
        while True:
            kind, payload = self._message()
            if kind == b"Z":
                break
            if kind == b"E":
                wrong = read.error_fields(payload).text
            yield kind, payload
        if wrong:
            raise ConsoleError(wrong)

    def _login(self) -> None:
        self._sock.sendall(build.startup_message([("user", CONSOLE_USER), ("database", CONSOLE_DATABASE)]))
        while True:
            kind, payload = self._message()
            if kind == b"E":
                raise ConsoleError(read.error_fields(payload).text)
            if kind == b"R" and payload != b"\0\0\0\0":
                raise ConsoleError("the console asks for a password: run this as the account of the pooler")
            if kind == b"Z":
                return

    def _message(self) -> tuple[bytes, bytes]:
        kind, size = _HEAD.unpack(self._exactly(_HEAD.size))
        if not 4 <= size <= _MESSAGE_MAX:
            raise ConsoleError("what answers is no pooler")
        return kind, self._exactly(size - 4)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                more = self._sock.recv(size - len(found))
            except OSError as error:
                raise ConsoleError(f"the connection was lost: {error.strerror}") from None
            if not more:
                raise ConsoleError("the pooler has closed the connection")
            found += more
        return found


def _become_owner(path: str) -> None:
    """The console knows the pooler's own account without a password; root may become it."""
    if os.geteuid() == 0 and not path.startswith("@"):
        found = os.stat(path)
        if stat.S_ISSOCK(found.st_mode):
            os.seteuid(found.st_uid)
