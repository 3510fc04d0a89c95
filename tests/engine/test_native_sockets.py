"""Sockets and TLS of the engines, on real loopback connections: accept, connect, close, pressure, handshakes."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgshoal.engine.choose import choose
from pgshoal.engine.contract import ConnId, Engine, Event, PoolSpec, SocketOptions, TlsSettings
from tests.support.certs import Authority

STARTUP = struct.pack("!II", 8, 196608)
SSL_REQUEST = struct.pack("!II", 8, 80877103)
OPTIONS = SocketOptions()


class Rig:
    """One engine with a TCP listener, driven by hand."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.listener = socket.create_server(("127.0.0.1", 0))
        engine.listen(self.listener.fileno(), 1, OPTIONS)
        self.seen: list[tuple[Any, ...]] = []
        self.clients: list[socket.socket] = []

    def close(self) -> None:
        self.engine.shutdown()
        self.listener.close()
        for client in self.clients:
            client.close()

    def turn(self, timeout_s: float = 0.05) -> None:
        """Lets the engine work once; what comes of it is added to `seen`."""
        self.engine.wait(timeout_s)
        self.seen.extend(self.engine.events())

    def expect(self, kind: Event, conn: ConnId | None = None) -> tuple[Any, ...]:
        """The next event of that kind (and connection), taken out of `seen`."""
        for _ in range(400):
            for event in self.seen:
                if event[0] == kind and conn in (None, event[1]):
                    self.seen.remove(event)
                    return event
            self.turn()
        pytest.fail(f"no {kind.name} came, only {self.seen}")

    def client(self) -> tuple[socket.socket, ConnId]:
        """A connected client, accepted by the engine."""
        sock = socket.create_connection(self.listener.getsockname(), timeout=10)
        self.clients.append(sock)
        return sock, self.expect_client()[1]

    def expect_client(self) -> tuple[Any, ...]:
        """ACCEPTED of a client that has said nothing yet."""
        for _ in range(400):
            self.engine.overdue(0)
            self.turn(0.01)
            if any(event[0] == Event.ACCEPTED for event in self.seen):
                break
        return self.expect(Event.ACCEPTED)

    def receive(self, sock: socket.socket, count: int) -> bytes:
        """So many bytes, or fewer if the end comes before."""
        sock.setblocking(False)
        data = bytearray()
        for _ in range(10_000):
            try:
                more = sock.recv(min(65536, count - len(data)))
            except (BlockingIOError, ssl.SSLWantReadError):
                self.turn(0.01)
                continue
            if not more:
                break
            data += more
            if len(data) == count:
                break
        return bytes(data)

    def handshake(self, sock: socket.socket, context: ssl.SSLContext, name: str | None = None) -> ssl.SSLSocket:
        """The client's side of a TLS handshake."""
        wrapped = context.wrap_socket(
            sock, server_hostname=name, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self.clients.append(wrapped)
        wrapped.setblocking(False)
        for _ in range(400):
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                self.turn(0.01)
            else:
                return wrapped
        pytest.fail("the handshake does not end")


@pytest.fixture
def rig(engine: str) -> Iterator[Rig]:
    """A rig on the engine under test."""
    made = Rig(choose(engine, pytest.fail))
    yield made
    made.close()


def server_settings(authority: Authority, **more: Any) -> TlsSettings:
    """TLS settings with the authority's server certificate."""
    return TlsSettings(
        certificate_pem=authority.server.cert.read_bytes(), key_pem=authority.server.key.read_bytes(), **more
    )


def trusting(authority: Authority) -> ssl.SSLContext:
    """A client context that trusts the authority."""
    return ssl.create_default_context(cafile=str(authority.ca_file))


def after_ssl_request(rig: Rig) -> tuple[socket.socket, ConnId]:
    """A client whose SSLRequest has been heard."""
    sock, conn = rig.client()
    sock.sendall(SSL_REQUEST)
    rig.expect(Event.PACKET, conn)
    return sock, conn


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


# -- TLS


def test_tls_after_a_request(rig: Rig, authority: Authority) -> None:
    """The answer to SSLRequest goes out in plain, then both sides speak TLS, and the end is announced."""
    context = rig.engine.server_context(server_settings(authority))
    sock, conn = after_ssl_request(rig)
    rig.engine.send(conn, b"S")
    assert rig.engine.start_tls(conn, context)
    assert rig.receive(sock, 1) == b"S"
    secure = rig.handshake(sock, trusting(authority), "localhost")
    version, cipher, alpn, sni, certificate = rig.expect(Event.SECURED, conn)[2:]
    assert (version, cipher) == (secure.version(), secure.cipher()[0])  # type: ignore[index]
    assert (alpn, sni, certificate) == ("", "localhost", None)
    rig.engine.proceed_startup(conn)
    secure.send(STARTUP)
    assert rig.expect(Event.PACKET)[1:] == (conn, STARTUP[4:])
    data = os.urandom(500_000)
    rig.engine.close(conn, data)
    assert rig.receive(secure, len(data) + 1) == data


def test_plain_bytes_before_tls_refuse_it(rig: Rig, authority: Authority) -> None:
    """Bytes behind an SSLRequest, even ones that look like a handshake, make `start_tls` return False."""
    context = rig.engine.server_context(server_settings(authority))
    sock, conn = rig.client()
    sock.sendall(SSL_REQUEST + b"\x16\x03\x01\x00\x05hello")
    rig.expect(Event.PACKET, conn)
    assert rig.engine.start_tls(conn, context) is False


def test_direct_tls(rig: Rig, authority: Authority) -> None:
    """A handshake as the first bytes gives DIRECT_TLS; with ALPN both sides agree on postgresql."""
    context = rig.engine.server_context(server_settings(authority))
    sock, conn = rig.client()
    client = trusting(authority)
    client.set_alpn_protocols(["postgresql"])
    wrapped = client.wrap_socket(sock, server_hostname="localhost", do_handshake_on_connect=False)
    rig.clients.append(wrapped)
    wrapped.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    rig.expect(Event.DIRECT_TLS, conn)
    assert rig.engine.start_tls(conn, context)
    for _ in range(400):
        try:
            wrapped.do_handshake()
            break
        except ssl.SSLWantReadError:
            rig.turn(0.01)
    assert wrapped.selected_alpn_protocol() == "postgresql"
    assert rig.expect(Event.SECURED, conn)[4] == "postgresql"


def test_a_client_certificate_is_given_up(rig: Rig, authority: Authority) -> None:
    """A required certificate is verified and handed to Python as DER."""
    issued = authority.issue("carol", "carol.example", common_name="carol")
    context = rig.engine.server_context(
        server_settings(
            authority, ca_pem=authority.ca_file.read_bytes(), request_certificate=True, require_certificate=True
        )
    )
    sock, conn = after_ssl_request(rig)
    assert rig.engine.start_tls(conn, context)
    client = trusting(authority)
    client.load_cert_chain(str(issued.cert), str(issued.key))
    rig.handshake(sock, client, "localhost")
    der = rig.expect(Event.SECURED, conn)[6]
    assert ssl.DER_cert_to_PEM_cert(der).strip() in issued.cert.read_text()


def test_a_missing_client_certificate_closes(rig: Rig, authority: Authority) -> None:
    """CLOSED tells that TLS failed; no SECURED comes."""
    context = rig.engine.server_context(
        server_settings(
            authority, ca_pem=authority.ca_file.read_bytes(), request_certificate=True, require_certificate=True
        )
    )
    sock, conn = after_ssl_request(rig)
    assert rig.engine.start_tls(conn, context)
    client = trusting(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        rig.handshake(sock, client, "localhost")
    assert rig.expect(Event.CLOSED, conn)[2].startswith("tls: ")
    assert not any(event[0] == Event.SECURED for event in rig.seen)


def test_nonsense_instead_of_a_handshake_closes(rig: Rig, authority: Authority) -> None:
    """Whatever is not TLS after `start_tls` ends the connection with a readable reason."""
    context = rig.engine.server_context(server_settings(authority))
    sock, conn = after_ssl_request(rig)
    assert rig.engine.start_tls(conn, context)
    sock.sendall(b"this is no handshake at all")
    assert rig.expect(Event.CLOSED, conn)[2].startswith("tls: ")


def connect_tls(rig: Rig, authority: Authority, settings: TlsSettings, name: str) -> tuple[ConnId, ConnId]:
    """The engine as client of itself: (our connection, the accepted one), both with a handshake begun."""
    server = rig.engine.connect(rig.listener.getsockname(), OPTIONS)
    client = rig.expect_client()[1]
    rig.expect(Event.CONNECTED, server)
    rig.engine.send(server, SSL_REQUEST)
    rig.expect(Event.PACKET, client)
    accepting = rig.engine.server_context(server_settings(authority))
    assert rig.engine.start_tls(client, accepting)
    assert rig.engine.start_tls(server, rig.engine.client_context(settings), name)
    return server, client


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_we_verify_chain_and_name(rig: Rig, authority: Authority, name: str) -> None:
    """A good certificate passes; the name is sent as SNI unless it is an address."""
    settings = TlsSettings(ca_pem=authority.ca_file.read_bytes(), verify_chain=True, verify_name=True)
    server, client = connect_tls(rig, authority, settings, name)
    ours, theirs = rig.expect(Event.SECURED, server), rig.expect(Event.SECURED, client)
    assert ours[2:5] == theirs[2:5] == ("TLSv1.3", ours[3], "postgresql")
    assert theirs[5] == ("" if name == "127.0.0.1" else name)
    assert ours[6] is not None
    rig.engine.send(server, STARTUP)
    rig.engine.proceed_startup(client)
    assert rig.expect(Event.PACKET)[1] == client


@pytest.mark.parametrize(
    ("settings", "name", "good"),
    [
        ({"verify_chain": True}, "db.example", True),
        ({"verify_chain": True, "verify_name": True}, "db.example", False),
        ({}, "db.example", True),
        ({}, "", True),
    ],
    ids=["chain only", "wrong name", "nothing", "no name"],
)
def test_how_far_a_server_is_verified(
    rig: Rig, authority: Authority, settings: dict[str, bool], name: str, good: bool
) -> None:
    """The chain without the name, both, or neither, as asked."""
    ca_pem = authority.ca_file.read_bytes()
    server, _ = connect_tls(rig, authority, TlsSettings(ca_pem=ca_pem, **settings), name)  # type: ignore[arg-type]
    if good:
        rig.expect(Event.SECURED, server)
    else:
        assert rig.expect(Event.CLOSED, server)[2].startswith("tls: ")


def test_an_unknown_authority_is_refused(rig: Rig, authority: Authority) -> None:
    """A certificate that another authority has signed does not pass."""
    stranger = Authority()
    settings = TlsSettings(ca_pem=stranger.ca_file.read_bytes(), verify_chain=True)
    server, client = connect_tls(rig, authority, settings, "localhost")
    assert rig.expect(Event.CLOSED, server)[2].startswith("tls: ")
    rig.expect(Event.CLOSED, client)


def test_contexts_refuse_what_they_cannot_do(rig: Rig, authority: Authority) -> None:
    """A ValueError names the protocol, the cipher or the file."""
    for settings, text in (
        (server_settings(authority, ciphers="default:NO-SUCH-CIPHER"), "NO-SUCH-CIPHER"),
        (TlsSettings(certificate_pem=b"nonsense", key_pem=b"nonsense"), "certificate"),
    ):
        with pytest.raises(ValueError, match=text):
            rig.engine.server_context(settings)


def test_native_tls_has_no_old_protocols(rig: Rig, authority: Authority) -> None:
    """TLS 1.0 and 1.1 are refused by name on the native engines."""
    if rig.engine.name == "python":
        pytest.skip("the twin uses OpenSSL, which decides for itself")
    with pytest.raises(ValueError, match=r"TLSv1\.1"):
        rig.engine.server_context(server_settings(authority, versions=("TLSv1.1", "TLSv1.2")))


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
