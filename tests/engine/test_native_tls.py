"""TLS of the engines, on real loopback connections."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from pgshoal.engine.contract import ConnId, Event, TlsSettings
from tests.engine.rig import OPTIONS, SSL_REQUEST, STARTUP, Rig
from tests.support import plaincerts
from tests.support.certs import Authority, Certificate


def pair_settings(pair: Certificate, **more: Any) -> TlsSettings:
    """TLS settings with this certificate."""
    return TlsSettings(certificate_pem=pair.cert.read_bytes(), key_pem=pair.key.read_bytes(), **more)


def server_settings(authority: Authority, **more: Any) -> TlsSettings:
    """TLS settings with the authority's server certificate."""
    return pair_settings(authority.server, **more)


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


def connect_tls(rig: Rig, pair: Certificate, settings: TlsSettings, name: str) -> tuple[ConnId, ConnId]:
    """The engine as client of itself: (our connection, the accepted one), both with a handshake begun."""
    server = rig.engine.connect(rig.listener.getsockname(), OPTIONS)
    client = rig.expect_client()[1]
    rig.expect(Event.CONNECTED, server)
    rig.engine.send(server, SSL_REQUEST)
    rig.expect(Event.PACKET, client)
    accepting = rig.engine.server_context(pair_settings(pair))
    assert rig.engine.start_tls(client, accepting)
    assert rig.engine.start_tls(server, rig.engine.client_context(settings), name)
    return server, client


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_we_verify_chain_and_name(rig: Rig, authority: Authority, name: str) -> None:
    """A good certificate passes; the name is sent as SNI unless it is an address."""
    settings = TlsSettings(ca_pem=authority.ca_file.read_bytes(), verify_chain=True, verify_name=True)
    server, client = connect_tls(rig, authority.server, settings, name)
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
    server, _ = connect_tls(rig, authority.server, TlsSettings(ca_pem=ca_pem, **settings), name)  # type: ignore[arg-type]
    if good:
        rig.expect(Event.SECURED, server)
    else:
        assert rig.expect(Event.CLOSED, server)[2].startswith("tls: ")


def test_an_unknown_authority_is_refused(rig: Rig, authority: Authority) -> None:
    """A certificate that another authority has signed does not pass."""
    stranger = Authority()
    settings = TlsSettings(ca_pem=stranger.ca_file.read_bytes(), verify_chain=True)
    server, client = connect_tls(rig, authority.server, settings, "localhost")
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


@pytest.mark.parametrize("kind", ["rsa", "p256"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_version_1_certificates_where_nothing_is_verified(rig: Rig, tmp_path: Path, kind: str, version: str) -> None:
    """They are served, and taken from servers."""
    pair = plaincerts.issue(tmp_path, "old", kind, common_name="localhost", version=1)
    server, client = connect_tls(rig, pair, TlsSettings(versions=(version,)), "localhost")
    assert rig.expect(Event.SECURED, server)[2] == version
    rig.expect(Event.SECURED, client)


@pytest.mark.parametrize("version", [1, 3])
def test_a_key_of_another_certificate_is_refused(rig: Rig, tmp_path: Path, version: int) -> None:
    """Certificate and key must belong together, in old certificates, too."""
    one, two = (plaincerts.issue(tmp_path, name, common_name="localhost", version=version) for name in "ab")
    with pytest.raises(ValueError, match="key"):
        rig.engine.server_context(pair_settings(Certificate(one.cert, two.key)))


def test_a_key_on_p521(rig: Rig, tmp_path: Path) -> None:
    """The native engines say what kinds of keys they take; the twin has this curve."""
    settings = pair_settings(plaincerts.issue(tmp_path, "large", "p521", common_name="localhost"))
    if rig.engine.name == "python":
        rig.engine.server_context(settings)
        return
    for context in (rig.engine.server_context, rig.engine.client_context):
        with pytest.raises(ValueError, match=r"the key file holds no key that can be used: .*P-521 is not"):
            context(settings)


def judged(rig: Rig, pair: Certificate, ca_file: Path, name: str, *, verify_name: bool = True) -> str:
    """What the engine says of a server's certificate: "" if it is good."""
    settings = TlsSettings(ca_pem=ca_file.read_bytes(), verify_chain=True, verify_name=verify_name)
    server, _ = connect_tls(rig, pair, settings, name)
    for _ in range(200):
        for event in rig.seen:
            if event[0] in (Event.SECURED, Event.CLOSED) and event[1] == server:
                return "" if event[0] == Event.SECURED else str(event[2])
        rig.turn()
    raise AssertionError("no end of the handshake")


def test_a_common_name_stands_in_for_alternative_names(rig: Rig, tmp_path: Path, authority: Authority) -> None:
    """Where the certificate has none of the kind; the chain must be good all the same."""
    by = plaincerts.signer()
    ca_file = plaincerts.write_pem(by.certificate, tmp_path / "ca.pem")
    pair = plaincerts.issue(tmp_path, "named", common_name="db.example", by=by)
    assert judged(rig, pair, ca_file, "db.example") == ""
    assert judged(rig, pair, ca_file, "other.example").startswith("tls: ")
    assert judged(rig, pair, authority.ca_file, "db.example").startswith("tls: ")
    star = plaincerts.issue(tmp_path, "star", common_name="*.db.example", by=by)
    assert judged(rig, star, ca_file, "one.db.example") == ""
    assert judged(rig, star, ca_file, "more.than.db.example").startswith("tls: ")
    hidden = authority.issue("hidden", "other.example", common_name="db.example")
    assert judged(rig, hidden, authority.ca_file, "db.example").startswith("tls: ")


def test_an_address_as_common_name(rig: Rig, tmp_path: Path) -> None:
    """It counts on the native engines; the twin's OpenSSL looks for addresses among alternative names alone."""
    by = plaincerts.signer()
    ca_file = plaincerts.write_pem(by.certificate, tmp_path / "ca.pem")
    pair = plaincerts.issue(tmp_path, "address", common_name="127.0.0.1", by=by)
    assert (judged(rig, pair, ca_file, "127.0.0.1") == "") is (rig.engine.name != "python")
    assert judged(rig, pair, ca_file, "127.0.0.2").startswith("tls: ")


def test_a_common_name_does_not_escape_constraints(rig: Rig, tmp_path: Path) -> None:
    """An authority that may vouch for some names only vouches for no other by a common name."""
    allowed = x509.NameConstraints(permitted_subtrees=[x509.DNSName("allowed.example")], excluded_subtrees=None)
    by = plaincerts.signer(allowed)
    ca_file = plaincerts.write_pem(by.certificate, tmp_path / "ca.pem")
    pair = plaincerts.issue(tmp_path, "escaped", common_name="db.example", by=by)
    assert judged(rig, pair, ca_file, "db.example").startswith("tls: ")


def test_version_1_where_certificates_are_verified(rig: Rig, tmp_path: Path, authority: Authority) -> None:
    """One that is trusted itself is good; below an authority the native engines refuse it, and a stranger's all do."""
    own = plaincerts.issue(tmp_path, "own", common_name="db.example", version=1)
    for name, verify_name, good in (("x", False, True), ("db.example", True, True), ("other.example", True, False)):
        assert (judged(rig, own, own.cert, name, verify_name=verify_name) == "") is good
    assert judged(rig, own, authority.ca_file, "db.example", verify_name=False).startswith("tls: ")
    by = plaincerts.signer()
    ca_file = plaincerts.write_pem(by.certificate, tmp_path / "ca.pem")
    issued = plaincerts.issue(tmp_path, "issued", common_name="db.example", by=by, version=1)
    told = judged(rig, issued, ca_file, "db.example")
    assert told == "" if rig.engine.name == "python" else "UnsupportedCertVersion" in told


@pytest.mark.parametrize("version", [1, 3])
def test_a_forged_handshake_is_refused(rig: Rig, tmp_path: Path, version: int) -> None:
    """Whoever shows a certificate must hold its key, even where no certificate is verified: bindings rest on it."""
    pair = plaincerts.issue(tmp_path, "shown", common_name="localhost", version=version)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_side=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = rig.engine.connect(listener.getsockname(), OPTIONS)
        rig.expect(Event.CONNECTED, server)
        peer, _ = listener.accept()
        rig.clients.append(peer)
        assert rig.engine.start_tls(server, rig.engine.client_context(TlsSettings(versions=("TLSv1.2",))), "localhost")
        rig.turn()
        incoming.write(peer.recv(65536))
        with pytest.raises(ssl.SSLWantReadError):
            session.do_handshake()
        peer.sendall(forged(outgoing.read()))
        assert "signature" in rig.expect(Event.CLOSED, server)[2].lower()


def forged(flight: bytes) -> bytes:
    """The server's messages up to ServerHelloDone, with one bit of the signature before that turned over."""
    done = b"\x0e\0\0\0"
    assert flight.endswith(done)
    signed = flight.removesuffix(done).removesuffix(b"\x16\x03\x03\0\x04")
    return signed[:-1] + bytes([signed[-1] ^ 1]) + flight[len(signed) :]
