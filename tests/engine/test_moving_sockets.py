"""Clients with real sockets that move from one engine to another of any kind."""

from __future__ import annotations

import contextlib
import os
import random
import socket

import pytest

from pgshoal.engine.contract import ConnId, Event, PoolMode, PoolSpec
from tests.engine.rig import OPTIONS, STARTUP, Rig
from tests.engine.test_native_tls import after_ssl_request, server_settings, trusting
from tests.support.certs import Authority
from tests.support.messages import SYNC, bind, command_complete, execute, message, parse, query, ready

TYPE_AND_LENGTH = 5


class Place:
    """An engine with a pool and one server in it, whose other end answers queries when it is told to."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.pool = rig.engine.add_pool(PoolSpec(mode=PoolMode.TRANSACTION, max_prepared_statements=10))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = rig.engine.connect(listener.getsockname(), OPTIONS)
            rig.expect(Event.CONNECTED, server)
            self.backend, _ = listener.accept()
        self.backend.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rig.clients.append(self.backend)
        rig.engine.enroll(server, self.pool, [])
        self.backend.setblocking(False)
        self.input = b""

    def client(self) -> tuple[socket.socket, ConnId]:
        """An admitted client."""
        sock, conn = self.rig.client()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(STARTUP)
        self.rig.expect(Event.PACKET, conn)
        self.rig.engine.admit(conn, self.pool, [])
        self.rig.turn(0)
        return sock, conn

    def serve(self) -> bytes:
        """One turn; each whole Query is answered with its text as the tag. What the server has got."""
        self.rig.turn(0)
        try:
            got = self.backend.recv(1_000_000)
        except BlockingIOError:
            return b""
        self.input += got
        while len(self.input) >= TYPE_AND_LENGTH:
            total = 1 + int.from_bytes(self.input[1:TYPE_AND_LENGTH], "big")
            if len(self.input) < total:
                break
            one, self.input = self.input[:total], self.input[total:]
            if one[:1] == b"Q":
                self.backend.sendall(command_complete(one[TYPE_AND_LENGTH:-1].decode()) + ready())
        return got

    def hear(self, wanted: bytes) -> None:
        """Waits until the server has got exactly this."""
        got = b""
        for _ in range(1000):
            got += self.serve()
            if len(got) >= len(wanted):
                break
            self.rig.turn(0.005)
        assert got == wanted

    def arrive(self, fd: int, state: bytes) -> ConnId:
        """A client from elsewhere."""
        conn = self.rig.engine.immigrate(fd, 1, state)
        self.rig.engine.admit(conn, self.pool, [])
        return conn


@pytest.fixture
def here(rig: Rig) -> Place:
    """Where clients leave."""
    return Place(rig)


@pytest.fixture
def there(second: Rig) -> Place:
    """Where they arrive."""
    return Place(second)


def test_a_prepared_statement_is_used_on_both_sides(here: Place, there: Place) -> None:
    """The client notices nothing: same socket, same statement, same addresses."""
    sock, conn = here.client()
    sock.sendall(parse("a", "select 1") + SYNC)
    here.hear(parse("PGBOUNCER_1", "select 1") + SYNC)
    here.backend.sendall(message(b"1") + ready())
    assert here.rig.receive(sock, 11) == message(b"1") + ready()
    assert here.rig.engine.emigrate(conn)
    _, _, fd, state = here.rig.expect(Event.MOVED, conn)
    assert not os.get_blocking(fd)
    assert not os.get_inheritable(fd)
    with pytest.raises(KeyError):
        here.rig.engine.facts(conn)
    moved = there.arrive(fd, state)
    assert there.rig.engine.addresses(moved) == (*sock.getsockname(), *sock.getpeername())
    sock.sendall(bind("a") + execute() + SYNC)
    there.hear(parse("PGBOUNCER_1", "select 1") + bind("PGBOUNCER_1") + execute() + SYNC)
    there.backend.sendall(message(b"1") + message(b"2") + command_complete("SELECT 0") + ready())
    wanted = message(b"2") + command_complete("SELECT 0") + ready()
    assert there.rig.receive(sock, len(wanted)) == wanted
    sock.close()
    there.rig.expect(Event.CLOSED, moved)


@pytest.mark.parametrize("seed", range(4))
def test_moved_again_and_again_under_traffic(here: Place, there: Place, seed: int) -> None:
    """A talking client is moved back and forth at random moments: every answer comes, in order."""
    rng = random.Random(seed)
    texts = [f"{number} " + "x" * rng.choice([1, 10, 2000, 40_000]) for number in range(300)]
    wanted = b"".join(command_complete(text) + ready() for text in texts)
    sock, conn = here.client()
    sock.setblocking(False)
    places, heard, due, unsent, moves, turns = [here, there], b"", 0, b"", 0, 0
    while len(heard) < len(wanted):
        turns += 1
        assert turns < 100_000
        if len(heard) == due and not unsent:
            count = rng.randrange(1, 4)
            burst, texts = texts[:count], texts[count:]
            unsent = b"".join(query(text) for text in burst)
            due += sum(len(command_complete(text) + ready()) for text in burst)
        if unsent and rng.random() < 0.5:
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[sock.send(unsent[: rng.choice([1, 7, 100, 3000, 20_000])]) :]
        for place in places:
            place.serve()
        with contextlib.suppress(BlockingIOError):
            heard += sock.recv(100_000)
        if rng.random() < 0.3 and conn:
            assert places[0].rig.engine.emigrate(conn)
            conn = 0
        for event in [event for event in places[0].rig.seen if event[0] == Event.MOVED]:
            places[0].rig.seen.remove(event)
            places.reverse()
            conn = places[0].arrive(*event[2:])
            moves += 1
    assert heard == wanted
    assert moves > 20
    assert not any(event[0] in (Event.CLOSED, Event.FAULT) for place in places for event in place.rig.seen)


def test_unsent_output_goes_first(here: Place, there: Place) -> None:
    """A client that has not read its rows yet moves when it has, and loses none."""
    sock, conn = here.client()
    sock.sendall(query("select"))
    here.rig.turn(0.01)
    here.rig.turn(0.01)
    rows = message(b"D", b"x" * 100_000) * 100
    assert here.rig.engine.emigrate(conn)
    sent = 0
    whole = rows + command_complete("SELECT") + ready()
    heard = b""
    sock.setblocking(False)
    moved = None
    for _ in range(5_000):
        with contextlib.suppress(BlockingIOError):
            sent += here.backend.send(whole[sent : sent + 500_000])
        here.rig.turn(0.001)
        moved = moved or next((event for event in here.rig.seen if event[0] == Event.MOVED), None)
        if moved:
            break
        with contextlib.suppress(BlockingIOError):
            heard += sock.recv(200_000)
    assert moved is not None
    back = there.arrive(*moved[2:])
    heard += there.rig.receive(sock, len(whole) - len(heard))
    assert heard == whole
    sock.setblocking(True)
    sock.sendall(query("again"))
    there.hear(query("again"))
    assert there.rig.engine.facts(back).mode in ("linked", "parked")


def test_an_end_on_the_way_is_told_at_the_new_place(here: Place, there: Place) -> None:
    """A client that closes while it belongs to nobody: CLOSED where it arrives."""
    sock, conn = here.client()
    assert here.rig.engine.emigrate(conn)
    fd, state = here.rig.expect(Event.MOVED, conn)[2:]
    sock.close()
    moved = there.arrive(fd, state)
    assert there.rig.expect(Event.CLOSED, moved)[2] == "client unexpected eof"


def test_a_client_with_tls_stays(rig: Rig, authority: Authority) -> None:
    """The state of a TLS session cannot travel."""
    context = rig.engine.server_context(server_settings(authority))
    sock, conn = after_ssl_request(rig)
    rig.engine.send(conn, b"S")
    assert rig.engine.start_tls(conn, context)
    assert rig.receive(sock, 1) == b"S"
    secure = rig.handshake(sock, trusting(authority), "localhost")
    rig.expect(Event.SECURED, conn)
    rig.engine.proceed_startup(conn)
    secure.send(STARTUP)
    rig.expect(Event.PACKET, conn)
    rig.engine.admit(conn, rig.engine.add_pool(PoolSpec()), [])
    assert not rig.engine.emigrate(conn)
    rig.turn(0.01)
    assert rig.engine.facts(conn).mode == "parked"


def test_a_bad_state_closes_the_socket(here: Place, there: Place) -> None:
    """ValueError, and the client sees the end; what is no socket is closed too."""
    sock, conn = here.client()
    assert here.rig.engine.emigrate(conn)
    fd, state = here.rig.expect(Event.MOVED, conn)[2:]
    with pytest.raises(ValueError, match="state"):
        there.rig.engine.immigrate(fd, 1, state[:-1])
    assert sock.recv(1) == b""
    read, write = os.pipe()
    with pytest.raises(OSError, match="socket"):
        there.rig.engine.immigrate(read, 1, state)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    os.close(write)


def test_a_moved_client_nobody_took(here: Place) -> None:
    """`shutdown` closes what stands in events that were not taken."""
    sock, conn = here.client()
    assert here.rig.engine.emigrate(conn)
    for _ in range(5):
        here.rig.engine.wait(0.01)
    assert here.rig.engine.pending()
    here.rig.engine.shutdown()
    assert sock.recv(1) == b""


def test_no_descriptor_is_lost(here: Place, there: Place) -> None:
    """Many moves leave as many open files as there were."""
    sock, conn = here.client()
    places = [here, there]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert places[0].rig.engine.emigrate(conn)
        fd, state = places[0].rig.expect(Event.MOVED, conn)[2:]
        places.reverse()
        conn = places[0].arrive(fd, state)
    assert len(os.listdir("/proc/self/fd")) == before
    sock.sendall(query("still here"))
    places[0].hear(query("still here"))
