"""The client behind `pgshoal restart` and `pgshoal upgrade`, against a console that the test plays."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgshoal.config.model import Settings
from pgshoal.console.client import Client, ConsoleError, command
from pgshoal.wire import build

WELCOME = build.auth_ok() + build.parameter_status("server_version", "1.26.1/bouncer") + build.ready_for_query()


class Desk:
    """Answers one session: first what a login gets, then what the command gets."""

    def __init__(self, folder: Path, *answers: bytes) -> None:
        self.settings = Settings(unix_socket_dir=str(folder), listen_port=6432)
        self.heard: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.6432"))
        self._listener.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        # A client that has heard enough may leave in the middle of an answer.
        with client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for answer in self._answers:
                self.heard.append(client.recv(65536))
                for at in range(0, len(answer), 7):
                    client.sendall(answer[at : at + 7])

    def close(self) -> None:
        """The end."""
        self._thread.join()
        self._listener.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Makes one."""
    made: list[Desk] = []

    def one(*answers: bytes) -> Desk:
        made.append(Desk(tmp_path, *answers))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_a_command_and_what_the_console_says(desk: Callable[..., Desk]) -> None:
    """Notices and the tag, in order; the login is that of the owner."""
    console = desk(WELCOME, build.notice("wait") + build.command_complete("RESTART") + build.ready_for_query())
    said: list[str] = []
    with Client(console.settings) as client:
        client.run("RESTART 5", said.append)
    assert said == ["wait", "RESTART"]
    assert b"user\0pgbouncer\0database\0pgbouncer\0" in console.heard[0]
    assert console.heard[1] == build.query("RESTART 5")


def test_a_table_is_read(desk: Callable[..., Desk]) -> None:
    """A row by the names of its columns, without its nulls; a refusal in place of a table is an error."""
    table = build.row_description([("name", 25, -1), ("host", 25, -1), ("port", 23, 4)])
    rows = build.data_row(["app", "10.0.0.1", "5432"]) + build.data_row(["pgbouncer", None, "6432"])
    refusal = build.error_response("ERROR", "08P01", "not allowed")
    end = build.command_complete("SHOW") + build.ready_for_query()
    console = desk(WELCOME, table + rows + end, refusal + build.ready_for_query())
    with Client(console.settings) as client:
        assert client.rows("SHOW DATABASES") == [
            {"name": "app", "host": "10.0.0.1", "port": "5432"},
            {"name": "pgbouncer", "port": "6432"},
        ]
        with pytest.raises(ConsoleError, match="not allowed"):
            client.rows("SHOW LEDGER")


def test_a_refusal_is_an_error(desk: Callable[..., Desk]) -> None:
    """With the console's own text."""
    console = desk(WELCOME, build.error_response("ERROR", "08P01", "not now") + build.ready_for_query())
    with Client(console.settings) as client, pytest.raises(ConsoleError, match="not now"):
        client.run("UPGRADE", lambda text: None)


def test_another_account_is_asked_for_a_password(desk: Callable[..., Desk]) -> None:
    """Which this client does not have."""
    console = desk(build.auth_cleartext())
    with pytest.raises(ConsoleError, match="run this as the account of the pooler"):
        Client(console.settings)


def test_a_login_that_is_refused(desk: Callable[..., Desk]) -> None:
    """With the text of the refusal."""
    console = desk(build.error_response("FATAL", "08P01", "not allowed"))
    with pytest.raises(ConsoleError, match="not allowed"):
        Client(console.settings)


def test_a_pooler_that_ends_meanwhile(desk: Callable[..., Desk]) -> None:
    """Before the command is done."""
    console = desk(WELCOME, build.notice("wait"))
    with Client(console.settings) as client, pytest.raises(ConsoleError, match="has closed the connection"):
        client.run("RESTART", lambda text: None)


def test_something_else_answers(desk: Callable[..., Desk]) -> None:
    """A length that cannot be."""
    console = desk(b"HTTP/1.1 400 Bad Request")
    with pytest.raises(ConsoleError, match="no pooler"):
        Client(console.settings)


def test_nobody_answers(tmp_path: Path) -> None:
    """The path is named; so is the setting, if there is no path."""
    with pytest.raises(ConsoleError, match=f"no pooler answers at {tmp_path}/.s.PGSQL.6432: No such file"):
        Client(Settings(unix_socket_dir=str(tmp_path), listen_port=6432))
    with pytest.raises(ConsoleError, match="unix_socket_dir is not set"):
        Client(Settings(unix_socket_dir=""))
    with pytest.raises(ConsoleError, match="no pooler answers at @nowhere"):
        Client(Settings(unix_socket_dir=f"@nowhere-{os.getpid()}"))


def test_the_file_says_where(desk: Callable[..., Desk], tmp_path: Path) -> None:
    """`command` reads it from the configuration."""
    desk(WELCOME, build.command_complete("RESTART") + build.ready_for_query())
    path = tmp_path / "pgbouncer.ini"
    path.write_text(f"[pgbouncer]\nunix_socket_dir = {tmp_path}\nlisten_port = 6432\n")
    said: list[str] = []
    command(str(path), "RESTART", said.append)
    assert said == ["RESTART"]
