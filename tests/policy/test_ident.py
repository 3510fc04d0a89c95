"""Which database user a name may be."""

from __future__ import annotations

import pytest

from pgshoal.config.ident import parse_ident
from pgshoal.policy.ident import NAME_MAX, may_be


def test_without_a_map_the_names_are_equal() -> None:
    """Nothing else will do, and an empty name is nobody's."""
    assert may_be(None, "alice", "alice")
    assert not may_be(None, "Alice", "alice")
    assert not may_be(None, "", "")


def test_an_empty_map_allows_nobody() -> None:
    """Not even equal names."""
    assert not may_be((), "alice", "alice")


@pytest.mark.parametrize(
    ("lines", "system", "user", "allowed"),
    [
        ("m root alice", "root", "alice", True),
        ("m root alice", "root", "root", False),
        ("m root alice", "alice", "alice", False),
        ("m root alice\nm root bob", "root", "bob", True),
        ("m root all", "root", "anybody", True),
        ('m root "all"', "root", "anybody", False),
        ("m root \\1", "root", "\\1", True),
        (r"m /^(.*)@x\.org$ \1", "alice@x.org", "alice", True),
        (r"m /^(.*)@x\.org$ \1", "alice@xxorg", "alice", False),
        (r"m /^(.*)@x\.org$ \1", "alice@x.org", "bob", False),
        (r"m /^(.*)@x\.org$ pre_\1", "alice@x.org", "pre_alice", True),
        (r"m /@x\.org$ guest", "alice@x.org", "guest", True),
        (r"m /@x\.org$ all", "alice@x.org", "anybody", True),
        (r"m /^(a)?b$ x\1", "b", "x", True),
        (r"m /^(.*)$ \1", "\\1", "\\1", True),
    ],
)
def test_maps(lines: str, system: str, user: str, allowed: bool) -> None:
    """Literal names are exact; the first group of a regular expression stands for \\1."""
    assert may_be(parse_ident(lines, "ident.conf").maps["m"], system, user) is allowed


def test_long_names_match_no_regular_expression() -> None:
    """A pattern could take too long over them."""
    lines = parse_ident("m /^x*$ all", "ident.conf").maps["m"]
    assert may_be(lines, "x" * NAME_MAX, "alice")
    assert not may_be(lines, "x" * (NAME_MAX + 1), "alice")
