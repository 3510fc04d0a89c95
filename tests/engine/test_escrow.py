"""A duplicate of a server's socket, as a supervisor holds it: only the server's own end ends it."""

from __future__ import annotations

import os
import socket

import pytest

from pgshoal.engine.contract import ConnId, Event, PoolMode, PoolSpec
from tests.engine.rig import OPTIONS, STARTUP, Rig
from tests.support.messages import query

#: A server's type byte that nothing expects.
DIRT = b"E\0\0\0\x04"
BIG = query("x" * 8_000_000)


class Escrow:
    """One server connection of the engine: our peer socket, and the duplicate of the engine's."""

    def __init__(self, rig: Rig, kind: str) -> None:
        self.rig = rig
        family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
        with socket.socket(family) as listener:
            listener.bind(("127.0.0.1", 0) if kind == "tcp" else f"\0pgshoal-escrow-{os.getpid()}")
            listener.listen()
            name = listener.getsockname()
            self.conn = rig.engine.connect(name if kind == "tcp" else f"@{name[1:].decode()}", OPTIONS)
            self.duplicate = socket.socket(fileno=os.dup(rig.engine.descriptor(self.conn)))
            rig.expect(Event.CONNECTED, self.conn)
            self.peer, _ = listener.accept()
        self.duplicate.settimeout(10)
        self.peer.settimeout(10)
        rig.clients += [self.duplicate, self.peer]

    def enroll(self, mode: PoolMode = PoolMode.TRANSACTION) -> int:
        """Into a fresh pool."""
        pool = self.rig.engine.add_pool(PoolSpec(mode=mode))
        self.rig.engine.enroll(self.conn, pool, [])
        return pool

    def link(self, request: bytes, mode: PoolMode = PoolMode.TRANSACTION) -> tuple[socket.socket, ConnId]:
        """A client in the same pool whose request this server has begun to get."""
        sock, client = self.rig.client()
        self.rig.engine.admit(client, self.enroll(mode), [])
        sock.setblocking(False)
        sock.send(request)
        for _ in range(400):
            self.rig.turn(0.01)
            if self.rig.engine.facts(client).mode == "linked":
                return sock, client
        pytest.fail("no link")

    def check(self) -> None:
        """The server sees the end at once; the duplicate hears it, and sees the end only when it goes."""
        for _ in range(5):
            self.rig.turn(0.01)
        while self.peer.recv(1_000_000):
            pass
        self.duplicate.setblocking(False)
        try:
            early = self.duplicate.recv(100)
        except BlockingIOError:
            early = b"nothing"
        assert early
        self.peer.sendall(b"last words")
        self.duplicate.settimeout(10)
        heard = b"" if early == b"nothing" else early
        while not heard.endswith(b"last words"):
            more = self.duplicate.recv(100)
            assert more
            heard += more
        self.peer.close()
        assert self.duplicate.recv(100) == b""


@pytest.fixture(params=["tcp", "unix"])
def escrow(rig: Rig, request: pytest.FixtureRequest) -> Escrow:
    """A server that has just connected."""
    return Escrow(rig, request.param)


def test_a_closed_server_in_dialogue(escrow: Escrow) -> None:
    """`close` sends its last bytes and shuts the writing side only."""
    escrow.rig.engine.close(escrow.conn, b"X\0\0\0\x04")
    for _ in range(3):
        escrow.rig.turn(0.01)
    assert escrow.peer.recv(100) == b"X\0\0\0\x04"
    escrow.check()


def test_a_closed_idle_server(escrow: Escrow) -> None:
    """The same in the idle list."""
    escrow.enroll()
    escrow.rig.engine.close(escrow.conn)
    escrow.check()


def test_a_closed_linked_server(escrow: Escrow) -> None:
    """The same in a link."""
    escrow.link(query("select 1"))
    escrow.rig.engine.close(escrow.conn)
    escrow.check()


def test_a_server_whose_client_goes(escrow: Escrow) -> None:
    """A client that vanishes in a query closes its server."""
    sock, client = escrow.link(query("select 1"))
    sock.close()
    escrow.rig.expect(Event.CLOSED, client)
    escrow.rig.expect(Event.CLOSED, escrow.conn)
    escrow.check()


def test_a_server_that_held_half_a_message(escrow: Escrow) -> None:
    """A client that vanishes with half a message sent: nothing is reset."""
    sock, _ = escrow.link(BIG[:100_000])
    sock.close()
    escrow.rig.expect(Event.CLOSED, escrow.conn)
    escrow.check()


def test_a_server_that_does_not_read(escrow: Escrow) -> None:
    """Full socket buffers: what was on the way arrives, the rest is lost, and nothing is reset, not even after 10 s."""
    rig = escrow.rig
    sock, client = escrow.link(BIG)
    sent = 0
    for _ in range(100):
        try:
            sent += sock.send(BIG[sent : sent + 100_000])
        except BlockingIOError:
            rig.turn(0.01)
    rig.engine.close(client)
    rig.expect(Event.CLOSED, escrow.conn)
    for _ in range(3):
        rig.turn(0.01)
    rig.engine.overdue(rig.engine.now_us() + 11_000_000)
    escrow.check()


def test_a_dirty_idle_server(escrow: Escrow) -> None:
    """What the engine closes because of its bytes ends as softly."""
    escrow.enroll()
    escrow.peer.sendall(DIRT)
    escrow.rig.expect(Event.CLOSED, escrow.conn)
    escrow.check()


def test_a_broken_link(escrow: Escrow) -> None:
    """An impossible answer in a link: the same."""
    _, client = escrow.link(query("select 1"))
    escrow.peer.sendall(b"2\0\0\0\x04")
    escrow.rig.expect(Event.CLOSED, escrow.conn)
    escrow.rig.expect(Event.FAULT, client)
    escrow.check()


def test_a_pending_receive_lets_go(escrow: Escrow) -> None:
    """Closed with unread bytes in its socket: still no reset, and the engine holds no descriptor of it."""
    escrow.enroll()
    engine = escrow.rig.engine
    escrow.rig.turn(0.01)
    number = engine.descriptor(escrow.conn)
    escrow.peer.sendall(b"N" * 100)
    engine.close(escrow.conn)
    for _ in range(5):
        escrow.rig.turn(0.01)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    escrow.check()


def test_shutdown_is_soft(escrow: Escrow) -> None:
    """`shutdown` leaves the duplicate alone."""
    escrow.enroll()
    escrow.rig.turn(0.01)
    escrow.rig.engine.shutdown()
    escrow.rig.turn = lambda timeout_s=0.0: None  # type: ignore[method-assign]
    escrow.check()


def test_a_reset_with_a_query_under_way(escrow: Escrow) -> None:
    """A linked server whose socket is full does not keep `shutdown` from being soft."""
    rig = escrow.rig
    sock, _ = escrow.link(BIG)
    for _ in range(30):
        rig.turn(0.01)
    rig.engine.shutdown()
    rig.turn = lambda timeout_s=0.0: None  # type: ignore[method-assign]
    sock.close()
    escrow.check()


def test_descriptors_of_clients_and_the_dead(rig: Rig) -> None:
    """A client's descriptor is that of its socket; closed connections have none."""
    sock, conn = rig.client()
    with socket.socket(fileno=os.dup(rig.engine.descriptor(conn))) as same:
        assert same.getpeername() == sock.getsockname()
    rig.engine.close(conn)
    with pytest.raises(KeyError):
        rig.engine.descriptor(conn)
    refused = rig.engine.connect("/nowhere/.s.PGSQL.5432", OPTIONS)
    with pytest.raises(KeyError):
        rig.engine.descriptor(refused)
    rig.expect(Event.CLOSED, refused)


def test_a_client_with_a_duplicate_is_closed_all_the_same(rig: Rig) -> None:
    """The engine's set forgets a closed client although its file lives on in a duplicate."""
    sock, conn = rig.client()
    with socket.socket(fileno=os.dup(rig.engine.descriptor(conn))):
        rig.engine.close(conn)
        for _ in range(3):
            rig.turn(0.01)
        sock.sendall(b"x" * 1000)
        rig.seen.clear()
        for _ in range(3):
            rig.turn(0.01)
        assert rig.seen == []
        other, again = rig.client()
        other.sendall(STARTUP)
        assert rig.expect(Event.PACKET)[1] == again


def divert(rig: Rig) -> tuple[socket.socket, int]:
    """A client whose socket was given to us."""
    rig.engine.divert(True)
    sock = socket.create_connection(rig.listener.getsockname(), timeout=10)
    rig.clients.append(sock)
    sock.sendall(STARTUP)
    _, fd, listener = rig.expect(Event.DIVERTED)
    assert listener == 1
    rig.engine.divert(False)
    return sock, fd


def test_a_diverted_socket_is_untouched(rig: Rig) -> None:
    """Nothing of it is read, it does not block, is closed by exec, and no connection is made of it."""
    _, fd = divert(rig)
    assert not os.get_inheritable(fd)
    assert not os.get_blocking(fd)
    with socket.socket(fileno=fd) as owned:
        assert owned.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for _ in range(3):
            rig.turn(0.01)
        rig.engine.overdue(0)
        assert rig.engine.events() == []
        assert owned.recv(100) == STARTUP


def test_adopted_where_it_was_diverted(rig: Rig) -> None:
    """An adopted socket is a client like any other: ACCEPTED comes with its first packet."""
    sock, fd = divert(rig)
    rig.engine.adopt(fd, 1)
    accepted = rig.expect(Event.ACCEPTED)
    assert accepted[2] == 1
    assert rig.expect(Event.PACKET)[1:] == (accepted[1], STARTUP[4:])
    rig.engine.close(accepted[1], b"bye")
    assert rig.receive(sock, 4) == b"bye"


def test_adopted_by_another_engine(rig: Rig, second: Rig) -> None:
    """A socket accepted by one engine is served by a second one of any kind."""
    sock, fd = divert(rig)
    second.engine.adopt(fd, 1)
    conn = second.expect(Event.PACKET)[1]
    second.engine.close(conn, b"x" * 3_000_000)
    assert second.receive(sock, 3_000_001) == b"x" * 3_000_000


def test_adoption_of_what_is_unknown(rig: Rig) -> None:
    """An unknown listener, or no socket at all: an error, and the descriptor is closed."""
    _, fd = divert(rig)
    with pytest.raises(ValueError, match="listener"):
        rig.engine.adopt(fd, 77)
    read, write = os.pipe()
    with pytest.raises(OSError, match="socket"):
        rig.engine.adopt(read, 1)
    for gone in (fd, read):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(gone)
    os.close(write)


def test_a_diverted_socket_nobody_took(rig: Rig) -> None:
    """`shutdown` closes what stands in events that were not taken."""
    rig.engine.divert(True)
    sock = socket.create_connection(rig.listener.getsockname(), timeout=10)
    rig.clients.append(sock)
    for _ in range(200):
        rig.engine.wait(0.01)
        if rig.engine.pending():
            break
    rig.engine.shutdown()
    assert sock.recv(1) == b""
