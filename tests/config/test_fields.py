"""Tests of cutting lines of access files into fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.fields import BadLine, lists, words


def cut(text: str) -> list[list[str]]:
    """The fields of a line as text."""
    return [[word.text for word in field] for field, _ in lists(text)]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ("  # nothing", []),
        ("a b\tc", [["a"], ["b"], ["c"]]),
        ("a,b c", [["a", "b"], ["c"]]),
        ("a, b ,c d", [["a", "b", "c"], ["d"]]),
        ('"a b","c""d" e', [["a b", 'c"d'], ["e"]]),
        ("a b#c d", [["a"], ["b"]]),
        ('"#" b', [["#"], ["b"]]),
        ("a,b,c", [["a", "b", "c"]]),
    ],
)
def test_fields(text: str, fields: list[list[str]]) -> None:
    """Blanks separate, commas join, quotes keep both, # ends the line."""
    assert cut(text) == fields


@pytest.mark.parametrize("text", ['"a', 'a "b', 'a"b"', '"a"b', '"a""', ",a", "a,,b", "a,", "a b, # c"])
def test_bad_lines(text: str) -> None:
    """Quotes that do not fit and commas without a name on each side are errors."""
    with pytest.raises(BadLine):
        cut(text)


def test_quoted_words_are_no_keywords() -> None:
    """A word in quotes is a name, whatever it says."""
    bare, quoted = words('all "all"')
    assert bare.is_keyword("all")
    assert not quoted.is_keyword("all")


@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\n")), min_size=1), max_size=5))
def test_everything_quoted_comes_back(fields: list[list[str]]) -> None:
    """Any names that are quoted are read as they were."""
    text = " ".join(",".join('"' + name.replace('"', '""') + '"' for name in field) for field in fields)
    assert cut(text) == fields


@given(st.text())
def test_any_text_is_fields_or_an_error(text: str) -> None:
    """Nothing else comes out, and it comes to an end."""
    try:
        fields = cut(text)
    except BadLine:
        return
    assert all(fields)
