"""TLS of the engines, on real loopback connections."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

import pytest

from pgshoal.engine.contract import ConnId, Event, TlsSettings
from tests.engine.rig import OPTIONS, SSL_REQUEST, STARTUP, Rig
from tests.support.certs import Authority


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


@pytest.mark.parametrize(("curve", "others"), [("prime256v1", "secp384r1"), ("secp384r1", "prime256v1")])
def test_only_the_curve_that_was_chosen(rig: Rig, authority: Authority, curve: str, others: str) -> None:
    """A client that knows the curve gets in, one that knows only another does not."""
    context = rig.engine.server_context(server_settings(authority, curve=curve))
    for offered, enters in ((curve, True), (others, False)):
        sock, conn = after_ssl_request(rig)
        assert rig.engine.start_tls(conn, context)
        client = trusting(authority)
        client.set_ecdh_curve(offered)
        if enters:
            rig.handshake(sock, client, "localhost")
            rig.expect(Event.SECURED, conn)
        else:
            with pytest.raises(ssl.SSLError):
                rig.handshake(sock, client, "localhost")


def test_curves_that_are_not_there(rig: Rig, authority: Authority) -> None:
    """An unknown curve is refused by its name."""
    with pytest.raises(ValueError, match="the curve nonsense is not available"):
        rig.engine.server_context(server_settings(authority, curve="nonsense"))


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
