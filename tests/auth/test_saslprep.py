"""Tests for pgshoal.auth.saslprep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.auth.saslprep import saslprep


@pytest.mark.parametrize(
    ("password", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
    ],
)
def test_rfc_examples(password: str, prepared: str) -> None:
    """RFC 4013 section 3: soft hyphen is dropped, case is kept, compatibility forms are folded."""
    assert saslprep(password.encode()) == prepared.encode()


@pytest.mark.parametrize(
    "password", ["\u0627\u0031", "é\u0007", "\ue000", "é\u2028", "\u00ad", "\U000e0001é", "\u0221"]
)
def test_forbidden_text_is_left_as_it_is(password: str) -> None:
    """Where RFC 4013 forbids a password, or nothing would be left, PostgreSQL uses the raw bytes."""
    assert saslprep(password.encode()) == password.encode()


def test_spaces_of_all_kinds_become_one_kind() -> None:
    """A no-break space is a space."""
    assert saslprep("a\u00a0b".encode()) == b"a b"


def test_right_to_left_text_is_prepared() -> None:
    """Text wholly in one direction is allowed."""
    assert saslprep("\u0627\u00ad\u0628".encode()) == "\u0627\u0628".encode()
    assert saslprep("\u0627a\u0628\u00ad".encode()) == "\u0627a\u0628\u00ad".encode()


def test_bytes_that_are_not_utf8_are_left_alone() -> None:
    """A Latin-1 password works as its bytes."""
    assert saslprep(b"p\xe9ncil") == b"p\xe9ncil"


def test_ascii_is_never_touched() -> None:
    """ASCII passwords stay as they are, control characters included."""
    assert saslprep(b"a\x07 b") == b"a\x07 b"


@given(st.text(max_size=30))
def test_any_text_is_prepared_or_left(password: str) -> None:
    """No text raises, and a prepared password is not changed by a second pass."""
    raw = password.encode("utf-8", "surrogatepass")
    prepared = saslprep(raw)
    assert saslprep(prepared) == prepared
