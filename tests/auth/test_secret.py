"""Tests for pgshoal.auth.secret."""

import hmac

import pytest

from pgshoal.auth.secret import (
    Mac,
    SecretKind,
    Verifier,
    derive_verifier,
    mock_secret,
    mock_verifier,
    parse_scram_secret,
    secret_kind,
)

MD5 = "md5" + "0123456789abcdef" * 2
SCRAM = derive_verifier("pencil", 4096, bytes(16)).text()
# For the password "pencil" under the salt of RFC 7677.
PENCIL = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
    "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        ("", SecretKind.EMPTY),
        ("pencil", SecretKind.PLAIN),
        (MD5, SecretKind.MD5),
        (MD5[:-1], SecretKind.PLAIN),
        (MD5.upper(), SecretKind.PLAIN),
        (MD5 + "\n", SecretKind.PLAIN),
        (SCRAM, SecretKind.SCRAM),
        (SCRAM[:-1], SecretKind.PLAIN),
        (SCRAM + "\n", SecretKind.PLAIN),
        ("SCRAM-SHA-256$", SecretKind.PLAIN),
        ("SCRAM-SHA-256$0:AAAA$AAAA:AAAA", SecretKind.PLAIN),
    ],
)
def test_secrets_are_told_apart(secret: str, kind: SecretKind) -> None:
    """Only a whole md5 or SCRAM secret counts as one; all else is a password, as in PostgreSQL."""
    assert secret_kind(secret) is kind


def test_postgresql_secret_is_what_we_derive() -> None:
    """A secret for "pencil" in PostgreSQL's form equals ours for the same salt and count, in both directions."""
    parsed = parse_scram_secret(PENCIL)
    assert parsed is not None
    assert parsed.text() == PENCIL
    assert derive_verifier("pencil", parsed.iterations, parsed.salt).text() == PENCIL
    assert parsed.stored


def test_derived_verifiers_have_salts_of_their_own() -> None:
    """Two derivations of one password differ."""
    assert derive_verifier("x", 2).salt != derive_verifier("x", 2).salt


@pytest.mark.parametrize("count", ["0", "2147483648", "99999999999", "-1", "1e3"])
def test_impossible_iteration_counts_make_no_scram_secret(count: str) -> None:
    """A count PostgreSQL could not hold is not a SCRAM secret."""
    assert parse_scram_secret(SCRAM.replace("$4096:", f"${count}:")) is None


@pytest.mark.parametrize("part", [3, 4])
def test_keys_of_another_size_make_no_scram_secret(part: int) -> None:
    """Both keys have 32 bytes, or the text is a password."""
    parts = SCRAM.replace("$", ":").split(":")
    assert parse_scram_secret(SCRAM.replace(parts[part], "AAAA")) is None


def test_mock_depends_on_user_and_process() -> None:
    """The mock salt is stable for a name, and another process shows another."""
    assert mock_verifier("a", b"k", 2).salt == mock_verifier("a", b"k", 2).salt
    assert mock_verifier("a", b"k", 2).salt != mock_verifier("b", b"k", 2).salt
    assert mock_verifier("a", b"k", 2).salt != mock_verifier("a", b"l", 2).salt


@pytest.mark.parametrize("kind", [SecretKind.PLAIN, SecretKind.MD5, SecretKind.SCRAM])
def test_mock_secret_is_of_the_kind_it_stands_for(kind: SecretKind) -> None:
    """An unknown user is checked against a secret of the kind real users have."""
    assert secret_kind(mock_secret("a", b"k", 2, kind)) is kind


@pytest.mark.parametrize("key", [b"", b"k", bytes(range(32)), b"x" * 64])
def test_a_mac_is_hmac_sha_256(key: bytes) -> None:
    """One Mac signs any number of messages as HMAC-SHA-256 does."""
    mac = Mac(key)
    for message in (b"", b"message", bytes(1000), b"message"):
        assert mac.digest(message) == hmac.digest(key, message, "sha256")


def test_a_verifier_is_prepared_once() -> None:
    """The prepared part is the same for every login, and tells no keys."""
    verifier = Verifier(4096, b"salt", bytes(32), bytes(32))
    assert verifier.prepared() is verifier.prepared()
    assert verifier.prepared().facts == b",s=c2FsdA==,i=4096"
    assert repr(verifier.prepared()) == "Prepared(...)"
