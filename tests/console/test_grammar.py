"""The grammar: which texts are commands, and what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.console.grammar import BadCommand, Command, parse


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("show pools", Command("SHOW", "pools")),
        ("  ShOw\t\r\npools ; ", Command("SHOW", "pools")),
        ("select version", Command("SHOW", "version")),
        ("reload;", Command("RELOAD")),
        ('pause "my ""db"" é"', Command("PAUSE", 'my "db" é')),
        ('show "version"', Command("SHOW", "version")),
        ("pause db_1", Command("PAUSE", "db_1")),
        ("pause to", Command("PAUSE", "to")),
        ("set verbose=1", Command("SET", "verbose", "1")),
        ("set verbose = 1;", Command("SET", "verbose", "1")),
        ("SET pool_mode TO session", Command("SET", "pool_mode", "session")),
        ("set a='it''s; -1.5'", Command("SET", "a", "it's; -1.5")),
        ("set a=''", Command("SET", "a", "")),
        ("set Verbose=2", Command("SET", "Verbose", "2")),
        ("shutdown wait_for_clients", Command("SHUTDOWN", "wait_for_clients")),
    ],
)
def test_commands(text: str, command: Command) -> None:
    """Keywords in any case, words, quoted words, SET in both spellings, and one optional semicolon."""
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "show pools;;",
        "show users; show lists",
        "pause a b",
        "pause 'a'",
        'pause"a"',
        'pause "a',
        "show pools -- comment",
        "set",
        "set a",
        "set a=",
        "set a=1.5",
        "set a=-1",
        "set a 1",
        "set ato1",
        "pause my-db",
        "show\vpools",
        "show pools\x00",
    ],
)
def test_no_commands(text: str) -> None:
    """Everything else is refused as a whole: no comments, no second command, no stray quotes."""
    with pytest.raises(BadCommand, match="invalid_command"):
        parse(text)


@pytest.mark.parametrize(
    ("fits", "too_long"),
    [
        ("x" * 15, "x" * 16),
        ("pause " + "x" * 63, "pause " + "x" * 64),
        (f"set a='{'x' * 255}'", f"set a='{'x' * 256}'"),
    ],
)
def test_lengths_are_bounded(fits: str, too_long: str) -> None:
    """A command has 15 bytes, a word 63, a value 255."""
    parse(fits)
    with pytest.raises(BadCommand, match="bad_arguments"):
        parse(too_long)


def test_lengths_count_bytes() -> None:
    """A word of letters with two bytes each fills up sooner."""
    parse('pause "' + "é" * 31 + '"')
    with pytest.raises(BadCommand, match="bad_arguments"):
        parse('pause "' + "é" * 32 + '"')


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the grammar fail in another way."""
    try:
        command = parse(text)
    except BadCommand:
        return
    assert command.verb == command.verb.upper()
