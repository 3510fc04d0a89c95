"""Certificates as people make them by hand: version 1, a common name alone, unusual keys."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from tests.support.certs import Certificate

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
_SEQUENCE, _BIT_STRING = b"\x30", b"\x03"
_VERSION_3 = bytes.fromhex("a003020102")


@dataclass(frozen=True)
class Signer:
    """Who signs: a self-signed certificate and its key."""

    certificate: x509.Certificate
    key: Key


def new_key(kind: str) -> Key:
    """A key by name: rsa, p256 or p521."""
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key({"p256": ec.SECP256R1(), "p521": ec.SECP521R1()}[kind])


def signer(*extensions: x509.ExtensionType) -> Signer:
    """An authority of its own."""
    key = new_key("p256")
    authority = x509.BasicConstraints(ca=True, path_length=None)
    return Signer(_build("plain authority", key, None, (authority, *extensions)), key)


def issue(
    folder: Path, name: str, kind: str = "p256", *, common_name: str, by: Signer | None = None, version: int = 3
) -> Certificate:
    """Writes a certificate without any extension, self-signed unless a signer is given."""
    key = new_key(kind)
    made = _build(common_name, key, by, ())
    pem = made.public_bytes(serialization.Encoding.PEM)
    if version == 1:
        pem = _first_version(made, by.key if by else key)
    written = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    written.cert.write_bytes(pem)
    written.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    for path in (written.cert, written.key):
        path.chmod(0o644)
    return written


def write_pem(certificate: x509.Certificate, path: Path) -> Path:
    """The file that trusts this certificate."""
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.chmod(0o644)
    return path


def _build(common_name: str, key: Key, by: Signer | None, extensions: Sequence[x509.ExtensionType]) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(by.key if by else key, hashes.SHA256())


def _first_version(made: x509.Certificate, key: Key) -> bytes:
    """The same certificate without a version, signed anew: no library writes such certificates any more."""
    fields = made.tbs_certificate_bytes
    start = fields.index(_VERSION_3)
    signed = _wrap(_SEQUENCE, fields[start + len(_VERSION_3) :])
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
    whole = made.public_bytes(serialization.Encoding.DER)
    algorithm = whole[whole.index(fields) + len(fields) :]
    algorithm = algorithm[: 2 + algorithm[1]]
    der = _wrap(_SEQUENCE, signed + algorithm + _wrap(_BIT_STRING, b"\0" + signature))
    return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)


def _wrap(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return tag + bytes([size]) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return tag + bytes([0x80 | len(digits)]) + digits + content
