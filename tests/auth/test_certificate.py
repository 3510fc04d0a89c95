"""The names in a certificate."""

from __future__ import annotations

import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pgshoal.auth.certificate import names

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1)


def made(common: list[str], others: list[x509.GeneralName] | None = None) -> bytes:
    """A certificate with these names."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
    )
    if others is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("common", "others", "found"),
    [
        (["alice"], None, ("alice",)),
        ([], [x509.DNSName("bob")], ("bob",)),
        (["alice"], [x509.DNSName("bob"), x509.DNSName("*.example")], ("alice", "bob", "*.example")),
        ([], [x509.IPAddress(ipaddress.ip_address("10.0.0.1")), x509.DNSName("bob")], ("bob", "10.0.0.1")),
        (["alice", "mallory"], None, ("alice",)),
        (["alice"], [x509.RFC822Name("bob"), x509.UniformResourceIdentifier("x:carl")], ("alice",)),
        (["alice\0mallory"], None, ()),
        ([], None, ()),
    ],
)
def test_names(common: list[str], others: list[x509.GeneralName] | None, found: tuple[str, ...]) -> None:
    """The first common name, all DNS names and addresses, as they stand; a zero byte makes a name nobody's."""
    assert names(made(common, others)) == found


def test_what_is_no_certificate_has_no_names() -> None:
    """The engine has verified it, and still nothing depends on its form."""
    assert names(b"") == ()
    assert names(made(["alice"])[:-20]) == ()
