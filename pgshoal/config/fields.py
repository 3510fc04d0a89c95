"""Cuts the lines of access files into fields: bare words, quoted words, commas; # begins a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r'[^\s",#]+')
_QUOTED: Final = re.compile(r'"((?:[^"]++|"")*+)"')
#: What may follow a word; anything else would glue two words together.
_END: Final = re.compile(r"[\s,#]|\Z")
COMMA: Final = ","


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a line. A quoted one is a name, never a keyword; `end` is where the rest of the line begins."""

    text: str
    quoted: bool
    end: int

    def is_keyword(self, text: str) -> bool:
        """Whether it is this keyword."""
        return not self.quoted and self.text == text


class BadLine(Exception):
    """A line that cannot be used: the field, what stands there (None: must not be shown), and what is allowed."""

    def __init__(self, field: str, value: str | None, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed


def words(text: str) -> Iterator[Word]:
    """The words of one line, commas among them as words of their own; BadLine for quotes that do not fit."""
    position = 0
    while True:
        position = _after_space(text, position)
        if position == len(text) or text[position] == "#":
            return
        if text[position] == COMMA:
            position += 1
            yield Word(COMMA, False, position)
            continue
        quoted = text[position] == '"'
        match = (_QUOTED if quoted else _WORD).match(text, position)
        if match is None or not _END.match(text, match.end()):
            raise BadLine("quotes", None, 'a name in quotes is "name", a quote inside is doubled, blanks follow')
        position = match.end()
        yield Word(match[1].replace('""', '"') if quoted else match[0], quoted, position)


def lists(text: str) -> Iterator[tuple[list[Word], int]]:
    """The fields of one line, each a list of the words that commas join, with the place where the field ends.

    What follows a field is not looked at before it is asked for: it may be cut by other rules.
    """
    field: list[Word] = []
    joined = True
    for word in words(text):
        if word.is_keyword(COMMA) == joined:
            raise BadLine("list", None, "names separated by single commas")
        if joined:
            field.append(word)
        joined = not joined
        if not joined and not text.startswith(COMMA, _after_space(text, word.end)):
            yield field, word.end
            field, joined = [], True
    if field:
        raise BadLine("list", None, "names separated by single commas")


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
