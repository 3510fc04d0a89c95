"""Tests for pgshoal.auth.channel_binding."""

import base64
import datetime
import hashlib
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from pgshoal.auth.channel_binding import own_end_point, tls_server_end_point

NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)

PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def certificate(key: PrivateKey, algorithm: hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None) -> bytes:
    """A self-signed certificate in DER."""
    builder = x509.CertificateBuilder(NAME, NAME, key.public_key(), 1, START, END)
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("algorithm", "name"), [(hashes.SHA256(), "sha256"), (hashes.SHA384(), "sha384"), (hashes.SHA512(), "sha512")]
)
def test_hash_is_the_one_of_the_signature(algorithm: hashes.SHA256 | hashes.SHA384 | hashes.SHA512, name: str) -> None:
    """RFC 5929: the certificate is hashed with its signature's own hash."""
    der = certificate(ec.generate_private_key(ec.SECP256R1()), algorithm)
    assert tls_server_end_point(der) == hashlib.new(name, der).digest()


@pytest.mark.parametrize("weak", ["05", "04"])
def test_weak_hashes_are_replaced_by_sha256(weak: str) -> None:
    """RFC 5929: for sha1 and md5 signatures SHA-256 is used."""
    der = certificate(rsa.generate_private_key(65_537, 2048), hashes.SHA384())
    # Libraries no longer sign with weak hashes, so the algorithm in a finished certificate is renamed
    # from sha384WithRSAEncryption (1.2.840.113549.1.1.12); nobody checks the signature here.
    oid = bytes.fromhex("2a864886f70d0101")
    assert der.count(oid + b"\x0c") == 2
    renamed = der.replace(oid + b"\x0c", oid + bytes.fromhex(weak))
    assert tls_server_end_point(renamed) == hashlib.sha256(renamed).digest()


def test_signature_without_a_hash_allows_no_binding() -> None:
    """Ed25519 names no hash, and RFC 5929 defines no binding for it."""
    assert tls_server_end_point(certificate(ed25519.Ed25519PrivateKey.generate(), None)) is None


@pytest.mark.parametrize("der", [b"", b"x", bytes(100)])
def test_garbage_allows_no_binding(der: bytes) -> None:
    """What is no certificate binds nothing and raises nothing."""
    assert tls_server_end_point(der) is None


@pytest.mark.parametrize("cut", [False, True])
def test_any_beginning_of_a_certificate_raises_nothing(cut: bool) -> None:
    """However little there is, and whatever lengths it announces."""
    der = certificate(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    for size in range(len(der)):
        tls_server_end_point(der[:size] if cut else der[:size] + b"\xff" * 200)


def test_usual_certificates_need_no_large_library() -> None:
    """A worker that only hashes its own certificate does not load what costs 10 MB."""
    der = base64.b64encode(certificate(rsa.generate_private_key(65_537, 2048), hashes.SHA256())).decode()
    program = (
        "import base64, sys; from pgshoal.auth.channel_binding import tls_server_end_point\n"
        f"assert len(tls_server_end_point(base64.b64decode('{der}'))) == 32; assert 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def pem(der: bytes, label: str = "CERTIFICATE") -> bytes:
    """In PEM."""
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{body}-----END {label}-----\n".encode()


def test_own_binding_is_that_of_the_first_certificate() -> None:
    """The file holds the certificate that is shown first, and then its chain; text may stand before."""
    first, second = (certificate(ec.generate_private_key(ec.SECP256R1()), hashes.SHA384()) for _ in range(2))
    found = own_end_point(b"some text\n" + pem(first) + pem(second))
    assert found == hashlib.sha384(first).digest()
    assert own_end_point(pem(first, "X509 CERTIFICATE")) == found


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_allows_no_binding(text: bytes) -> None:
    """Nor does one in a form that holds more than the certificate."""
    der = certificate(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    assert own_end_point(text) is None
    assert own_end_point(pem(der, "TRUSTED CERTIFICATE") + pem(der)) is None
