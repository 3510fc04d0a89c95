"""What drivers of the extended protocol send unasked, and the console answers though there is nothing to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgshoal.console.commands import Columns
from pgshoal.console.grammar import BadCommand, parse
from pgshoal.console.tables import TYPES
from pgshoal.wire import build

_VOID: Final = (2278, 4)
_DEALLOCATE: Final = re.compile(r'deallocate (?:prepare )?([0-9a-z_]+|"(?:[^"]|"")+")', re.IGNORECASE)
_SPACES: Final = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Courtesy:
    """The reply without ReadyForQuery, and the prepared statements it ends: one, or all of them."""

    reply: bytes
    columns: Columns | None = None
    forgets: str = ""
    forgets_all: bool = False


def _said(tag: str, forgets_all: bool = False) -> Courtesy:
    return Courtesy(build.command_complete(tag), forgets_all=forgets_all)


def _valued(tag: str, name: str, oid_size: tuple[int, int], value: str) -> Courtesy:
    columns = [(name, *oid_size)]
    reply = build.row_description(columns) + build.data_row([value]) + build.command_complete(tag)
    return Courtesy(reply, columns)


#: of an empty statement
NOTHING: Final = Courtesy(build.EMPTY_QUERY_RESPONSE)
_IGNORED: Final = Courtesy(build.notice("SET ignored") + build.command_complete("SET"))
#: Statement in lower case -> answer, with PostgreSQL's tags. A pool resets a session when it takes it back.
_COURTESIES: Final[Mapping[str, Courtesy]] = {
    "": NOTHING,
    "-- ping": NOTHING,
    "discard all": _said("DISCARD ALL", forgets_all=True),
    "deallocate all": _said("DEALLOCATE ALL", forgets_all=True),
    "reset all": _said("RESET"),
    "close all": _said("CLOSE CURSOR ALL"),
    "unlisten *": _said("UNLISTEN"),
    "select pg_advisory_unlock_all()": _valued("SELECT 1", "pg_advisory_unlock_all", _VOID, ""),
    "show transaction isolation level": _valued("SHOW", "transaction_isolation", TYPES["text"], "read committed"),
}


def courtesy(text: str) -> Courtesy | None:
    """The answer to one statement; None if it is nothing we know."""
    plain = _SPACES.sub(" ", text).strip().removesuffix(";").rstrip()
    found = _COURTESIES.get(plain.lower())
    if found is not None:
        return found
    named = _DEALLOCATE.fullmatch(plain)
    if named:
        name = named[1]
        forgets = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
        return Courtesy(build.command_complete("DEALLOCATE"), forgets=forgets)
    return _IGNORED if _names_the_application(text) else None


def _names_the_application(text: str) -> bool:
    try:
        command = parse(text)
    except BadCommand:
        return False
    return command.verb == "SET" and command.argument.lower() == "application_name"


def courtesies(text: str) -> list[Courtesy] | None:
    """The answers to statements in one message; None unless all are known."""
    parts = [part for part in text.split(";") if part.strip()]
    found = [answer for answer in map(courtesy, parts) if answer is not None]
    if len(found) != len(parts):
        return None
    return found or [NOTHING]
