"""Reads an auth_ident_file: maps from names of the system or of certificates to database users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pgshoal.config.fields import BadLine, Word, lists
from pgshoal.errors import ConfigError

_FIELDS: Final = "map-name system-name database-user, each of them perhaps in double quotes"


@dataclass(frozen=True, slots=True)
class IdentLine:
    """One line of a map. `pattern` stands for a system name that began with a slash; `user` None is `all`."""

    system: str
    user: str | None
    pattern: re.Pattern[str] | None = None


Maps = Mapping[str, tuple[IdentLine, ...]]


@dataclass(frozen=True, slots=True)
class IdentFile:
    """What a file gave, and what was wrong with lines that were passed over."""

    maps: dict[str, tuple[IdentLine, ...]] = field(default_factory=dict)
    warnings: tuple[ConfigError, ...] = ()


def read_ident(path: str) -> IdentFile:
    """Read a file; one that cannot be read has no maps, so that rules which need them fall away."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "a path cannot hold a zero byte"
        reason = f"could not open ident config file {path}: {why}"
        return IdentFile({}, (ConfigError(path, 0, "", None, reason),))
    return parse_ident(text, path)


def parse_ident(text: str, path: str) -> IdentFile:
    """Read the text of a file; a line that cannot be used is passed over with a warning, as PgBouncer does."""
    maps: dict[str, list[IdentLine]] = {}
    warnings: list[ConfigError] = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            found = [single for field, _ in lists(line) for single in [_single(field)]]
            if found:
                name, read = _line(found)
                maps.setdefault(name, []).append(read)
        except BadLine as bad:
            reason = f"could not parse ident config line {number}: {bad.allowed}"
            warnings.append(ConfigError(path, number, bad.field, bad.value, reason))
    return IdentFile({name: tuple(found) for name, found in maps.items()}, tuple(warnings))


def _single(field: list[Word]) -> Word:
    if len(field) != 1:
        raise BadLine("list", None, f"no commas; {_FIELDS}")
    return field[0]


def _line(found: list[Word]) -> tuple[str, IdentLine]:
    if len(found) != 3:
        raise BadLine("fields", str(len(found)), _FIELDS)
    name, system, user = found
    if not user.quoted and user.text[:1] in ("+", "/", "@"):
        raise BadLine("database-user", user.text, "all, or one name; roles, patterns and files are not supported")
    mapped = None if user.is_keyword("all") else user.text
    if not system.text.startswith("/"):
        return name.text, IdentLine(system.text, mapped)
    try:
        pattern = re.compile(system.text[1:])
    except (re.error, RecursionError, OverflowError):
        raise BadLine("system-name", system.text, "a regular expression after the slash") from None
    if mapped is not None and "\\1" in mapped and pattern.groups == 0:
        raise BadLine("database-user", mapped, "\\1 needs a regular expression with a group in parentheses")
    return name.text, IdentLine(system.text, mapped, pattern)
