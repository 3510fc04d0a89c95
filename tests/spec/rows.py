"""The rows: settings at their scopes, commands, columns, texts to clients and lines of the log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pgshoal.config.settings import SETTINGS
from pgshoal.errors import REFUSALS
from tests.spec.witnesses import Witness

Kind = Literal["setting", "command", "column", "refusal", "log"]
_HERE = Path(__file__).parent
_FACT = re.compile(r"\{[a-z_]+\}")
#: Where settings are shown, compared or handed on, but do nothing.
_ONLY_HANDED_ON = ("tests/config/", "tests/console/", "tests/bench/", "tests/demo/")
_SHARED = {name for name, count in Counter(row.name for row in SETTINGS).items() if count > 1}


@dataclass(frozen=True, slots=True)
class Row:
    """One promise, and what a test that shows it looks like."""

    kind: Kind
    name: str
    shown_by: Callable[[Witness], bool]


def facts(file: str) -> list[str]:
    """The lines of one of our lists; # begins a comment line."""
    lines = (_HERE / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def excused() -> dict[str, str]:
    """Rows that nobody can cause from outside: name -> why."""
    return {name.strip(): why.strip() for line in facts("excused.txt") for name, _, why in [line.partition(" :: ")]}


def _text(pattern: str) -> Callable[[Witness], bool]:
    parts = [re.escape(part) for part in _FACT.split(pattern)]
    # A fact may stand in the test as a value, as a hole of an f-string, or the test may look at the words around it.
    longest = max(_FACT.split(pattern), key=len).strip()
    expression = re.compile(".{0,80}?".join(parts))
    whole = re.compile(rf"(?<![\w-]){re.escape(longest)}(?![\w-])")

    def shown(witness: Witness) -> bool:
        return any(
            expression.search(text) or (len(longest) > 11 and whole.search(text)) for text in witness.words.texts
        )

    return shown


def _setting(section: str, names: tuple[str, ...]) -> Callable[[Witness], bool]:
    def shown(witness: Witness) -> bool:
        given = witness.words.given
        if witness.place.startswith(_ONLY_HANDED_ON):
            return False
        if any((section, name) in given for name in names):
            return True
        if names[0] in _SHARED:
            return False
        return any(known in names for _, known in given) or any(name in witness.words.texts for name in names)

    return shown


def _column(table: str, column: str) -> Callable[[Witness], bool]:
    word = re.compile(rf"\b(?:show|select) {table}\b|^{table}$", re.IGNORECASE)

    def shown(witness: Witness) -> bool:
        named = column in witness.words.texts or any(known == column for _, known in witness.words.given)
        return named and any(word.search(text) for text in witness.words.texts)

    return shown


def _command(command: str) -> Callable[[Witness], bool]:
    words = re.compile(rf"^{re.escape(command)}(?![\w])", re.IGNORECASE)
    return lambda witness: any(words.search(text) for text in witness.words.texts)


def _refusal(key: str, text: str) -> Callable[[Witness], bool]:
    told = _text(text)
    named = key if "_" in key and key not in {row.name for row in SETTINGS} else ""
    return lambda witness: told(witness) or (bool(named) and named in witness.words.texts)


def rows() -> Iterator[Row]:
    """All of them."""
    for setting in SETTINGS:
        name = f"[{setting.section}] {setting.name}"
        yield Row("setting", name, _setting(setting.section, (setting.name, *setting.aliases)))
    for command in facts("commands.txt"):
        yield Row("command", command, _command(command))
    for line in facts("columns.txt"):
        table, _, columns = line.partition(": ")
        for column in columns.split():
            yield Row("column", f"SHOW {table}: {column}", _column(table, column))
    for key, refusal in REFUSALS.items():
        if _FACT.sub("", refusal.text).strip():
            yield Row("refusal", f"{key}: {refusal.text}", _refusal(key, refusal.text))
    for line in facts("log.txt"):
        yield Row("log", line, _text(line))
