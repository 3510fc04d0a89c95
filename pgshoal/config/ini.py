"""Reads ini syntax: sections, keys and %include become a flat list of lines with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgshoal.errors import ConfigError

INCLUDE_NESTING_MAX = 10
_BLANKS = " \t\r\n\v\f"
_INCLUDE = re.compile(r"%include[ \t]+(.+)")
_HEADER = re.compile(r"\[([^\]]*)\]")
_KEY = re.compile(r"(?:'([^']*)'|([A-Za-z0-9_.*-]+))\s*(=?)\s*", re.ASCII)
_QUOTED_VALUE = re.compile(r"'((?:[^']++|'')*+)'")
_CONNSTR_KEY = re.compile(r"([^\s=']+) *= *")


@dataclass(frozen=True, slots=True)
class Header:
    """A ``[section]`` line."""

    section: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A ``key = value`` line; section is empty before the first header."""

    section: str
    key: str
    value: str = field(repr=False)
    file: str
    line: int


class _Reader:
    """One pass over a file and what it includes; the section carries over in both directions."""

    def __init__(self) -> None:
        self.section = ""

    def lines(self, path: str, nesting: int) -> Iterator[Header | Assignment]:
        for number, text in enumerate(_read(path).split("\n"), start=1):
            line = text.strip(_BLANKS)
            if line and line[0] not in ";#":
                yield from self._line(line, path, number, nesting)

    def _line(self, line: str, path: str, number: int, nesting: int) -> Iterator[Header | Assignment]:
        if line.startswith("%"):
            yield from self._include(line, path, number, nesting)
        elif line.startswith("["):
            match = _HEADER.match(line)
            if match is None:
                raise ConfigError(path, number, "", None, "a section header needs a closing ]")
            self.section = match[1]
            yield Header(self.section, path, number)
        else:
            yield self._assignment(line, path, number)

    def _assignment(self, line: str, path: str, number: int) -> Assignment:
        match = _KEY.match(line)
        if match is None:
            reason = "expected key = value; a key is A-Z a-z 0-9 _ . - * or any text in single quotes"
            raise ConfigError(path, number, "", None, reason)
        quoted, bare, equals = match.groups()
        key = bare if quoted is None else quoted
        if not equals:
            raise ConfigError(path, number, key, None, "expected = after the key")
        return Assignment(self.section, key, line[match.end() :], path, number)

    def _include(self, line: str, path: str, number: int, nesting: int) -> Iterator[Header | Assignment]:
        match = _INCLUDE.fullmatch(line)
        if match is None:
            raise ConfigError(path, number, "", None, "the only directive is %include PATH")
        if nesting == INCLUDE_NESTING_MAX:
            reason = f"includes may be nested {INCLUDE_NESTING_MAX} deep"
            raise ConfigError(path, number, "%include", match[1], reason)
        try:
            # Relative paths mean the working directory, not the folder of the including file.
            yield from self.lines(match[1], nesting + 1)
        except _Unreadable as error:
            raise ConfigError(path, number, "%include", match[1], error.reason) from None


class _Unreadable(ConfigError):
    """A file that cannot be read; told apart so that an %include line can be named instead."""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except OSError as error:
        raise _Unreadable(path, 0, "", None, f"could not read the file: {error.strerror}") from None
    except ValueError:
        raise _Unreadable(path, 0, "", None, "a path cannot hold a zero byte") from None
    # Editors on Windows put a byte-order mark first; it is no part of the first line.
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigError(path, line, "", None, "a configuration file cannot hold a zero byte")
    return text


def read_ini(path: str) -> Iterator[Header | Assignment]:
    """Yield the lines of `path` and its includes in order; a fault is a ConfigError with file and line."""
    return _Reader().lines(path, 0)


def connection_string(text: str) -> Iterator[tuple[str, str]]:
    """Yield the key=value pairs of an entry; a ValueError says what is wrong without quoting any value.

    Pairs are separated by spaces. A value may be single-quoted, with a quote inside doubled, and may not be empty.
    """
    position = 0
    while True:
        while text[position : position + 1] == " ":
            position += 1
        if position == len(text):
            return
        match = _CONNSTR_KEY.match(text, position)
        if match is None:
            raise ValueError(f"expected key=value at character {position + 1}")
        key = match[1]
        if text[match.end() : match.end() + 1] == "'":
            value, position = _quoted(text, match.end(), key)
        else:
            end = text.find(" ", match.end())
            position = len(text) if end < 0 else end
            value = text[match.end() : position]
        if not value:
            raise ValueError(f"the value of {key} may not be empty")
        yield key, value


def _quoted(text: str, start: int, key: str) -> tuple[str, int]:
    match = _QUOTED_VALUE.match(text, start)
    if match is None:
        raise ValueError(f"the value of {key} needs a closing quote")
    if text[match.end() : match.end() + 1] not in ("", " "):
        raise ValueError(f"expected a space after the quoted value of {key}")
    return match[1].replace("''", "'"), match.end()
