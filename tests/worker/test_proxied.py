"""PROXY headers of balancers, read before the engine has the socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgshoal.config.model import Settings
from pgshoal.worker.proxied import Proxied
from tests.wire.test_proxy import FOUR, LOCAL, PROXY, TCP4, UNIX, UNSPEC, header

LISTENER = 7
CLIENT = ("192.0.2.7", 40001, "198.51.100.1", 6432)
GOOD = header(PROXY, TCP4, FOUR)


class Harbour:
    """A worker around the part under test; what is adopted is kept."""

    def __init__(self, networks: str = "127.0.0.0/8", on: bool = True) -> None:
        self.now_us = 1_000_000
        self.adopted: list[socket.socket] = []
        self.readers: dict[int, Callable[[], None]] = {}
        self.warnings: list[str] = []
        self.front = SimpleNamespace(arriving=0)
        self.settled = 0
        settings = Settings(
            proxy_protocol="on" if on else "off",
            proxy_protocol_networks=(ip_network(networks),),
            client_login_timeout=5.0,
        )
        self.worker = SimpleNamespace(
            config=SimpleNamespace(settings=settings),
            engine=SimpleNamespace(
                adopt=self._adopt, now_us=lambda: self.now_us, descriptor=lambda conn: self.adopted[conn].fileno()
            ),
            loop=SimpleNamespace(
                add_reader=lambda fd, call, *given: self.readers.__setitem__(fd, lambda: call(*given)),
                remove_reader=lambda fd: self.readers.pop(fd),
            ),
            log=SimpleNamespace(warning=self.warnings.append, debug=lambda text: None),
            front=self.front,
            settle=self._settle,
        )
        self.proxied = Proxied(cast("Any", self.worker))
        self._listening = socket.create_server(("127.0.0.1", 0))

    def _adopt(self, fd: int, listener: int) -> None:
        assert listener == LISTENER
        self.adopted.append(socket.socket(fileno=fd))

    def _settle(self) -> None:
        self.settled += 1

    def accept(self, first: bytes = b"") -> socket.socket:
        """A client connects, has sent this, and its socket is given to the part under test."""
        client = socket.create_connection(self._listening.getsockname(), 5)
        client.sendall(first)
        near, _ = self._listening.accept()
        near.setblocking(False)
        while first and len(near.recv(len(first), socket.MSG_PEEK)) < len(first):
            pass
        self.proxied.take(near.detach(), LISTENER)
        return client

    def read(self) -> None:
        """What the loop would do with what has come."""
        for reader in list(self.readers.values()):
            reader()

    def announce(self, conn: int) -> Any:
        """The engine tells of what it has adopted; the login afterwards."""
        host, port = self.adopted[conn].getpeername()
        ends = {"peer_host": host, "peer_port": port, "local_host": "127.0.0.1", "local_port": 1}
        login = SimpleNamespace(conn=conn, connect_us=self.now_us, refused=[], **ends)
        login.refuse = login.refused.append
        self.proxied.announce(cast("Any", login))
        return login

    def close(self) -> None:
        """Give everything back."""
        self.proxied.close()
        for sock in (*self.adopted, self._listening):
            sock.close()


@pytest.fixture
def harbours() -> Iterator[Callable[..., Harbour]]:
    """Makes harbours and closes them."""
    made: list[Harbour] = []

    def make(*given: Any, **more: Any) -> Harbour:
        made.append(Harbour(*given, **more))
        return made[-1]

    yield make
    for harbour in made:
        harbour.close()


def ends(login: Any) -> tuple[str, int, str, int]:
    """Between whom the login says it is."""
    return login.peer_host, login.peer_port, login.local_host, login.local_port


def test_the_addresses_are_those_of_the_header(harbours: Callable[..., Harbour]) -> None:
    """A header that is there is read at once, and not a byte behind it; the login has its addresses."""
    harbour = harbours()
    with harbour.accept(GOOD + b"behind"):
        (sock,) = harbour.adopted
        assert sock.recv(100) == b"behind"
        login = harbour.announce(0)
        assert ends(login) == CLIENT
        assert not login.refused
        assert not harbour.readers


@pytest.mark.parametrize("cut", [1, 11, 15, 16, len(GOOD) - 1])
def test_a_header_in_pieces(harbours: Callable[..., Harbour], cut: int) -> None:
    """What is missing is waited for; meanwhile the worker knows that somebody is on the way."""
    harbour = harbours()
    with harbour.accept(GOOD[:cut]) as client:
        assert harbour.front.arriving == 1
        harbour.read()
        assert not harbour.adopted
        harbour.now_us += 1_000_000
        client.sendall(GOOD[cut:] + b"behind")
        while not harbour.adopted:
            harbour.read()
        assert (harbour.front.arriving, harbour.readers, harbour.settled) == (0, {}, 1)
        login = harbour.announce(0)
        assert ends(login) == CLIENT
        assert login.connect_us == harbour.now_us - 1_000_000
        assert harbour.adopted[0].recv(100) == b"behind"


@pytest.mark.parametrize(
    "data", [header(LOCAL, UNSPEC, b""), header(PROXY, UNSPEC, b""), header(PROXY, UNIX, bytes(216))]
)
def test_without_addresses_the_balancers_own_hold(harbours: Callable[..., Harbour], data: bytes) -> None:
    """Its own connections (LOCAL), and those of clients that have no address."""
    harbour = harbours()
    with harbour.accept(data) as client:
        login = harbour.announce(0)
        assert (login.peer_host, login.peer_port) == client.getsockname()
        assert not login.refused


@pytest.mark.parametrize("data", [b"\0\0\0\x08\x04\xd2\x16\x2f", b"PROXY TCP4 ", GOOD[:12] + b"\x31", b"\x16\x03\x01"])
def test_a_balancer_without_a_good_header_is_refused(harbours: Callable[..., Harbour], data: bytes) -> None:
    """It is closed, with one line in the log."""
    harbour = harbours()
    with harbour.accept(data) as client:
        assert client.recv(100) == b""
        (line,) = harbour.warnings
        assert line.startswith(f"closing connection from 127.0.0.1:{client.getsockname()[1]}: PROXY header")
    assert not harbour.adopted


def test_a_balancer_that_leaves_gets_no_line(harbours: Callable[..., Harbour]) -> None:
    """Balancers look every few seconds whether the port is open."""
    harbour = harbours()
    harbour.accept(GOOD[:5]).close()
    while harbour.readers:
        harbour.read()
    assert (harbour.front.arriving, harbour.adopted, harbour.warnings) == (0, [], [])


def test_who_is_no_balancer_has_no_say(harbours: Callable[..., Harbour]) -> None:
    """Its socket goes to the engine unread, header or not, and it is who it is."""
    harbour = harbours("10.0.0.0/8")
    with harbour.accept(GOOD) as client:
        assert harbour.adopted[0].recv(1000) == GOOD
        login = harbour.announce(0)
        assert (login.peer_host, login.peer_port) == client.getsockname()
        assert not login.refused


def test_a_balancer_whose_header_was_not_read_is_refused(harbours: Callable[..., Harbour]) -> None:
    """However it came to the engine: its own address must not pass for a client's."""
    harbour = harbours("10.0.0.0/8")
    with harbour.accept():
        harbour.worker.config.settings = Settings(
            proxy_protocol="on", proxy_protocol_networks=(ip_network("::/0"), ip_network("0.0.0.0/0"))
        )
        login = harbour.announce(0)
        (refused,) = login.refused
        assert (refused.text, refused.silent) == ("PROXY header missing", True)


def test_a_silent_balancer_is_closed_in_time(harbours: Callable[..., Harbour]) -> None:
    """client_login_timeout holds from accept on."""
    harbour = harbours()
    with harbour.accept(GOOD[:20]) as client:
        harbour.now_us += 5_000_000
        harbour.proxied.tick()
        assert harbour.readers
        harbour.now_us += 1
        harbour.proxied.tick()
        assert client.recv(1) == b""
        assert harbour.warnings[0].endswith(": client_login_timeout")
        assert harbour.front.arriving == 0


def test_what_was_read_is_forgotten_if_nobody_comes(harbours: Callable[..., Harbour]) -> None:
    """A client that ends before the engine tells of it leaves nothing behind; others are not forgotten too early."""
    harbour = harbours()
    with harbour.accept(GOOD):
        harbour.now_us += 9_000_000
        harbour.proxied.tick()
        assert harbour.proxied._read
        harbour.now_us += 2_000_000
        harbour.proxied.tick()
        assert not harbour.proxied._read
        assert harbour.announce(0).refused


def test_a_unix_socket_has_no_header(harbours: Callable[..., Harbour]) -> None:
    """It is adopted as it is, and keeps its addresses."""
    harbour = harbours()
    near, far = socket.socketpair()
    with far:
        far.sendall(b"startup")
        harbour.proxied.take(near.detach(), LISTENER)
        assert harbour.adopted[0].recv(100) == b"startup"
        login = SimpleNamespace(conn=0, peer_host="unix")
        harbour.proxied.announce(cast("Any", login))
        assert login.peer_host == "unix"


def test_a_dead_socket_is_closed(harbours: Callable[..., Harbour]) -> None:
    """OSError tells the caller, and no descriptor is left."""
    harbour = harbours()
    sock = socket.socket()
    fd = sock.detach()
    with pytest.raises(OSError):  # noqa: PT011
        harbour.proxied.take(fd, LISTENER)
    with pytest.raises(OSError):  # noqa: PT011
        os.fstat(fd)
