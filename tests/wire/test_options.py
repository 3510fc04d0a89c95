"""Tests for pgshoal.wire.options."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire.errors import WireError
from pgshoal.wire.options import EMPTY_NAME, UNSUPPORTED, parse_options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("   ", []),
        ("-c a=b", [("a", "b")]),
        ("-ca=b", [("a", "b")]),
        ("--a=b", [("a", "b")]),
        ("  -c   a=b  --c=d -ce=f ", [("a", "b"), ("c", "d"), ("e", "f")]),
        ("-c a=", [("a", "")]),
        ("-c a=b=c", [("a", "b=c")]),
        (r"-c a=b\ c", [("a", "b c")]),
        (r"-c a=b\\c", [("a", r"b\c")]),
        (r"-c d\ate=\x", [("date", "x")]),
        (r"-c a=b\ --c=d", [("a", "b --c=d")]),
        ("-c search-path=a-b", [("search_path", "a-b")]),
        ("-c a=b\\", [("a", "b")]),
    ],
)
def test_settings_are_read(text: str, expected: list[tuple[str, str]]) -> None:
    """Each of the three forms is read, with backslash escapes."""
    assert parse_options(text) == expected


@pytest.mark.parametrize(
    "text", ["-c", "-c a", "--a", "--", "-x", "-x a=b", "a=b", "-c\ta=b", "-a=b", "\\", "-c a=b z"]
)
def test_other_switches_are_refused(text: str) -> None:
    """Anything else is refused with the text that says what is allowed."""
    with pytest.raises(WireError) as caught:
        parse_options(text)
    assert caught.value.reason == UNSUPPORTED


@pytest.mark.parametrize("text", ["-c=", "-c =x", "--=", "--=x", "-c a=b -c="])
def test_empty_names_are_refused(text: str) -> None:
    """CVE-2026-107349: an empty name ends the parse with a refusal."""
    with pytest.raises(WireError) as caught:
        parse_options(text)
    assert caught.value.reason == EMPTY_NAME


@given(st.text(alphabet="-c =\\ab\t", max_size=60))
def test_random_options_end_in_settings_or_a_refusal(text: str) -> None:
    """The parser always ends, and never yields an empty name."""
    with suppress(WireError):
        assert all(name for name, _ in parse_options(text))


@given(st.lists(st.tuples(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=10))))
def test_escaped_values_come_back(settings: list[tuple[str, str]]) -> None:
    """A client that escapes every character gets its values through unchanged."""
    text = " ".join(f"-c {name}=" + "".join("\\" + char for char in value) for name, value in settings)
    assert parse_options(text) == settings
