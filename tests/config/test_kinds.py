"""Tests of the kinds of value: what each reads, and how it shows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config import kinds


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x10", 16), ("0X1f", 31), ("010", 8), ("0", 0), ("+7", 7), (" 7", 7), ("2147483647", 2**31 - 1)],
)
def test_integers_are_read_as_strtol_does(text: str, value: int) -> None:
    """Hexadecimal and octal are understood, and a sign and leading blanks are allowed."""
    assert kinds.integer().parse(text) == value


@pytest.mark.parametrize("text", ["08", "0b1", "1_000", "7 ", "٣", "2147483648", "-1", "0x", "9" * 5000])
def test_integers_outside_the_syntax_or_range_are_refused(text: str) -> None:
    """Python's own extensions, trailing text and overflow are no whole numbers."""
    with pytest.raises(ValueError, match="not allowed"):
        kinds.integer().parse(text)


@given(st.integers(0, 2**31 - 1))
def test_integers_in_every_base_agree(value: int) -> None:
    """A number reads the same in decimal, hexadecimal and octal."""
    parse = kinds.integer().parse
    assert parse(str(value)) == parse(hex(value)) == parse(f"0{value:o}") == value


@given(st.text(max_size=12))
def test_no_text_breaks_a_kind(text: str) -> None:
    """Any text is either read or refused with a ValueError, by every kind."""
    every = [
        kinds.integer(),
        kinds.inheriting_integer(),
        kinds.port(),
        kinds.choice("a", "b"),
        *(kind for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)),
    ]
    for kind in every:
        try:
            value = kind.parse(text)
        except ValueError:
            continue
        assert isinstance(kind.show(value), str)


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("1.5", 1.5, "1.5"),
        (".5", 0.5, "0.5"),
        ("010", 10.0, "10"),
        ("0x10", 16.0, "16"),
        ("1e3", 1000.0, "1000"),
        ("100000000", 1e8, "1e+08"),
        ("1.23456789", 1.23456789, "1.23457"),
        ("-0", 0.0, "0"),
        ("+7", 7.0, "7"),
    ],
)
def test_seconds(text: str, value: float, shown: str) -> None:
    """Times are decimal fractions, shown with six significant digits."""
    assert kinds.SECONDS.parse(text) == value
    assert kinds.SECONDS.show(value) == shown


@pytest.mark.parametrize("text", ["-1", "5s", "5 ", "1,5", "inf", "nan", "1e400", "1e13", "", "5min"])
def test_seconds_without_meaning_are_refused(text: str) -> None:
    """Negative, infinite and suffixed times are refused."""
    with pytest.raises(ValueError, match="not allowed"):
        kinds.SECONDS.parse(text)


@pytest.mark.parametrize(
    ("text", "value", "shown"), [("-1", None, "-1"), ("-30", None, "-1"), ("0", 0.0, "0"), ("1.5", 1.5, "1.5")]
)
def test_inheriting_seconds(text: str, value: float | None, shown: str) -> None:
    """In a connection string a negative time means unset, and 0 stays 0."""
    assert kinds.INHERITING_SECONDS.parse(text) == value
    assert kinds.INHERITING_SECONDS.show(value) == shown


@pytest.mark.parametrize(("text", "value"), [("-5", None), ("-1", None), ("0", 0), ("010", 10)])
def test_inheriting_integers_are_decimal(text: str, value: int | None) -> None:
    """In a connection string a leading 0 does not mean octal, and a negative number means unset."""
    assert kinds.inheriting_integer().parse(text) == value


def test_inheriting_seconds_are_decimal() -> None:
    """In a connection string a time has no hexadecimal form either."""
    with pytest.raises(ValueError, match="not allowed"):
        kinds.INHERITING_SECONDS.parse("0x10")


def test_choices_ignore_case() -> None:
    """A word is accepted in any case and kept in lower case."""
    assert kinds.choice("session", "transaction").parse("TransAction") == "transaction"


@pytest.mark.parametrize("text", ["a,b", "a, b", " a\tb ", "a,,b", "a b"])
def test_lists_split_at_commas_and_blanks(text: str) -> None:
    """Commas and blanks separate names, and empty places are dropped."""
    assert kinds.NAMES.parse(text) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("secure", "tlsv1.2 tlsv1.3"),
        ("", "tlsv1.2 tlsv1.3"),
        ("all", "tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3"),
        ("tlsv1", "tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3"),
        ("TLSv1.3", "tlsv1.3"),
        ("tlsv1.3:tlsv1.2", "tlsv1.2 tlsv1.3"),
        ("all,!tlsv1.0,!tlsv1.1", "tlsv1.2 tlsv1.3"),
        ("!tlsv1.3", "tlsv1.0 tlsv1.1 tlsv1.2"),
    ],
)
def test_tls_protocols(text: str, versions: str) -> None:
    """A list of versions and keywords becomes the versions in ascending order."""
    assert kinds.TLS_PROTOCOLS.parse(text) == tuple(versions.split())


def test_workers() -> None:
    """Auto is kept as 0 and shown as auto again."""
    assert kinds.WORKERS.parse("AUTO") == 0
    assert kinds.WORKERS.show(0) == "auto"
    assert kinds.WORKERS.show(kinds.WORKERS.parse("4")) == "4"


@pytest.mark.parametrize("text", ["off", "127.0.0.1:9127", "[::1]:80", "localhost:1"])
def test_http_listen(text: str) -> None:
    """The page is off or has a host and a port."""
    assert kinds.HTTP_LISTEN.parse(text) == text
