"""Listening sockets."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from pgshoal.demo.cluster import free_port
from pgshoal.worker.listeners import CannotListen
from tests.worker.stub import Bench


def bench(directory: Path | str = "", **settings: Any) -> Bench:
    """A worker that would listen on a free port."""
    return Bench(unix_socket_dir=str(directory), listen_port=free_port(), **settings)


def listened(b: Bench) -> list[int]:
    """The numbers under which the engine was told to accept."""
    return [call[2] for call in b.engine.calls if call[0] == "listen"]


def test_tcp_and_unix_sockets_are_opened_and_named(tmp_path: Path) -> None:
    """Both can be connected to, and the log names them as PgBouncer does."""
    with bench(tmp_path, listen_addr=("127.0.0.1", "::1")) as b:
        b.worker.listeners.open()
        port = b.config.settings.listen_port
        socket.create_connection(("127.0.0.1", port)).close()
        path = tmp_path / f".s.PGSQL.{port}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        lines = b.log.texts().splitlines()
        assert f"listening on 127.0.0.1:{port}" in lines
        assert f"listening on unix:{path}" in lines
        assert len(listened(b)) == len([line for line in lines if line.startswith("listening")])
        b.worker.listeners.close()
        assert not path.exists()


def test_star_listens_on_every_address() -> None:
    """`*` is IPv4 and, where there is one, IPv6."""
    with bench(listen_addr=("*",)) as b:
        b.worker.listeners.open()
        assert f"listening on 0.0.0.0:{b.config.settings.listen_port}" in b.log.texts()
        b.worker.listeners.close()


def test_the_unix_socket_has_the_mode_asked_for(tmp_path: Path) -> None:
    """unix_socket_mode and unix_socket_group are set on the file."""
    with bench(tmp_path, unix_socket_mode=0o700, unix_socket_group=str(os.getegid())) as b:
        b.worker.listeners.open()
        found = (tmp_path / f".s.PGSQL.{b.config.settings.listen_port}").stat()
        assert stat.S_IMODE(found.st_mode) == 0o700
        assert found.st_gid == os.getegid()
        b.worker.listeners.close()


def test_an_unknown_group_stops_the_start(tmp_path: Path) -> None:
    """A socket with other rights than asked for is worse than none."""
    with bench(tmp_path, unix_socket_group="no such group") as b:
        with pytest.raises(CannotListen, match="failed to create unix socket"):
            b.worker.listeners.open()
        b.worker.listeners.close()


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    """A file left by a crash is removed; nobody listens behind it."""
    with bench(tmp_path) as b:
        path = tmp_path / f".s.PGSQL.{b.config.settings.listen_port}"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        b.worker.listeners.open()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        b.worker.listeners.close()


def test_a_socket_in_use_stops_the_start(tmp_path: Path) -> None:
    """A socket somebody listens on is left alone."""
    with bench(tmp_path) as b:
        path = tmp_path / f".s.PGSQL.{b.config.settings.listen_port}"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            with pytest.raises(CannotListen, match="unix socket is in use, cannot continue"):
                b.worker.listeners.open()
            b.worker.listeners.close()
            assert path.exists()


def test_abstract_sockets_leave_no_file() -> None:
    """A directory that begins with @ names an abstract socket."""
    name = f"@pgshoal-test-{os.getpid()}"
    with bench(name) as b:
        b.worker.listeners.open()
        port = b.config.settings.listen_port
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{name[1:]}/.s.PGSQL.{port}")
        assert f"listening on unix:{name}/.s.PGSQL.{port}" in b.log.texts()
        b.worker.listeners.close()


def test_one_bad_address_is_a_warning_and_none_left_is_the_end() -> None:
    """The others are used; without any the start fails and names the setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Bench(unix_socket_dir="", listen_port=port, listen_addr=("127.0.0.1", "127.0.0.2")) as b:
            b.worker.listeners.open()
            assert f"cannot listen on 127.0.0.1:{port}: bind(): Address already in use" in b.log.texts()
            assert len(listened(b)) == 1
            b.worker.listeners.close()
        with (
            Bench(unix_socket_dir="", listen_port=port, listen_addr=("127.0.0.1",)) as b,
            pytest.raises(CannotListen, match="failed to listen on any address in listen_addr list"),
        ):
            b.worker.listeners.open()


def test_nothing_to_listen_on_is_the_end() -> None:
    """Neither addresses nor a Unix directory."""
    with bench() as b, pytest.raises(CannotListen, match="nowhere to listen on"):
        b.worker.listeners.open()


def test_a_shutdown_closes_tcp_and_keeps_unix(tmp_path: Path) -> None:
    """The console stays reachable while clients drain."""
    with bench(tmp_path, listen_addr=("127.0.0.1",)) as b:
        b.worker.listeners.open()
        port = b.config.settings.listen_port
        b.worker.listeners.close_tcp()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert (tmp_path / f".s.PGSQL.{port}").exists()
        assert [call for call in b.engine.calls if call[0] == "unlisten"] == [("unlisten", listened(b)[0])]
        b.worker.listeners.close()


def test_a_failed_accept_is_logged_and_tried_again() -> None:
    """The listener is resumed after its pause, but not once it is closed."""
    with bench(listen_addr=("127.0.0.1",)) as b:
        b.worker.listeners.open()
        timers: list[tuple[float, object, tuple[object, ...]]] = []
        b.worker.loop.call_later = lambda delay, call, *args: timers.append((delay, call, args))  # type: ignore[assignment]
        b.worker.settle = lambda: None  # type: ignore[method-assign]
        (number,) = listened(b)
        b.worker.listeners.accept_failed(number, "Too many open files")
        assert "accept() failed: Too many open files" in b.log.texts()
        ((delay, call, args),) = timers
        assert delay == 5.0
        call(*args)  # type: ignore[operator]
        assert ("resume_listener", number) in b.engine.calls
        b.worker.listeners.close()
        b.engine.calls.clear()
        call(*args)  # type: ignore[operator]
        assert b.engine.calls == []
