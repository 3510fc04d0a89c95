"""The sockets of the fleet: which are opened, by what names, and what stops the start."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgshoal.config.model import Settings
from pgshoal.demo.cluster import free_port
from pgshoal.fleet.listening import CannotListen, Sockets, refuse_second
from tests.worker.bench import QuietLog


class Rig:
    """Sockets that are opened with these settings."""

    def __init__(self, directory: Path | str = "", workers: int = 1, **settings: Any) -> None:
        self.settings = Settings(**{"unix_socket_dir": str(directory), "listen_port": free_port(), **settings})
        self.log = QuietLog()
        self.sockets = Sockets(workers, self.log)
        self.port = self.settings.listen_port

    def open(self) -> None:
        """Listen."""
        self.sockets.open(self.settings)


@contextmanager
def rig(directory: Path | str = "", workers: int = 1, **settings: Any) -> Iterator[Rig]:
    """Closed at the end."""
    made = Rig(directory, workers, **settings)
    try:
        yield made
    finally:
        made.sockets.close()


def test_tcp_and_unix_sockets_are_opened_and_named(tmp_path: Path) -> None:
    """Both can be connected to, and the log names each once as PgBouncer does."""
    with rig(tmp_path, workers=3, listen_addr=("127.0.0.1",)) as r:
        r.open()
        socket.create_connection(("127.0.0.1", r.port)).close()
        path = tmp_path / f".s.PGSQL.{r.port}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert r.log.lines == [f"listening on 127.0.0.1:{r.port}", f"listening on unix:{path}"]
        r.sockets.close()
        assert not path.exists()


def test_each_worker_has_its_own_tcp_socket_and_all_share_the_unix_socket(tmp_path: Path) -> None:
    """A client that one worker does not accept waits for that worker's next process."""
    with rig(tmp_path, workers=3, listen_addr=("127.0.0.1", "::1")) as r:
        r.open()
        assert [(one.tcp, one.number) for one in r.sockets.of(1)] == [(True, 1), (True, 1), (False, None)]
        assert all(one.tcp for one in r.sockets.own(1))
        assert len({one.id for one in r.sockets.all}) == len(r.sockets.all) == 7


def test_star_listens_on_every_address() -> None:
    """`*` is IPv4 and, where there is one, IPv6."""
    with rig(listen_addr=("*",)) as r:
        r.open()
        assert f"listening on 0.0.0.0:{r.port}" in r.log.lines


def test_the_unix_socket_has_the_mode_asked_for(tmp_path: Path) -> None:
    """unix_socket_mode and unix_socket_group are set on the file."""
    with rig(tmp_path, unix_socket_mode=0o700, unix_socket_group=str(os.getegid())) as r:
        r.open()
        found = (tmp_path / f".s.PGSQL.{r.port}").stat()
        assert stat.S_IMODE(found.st_mode) == 0o700
        assert found.st_gid == os.getegid()


def test_an_unknown_group_stops_the_start(tmp_path: Path) -> None:
    """A socket with other rights than asked for is worse than none."""
    with (
        rig(tmp_path, unix_socket_group="no such group") as r,
        pytest.raises(CannotListen, match="failed to create unix socket"),
    ):
        r.open()


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    """A file left by a crash is removed; nobody listens behind it."""
    with rig(tmp_path) as r:
        path = tmp_path / f".s.PGSQL.{r.port}"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        r.open()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_socket_in_use_stops_the_start(tmp_path: Path) -> None:
    """A socket somebody listens on is left alone."""
    with rig(tmp_path) as r:
        path = tmp_path / f".s.PGSQL.{r.port}"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            with pytest.raises(CannotListen, match="unix socket is in use, cannot continue"):
                r.open()
            r.sockets.close()
            assert path.exists()


@pytest.mark.parametrize("abstract", [False, True])
def test_a_second_pooler_is_refused_before_it_opens_anything(tmp_path: Path, abstract: bool) -> None:
    """Also at an abstract socket; not where systemd has given us our sockets."""
    settings = Settings(unix_socket_dir=f"@{tmp_path}" if abstract else str(tmp_path), listen_port=7777)
    path = f"{tmp_path}/.s.PGSQL.7777"
    refuse_second(settings)
    with socket.socket(socket.AF_UNIX) as other, pytest.MonkeyPatch.context() as patch:
        other.bind(f"\0{path}" if abstract else path)
        other.listen()
        with pytest.raises(CannotListen, match="unix socket is in use, cannot continue"):
            refuse_second(settings)
        patch.setenv("LISTEN_PID", str(os.getpid()))
        refuse_second(settings)
    refuse_second(settings)
    assert not Path(path).exists()


def test_abstract_sockets_leave_no_file() -> None:
    """A directory that begins with @ names an abstract socket."""
    name = f"@pgshoal-test-{os.getpid()}"
    with rig(name) as r:
        r.open()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{name[1:]}/.s.PGSQL.{r.port}")
        assert f"listening on unix:{name}/.s.PGSQL.{r.port}" in r.log.lines


def test_one_bad_address_is_a_warning_and_none_left_is_the_end() -> None:
    """The others are used; without any the start fails and names the setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with rig(listen_port=port, listen_addr=("127.0.0.1", "127.0.0.2")) as r:
            r.open()
            assert f"cannot listen on 127.0.0.1:{port}: bind(): Address already in use" in r.log.lines
            assert len(r.sockets.all) == 1
        with (
            rig(listen_port=port, listen_addr=("127.0.0.1",)) as r,
            pytest.raises(CannotListen, match="failed to listen on any address in listen_addr list"),
        ):
            r.open()


def test_a_second_fleet_on_the_same_port_is_refused() -> None:
    """Although the sockets of one fleet share their port, another fleet does not get in by accident."""
    with rig(workers=2, listen_addr=("127.0.0.1",)) as first:
        first.open()
        with rig(workers=2, listen_port=first.port, listen_addr=("127.0.0.1",)) as second:
            with pytest.raises(CannotListen, match="failed to listen on any address"):
                second.open()
            assert f"cannot listen on 127.0.0.1:{first.port}: bind(): Address already in use" in second.log.lines


def test_so_reuseport_lets_a_second_fleet_in() -> None:
    """With so_reuseport = 1 both share the port, as several PgBouncers do."""
    with rig(listen_addr=("127.0.0.1",), so_reuseport=True) as first:
        first.open()
        with rig(listen_port=first.port, listen_addr=("127.0.0.1",), so_reuseport=True) as second:
            second.open()
            assert second.log.lines == [f"listening on 127.0.0.1:{first.port}"]


def test_nothing_to_listen_on_is_the_end() -> None:
    """Neither addresses nor a Unix directory."""
    with rig() as r, pytest.raises(CannotListen, match="nowhere to listen on"):
        r.open()


def test_a_shutdown_closes_tcp_and_keeps_unix(tmp_path: Path) -> None:
    """The console stays reachable while clients drain."""
    with rig(tmp_path, workers=2, listen_addr=("127.0.0.1",)) as r:
        r.open()
        r.sockets.close_tcp()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", r.port))
        assert (tmp_path / f".s.PGSQL.{r.port}").exists()
        assert [one.tcp for one in r.sockets.all] == [False]


ACTIVATED = """
import os, sys
from pgshoal.config.model import Settings
from pgshoal.fleet.listening import Sockets
from tests.worker.bench import QuietLog
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.environ.update(LISTEN_PID=sys.argv[3] or str(os.getpid()), LISTEN_FDS="2")
log = QuietLog()
sockets = Sockets(2, log)
try:
    sockets.open(Settings(listen_addr=(), unix_socket_dir=""))
except OSError as error:
    print(error)
print([(one.tcp, one.number, os.get_inheritable(one.sock.fileno())) for one in sockets.all], *log.lines)
print([name for name in os.environ if name.startswith("LISTEN")])
"""


@pytest.mark.parametrize("pid", ["", "1"])
def test_sockets_of_systemd(tmp_path: Path, pid: str) -> None:
    """A socket unit's descriptors are used by all workers, if they are meant for this process; others are not."""
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(str(tmp_path / "s"))
        tcp.listen()
        unix.listen()
        fds = (tcp.fileno(), unix.fileno())
        argv = [sys.executable, "-c", ACTIVATED, *map(str, fds), pid]
        done = subprocess.run(argv, pass_fds=fds, capture_output=True, text=True, check=True)
        found, environment = done.stdout.splitlines()[-2:]
        port = tcp.getsockname()[1]
        expected = (
            f"[(True, None, False), (False, None, False)] listening on 127.0.0.1:{port} listening on unix:{tmp_path}/s"
        )
        assert found == ("[]" if pid else expected)
        assert environment.count("LISTEN_PID") == 0
