"""How PostgreSQL reads a text: the values of parameters that matter to it, and the requests that may change them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Server

#: client_encoding, or standard_conforming_strings.
STRICT: Final = 1
#: DateStyle, IntervalStyle or TimeZone.
DATES: Final = 2
ALL: Final = STRICT | DATES
#: The end of a transaction, where SET LOCAL ends.
END: Final = 4

_UNSURE: Final = b"?"
#: A dollar that begins no parameter: a dollar-quoted literal, or part of a name.
_QUOTED = re.compile(rb"'|\$(?![0-9])")
_SETS = re.compile(rb"set|discard", re.I)
_STRICT_WORDS = re.compile(rb"encoding|names|conforming|all|_config", re.I)
_DATES_WORDS = re.compile(rb"style|zone|all|_config", re.I)
_ENDS = re.compile(rb"[ \t\n\r\f]*(?:commit|end|rollback|abort)", re.I)


class Reading(NamedTuple):
    """Values in lower case, each with a NUL; empty where they do not matter to the text.

    `strict`: which characters there are, and where a literal ends; `dates`: what dates and times in literals mean.
    """

    strict: bytes = b""
    dates: bytes = b""

    @property
    def sure(self) -> bool:
        """Nothing under way may have changed it."""
        return self.strict != _UNSURE and self.dates != _UNSURE

    def has_words_of(self, other: Reading) -> bool:
        """The same text surely consists of the same words in both."""
        return self.strict == other.strict and self.strict != _UNSURE


PLAIN_READING: Final = Reading()


def reading(server: Server, tail: bytes) -> Reading:
    """How this server would read the text of a Parse now."""
    text = tail[: tail.index(0)]
    encoded = not text.isascii()
    escaped = b"\\" in text
    quoted = _QUOTED.search(text) is not None
    if not (encoded or escaped or quoted):
        return PLAIN_READING
    strict = (_value(server, "client_encoding") if encoded else b"") + (
        _value(server, "standard_conforming_strings") if escaped else b""
    )
    dates = b"".join(_value(server, name) for name in ("datestyle", "intervalstyle", "timezone")) if quoted else b""
    return Reading(
        _UNSURE if strict and server.unsure & STRICT else strict,
        _UNSURE if dates and server.unsure & DATES else dates,
    )


def _value(server: Server, name: str) -> bytes:
    held = server.values.get(name)
    return (held[1].encode("utf-8", "surrogateescape").lower() if held is not None else b"") + b"\0"


def changes(text: bytes) -> int:
    """What a request with this text may change for texts behind it, by the words in it."""
    found = END if _ENDS.match(text) else 0
    if _SETS.search(text):
        found |= STRICT if _STRICT_WORDS.search(text) else 0
        found |= DATES if _DATES_WORDS.search(text) else 0
    return found


def note(server: Server, changed: int) -> None:
    """A request that may change this is on its way."""
    if changed:
        server.unsure_in_block |= changed & ALL
        server.unsure |= changed & ALL
        if changed & END:
            server.unsure |= server.unsure_in_block


def told(server: Server, in_block: bool) -> None:
    """Everything has been answered."""
    server.unsure = 0
    if not in_block:
        server.unsure_in_block = 0
