"""Sockets of the engines, on real loopback connections: accept, connect, close, pressure."""

from __future__ import annotations

import os
import resource
import socket
import struct
import tempfile
from pathlib import Path

import pytest

from pgshoal.engine.contract import Event, PoolSpec
from tests.engine.rig import OPTIONS, STARTUP, Rig


def test_a_client_is_accepted_heard_and_answered(rig: Rig) -> None:
    """ACCEPTED, PACKET, an answer, and addresses as the client sees them from the other end."""
    sock, conn = rig.client()
    sock.sendall(STARTUP)
    assert rig.expect(Event.PACKET)[1:] == (conn, STARTUP[4:])
    rig.engine.send(conn, b"hello")
    assert rig.receive(sock, 5) == b"hello"
    assert rig.engine.addresses(conn) == (*sock.getsockname(), *sock.getpeername())
    with pytest.raises(RuntimeError):
        rig.engine.credentials(conn)


def test_the_end_of_a_client_is_told_once(rig: Rig) -> None:
    """CLOSED with PgBouncer's words; the number is dead afterwards."""
    sock, conn = rig.client()
    sock.close()
    assert rig.expect(Event.CLOSED)[1:] == (conn, "client unexpected eof")
    rig.turn()
    assert rig.seen == []
    with pytest.raises(KeyError):
        rig.engine.send(conn, b"x")


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_unix_sockets_with_credentials(rig: Rig, kind: str) -> None:
    """The engine connects to a Unix socket, accepts from one, and knows who is there."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        name = f"@pgshoal-test-{os.getpid()}" if kind == "abstract" else str(Path(folder, ".s.PGSQL.5432"))
        listener.bind(name.replace("@", "\0"))
        listener.listen()
        rig.engine.listen(listener.fileno(), 2, OPTIONS)
        server = rig.engine.connect(name, OPTIONS)
        rig.expect(Event.CONNECTED, server)
        _, client, number = rig.expect_client()
        assert number == 2
        assert rig.engine.addresses(client) == rig.engine.addresses(server) == ("unix", 0, "unix", 0)
        assert rig.engine.credentials(client) == (os.getpid(), os.getuid(), os.getgid())
        rig.engine.send(server, STARTUP)
        assert rig.expect(Event.PACKET)[1:] == (client, STARTUP[4:])
        rig.engine.send(client, b"R\0\0\0\x08\0\0\0\0")
        assert rig.expect(Event.MESSAGE)[1:] == (server, ord("R"), b"\0\0\0\0")


def test_a_refused_connection_is_an_event(rig: Rig) -> None:
    """`connect` never raises for the network: CLOSED says why."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    refused = rig.engine.connect(address, OPTIONS)
    assert rig.expect(Event.CLOSED, refused)[2] == "connect failed: Connection refused"
    absent = rig.engine.connect("/nowhere/.s.PGSQL.5432", OPTIONS)
    assert rig.expect(Event.CLOSED, absent)[2] == "connect failed: No such file or directory"


def test_close_flushes_everything_first(rig: Rig) -> None:
    """More than any socket buffer holds stands before the close, and all of it arrives before the end."""
    sock, conn = rig.client()
    data = os.urandom(1_000_000) * 20
    rig.engine.close(conn, data)
    assert rig.receive(sock, len(data) + 1) == data
    rig.turn()
    assert not any(event[0] == Event.CLOSED for event in rig.seen)


def test_close_while_connecting_leaves_nothing(rig: Rig) -> None:
    """A connection that is closed before it is up gives no event."""
    conn = rig.engine.connect(rig.listener.getsockname(), OPTIONS)
    rig.engine.close(conn)
    for _ in range(5):
        rig.turn(0.01)
    assert not any(conn == event[1] and event[0] in (Event.CONNECTED, Event.CLOSED) for event in rig.seen)
    with pytest.raises(KeyError):
        rig.engine.send(conn, b"x")


def test_a_paused_listener_lets_clients_wait(rig: Rig) -> None:
    """Nobody is accepted while paused; resumed, those who wait come in."""
    rig.engine.pause_listener(1)
    sock = socket.create_connection(rig.listener.getsockname(), timeout=10)
    rig.clients.append(sock)
    for _ in range(5):
        rig.turn(0.01)
    assert rig.seen == []
    rig.engine.resume_listener(1)
    rig.expect_client()


def test_unlisten_gives_the_port_back(rig: Rig) -> None:
    """Once the owner closes its socket too, new clients are refused at once."""
    address = rig.listener.getsockname()
    rig.engine.unlisten(1)
    rig.listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)


def test_a_socket_that_is_lent_again(rig: Rig) -> None:
    """Its owner keeps it open meanwhile: to listen, to stop and to listen once more is no error."""
    for number in (2, 3):
        rig.engine.unlisten(number - 1)
        rig.engine.listen(rig.listener.fileno(), number, OPTIONS)
    rig.clients.append(socket.create_connection(rig.listener.getsockname(), timeout=10))
    assert rig.expect_client()[2] == 3


def test_lack_of_descriptors_pauses_the_listener(rig: Rig) -> None:
    """ACCEPT_FAILED names the listener; the client comes in once descriptors are there and the listener is resumed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = socket.create_connection(rig.listener.getsockname(), timeout=10)
    rig.clients.append(first)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        failed = rig.expect(Event.ACCEPT_FAILED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed[1:] == (1, "Too many open files")
    rig.engine.resume_listener(1)
    rig.expect_client()


def test_a_flood_before_login_is_not_read(rig: Rig) -> None:
    """A client that sends on without being asked is stopped by its own full socket, not by our memory."""
    sock, conn = rig.client()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    sock.setblocking(False)
    sock.send(STARTUP)
    rig.expect(Event.PACKET)
    sent, idle = 0, 0
    while idle < 20 and sent < 100_000_000:
        try:
            sent += sock.send(b"x" * 65536)
            idle = 0
        except BlockingIOError:
            rig.turn(0.01)
            idle += 1
    assert idle == 20
    assert rig.engine.facts(conn).recv_pending < 6_000_000


def test_a_reset_peer_is_gone(rig: Rig) -> None:
    """A connection that the peer resets is closed with a reason."""
    sock, conn = rig.client()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    assert rig.expect(Event.CLOSED)[1] == conn


def test_many_clients_come_and_go(rig: Rig) -> None:
    """Numbers are never used twice while slots are, and no descriptor leaks."""
    before = len(os.listdir("/proc/self/fd"))
    numbers: set[int] = set()
    for _ in range(20):
        batch = [rig.client() for _ in range(5)]
        numbers.update(conn for _, conn in batch)
        for sock, _ in batch:
            sock.close()
        for _, conn in batch:
            rig.expect(Event.CLOSED, conn)
        rig.clients.clear()
    for _ in range(3):
        rig.turn(0.01)
    assert len(numbers) == 100
    assert len(os.listdir("/proc/self/fd")) == before


def test_shutdown_closes_every_socket(rig: Rig) -> None:
    """Clients see the end, and the engine's duplicate of the listener is gone."""
    sock, _ = rig.client()
    address = rig.listener.getsockname()
    rig.engine.shutdown()
    sock.settimeout(10)
    assert sock.recv(1) == b""
    rig.listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)


def test_a_stuck_close_is_reset(rig: Rig) -> None:
    """A client that never reads its last bytes is dropped when it has been closing for 10 seconds."""
    sock, conn = rig.client()
    rig.engine.close(conn, b"x" * 20_000_000)
    rig.turn(0.01)
    rig.turn(0.01)
    rig.engine.overdue(rig.engine.now_us() + 11_000_000)
    for _ in range(3):
        rig.turn(0.01)
    sock.settimeout(10)

    def read_all() -> None:
        while sock.recv(1_000_000):
            pass

    with pytest.raises(ConnectionResetError):
        read_all()


def test_pool_records_have_the_contracts_types(rig: Rig) -> None:
    """Facts come as the records of the contract on every engine."""
    pool = rig.engine.add_pool(PoolSpec())
    _, conn = rig.client()
    rig.engine.admit(conn, pool, [("TimeZone", "UTC")])
    counts = rig.engine.pool_counts(pool)
    assert (counts.cl_parked, counts.cl_linked, counts.sv_idle) == (1, 0, 0)
    assert rig.engine.pool_stats(pool).xact_count == 0
    assert rig.engine.facts(conn).mode == "parked"
    assert rig.engine.parameters(conn) == {"TimeZone": "UTC"}
