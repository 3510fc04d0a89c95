"""The tls-server-end-point channel binding of RFC 5929: a hash of the server's certificate."""

import base64
import hashlib
import re
from typing import Final

#: Nearly all certificates are signed with one of these; the hash to use, by the content of the object identifier.
_USUAL: Final = {
    bytes.fromhex("2a864886f70d01010b"): "sha256",
    bytes.fromhex("2a864886f70d01010c"): "sha384",
    bytes.fromhex("2a864886f70d01010d"): "sha512",
    bytes.fromhex("2a8648ce3d040302"): "sha256",
    bytes.fromhex("2a8648ce3d040303"): "sha384",
    bytes.fromhex("2a8648ce3d040304"): "sha512",
}
_PEM: Final = re.compile(rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----(.+?)-----END ", re.DOTALL)


def tls_server_end_point(certificate_der: bytes) -> bytes | None:
    """The binding data; None if the certificate's signature names no hash (Ed25519) and so allows no binding."""
    usual = _USUAL.get(_signature(certificate_der))
    return hashlib.new(usual, certificate_der).digest() if usual is not None else _unusual(certificate_der)


def own_end_point(certificate_pem: bytes) -> bytes | None:
    """The binding data of a server that shows the first certificate of a PEM file; None if it allows no binding."""
    found = _PEM.search(certificate_pem)
    if found is None or found[1].startswith(b"TRUSTED"):  # more than the certificate stands in that form
        return None
    try:
        return tls_server_end_point(base64.b64decode(found[2]))
    except ValueError:
        return None


def _signature(der: bytes) -> bytes:
    """What names the signature's algorithm: Certificate = { tbsCertificate, { OBJECT IDENTIFIER ... } ... }."""
    start, _ = _content(der, 0)
    _, end = _content(der, start)
    start, _ = _content(der, end)
    start, end = _content(der, start)
    return der[start:end]


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element that stands at `at` begins and ends."""
    size = der[at + 1] if at + 1 < len(der) else 0
    if size < 0x80:
        return at + 2, at + 2 + size
    start = at + 2 + (size & 0x7F)
    return start, start + int.from_bytes(der[at + 2 : start])


def _unusual(certificate_der: bytes) -> bytes | None:
    # Imported only where it is needed: it takes 10 MB.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509 import load_der_x509_certificate

    try:
        algorithm = load_der_x509_certificate(certificate_der).signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return None
    if algorithm is None:
        return None
    if isinstance(algorithm, hashes.MD5 | hashes.SHA1):
        algorithm = hashes.SHA256()
    digest = hashes.Hash(algorithm)
    digest.update(certificate_der)
    return digest.finalize()
