"""The console's grammar: one command a message, PgBouncer's words and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: PgBouncer's buffers: a longer word is refused as "bad arguments" (bytes, the terminator not counted).
_COMMAND_BYTES = 15
_WORD_BYTES = 63
_VALUE_BYTES = 255

_SPACE = r"[ \t\r\n]*"
_WORD = r'[0-9A-Za-z_]+|"(?:[^"]|"")*"'
_COMMAND = re.compile(rf"{_SPACE}([0-9A-Za-z_]+)(?:[ \t\r\n]+({_WORD}))?{_SPACE};?{_SPACE}\Z")
_SET = re.compile(
    rf"{_SPACE}set[ \t\r\n]+({_WORD})(?:{_SPACE}={_SPACE}|[ \t\r\n]+to[ \t\r\n]+)"
    rf"('(?:[^']|'')*'|[0-9A-Za-z_]+){_SPACE};?{_SPACE}\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command: `verb` in upper case; `argument` is "" when absent; `value` only for SET."""

    verb: str
    argument: str = ""
    value: str | None = None


class BadCommand(ValueError):
    """The text is no command; `args[0]` is the key of the refusal."""


def parse(text: str) -> Command:
    """Read one command. Raises BadCommand("invalid_command") or BadCommand("bad_arguments")."""
    match = _SET.match(text)
    if match:
        return _fits(Command("SET", _unquote(match[1]), _literal(match[2])))
    match = _COMMAND.match(text)
    if not match:
        raise BadCommand("invalid_command")
    verb = match[1].upper()
    if verb == "SET":
        raise BadCommand("invalid_command")
    return _fits(Command("SHOW" if verb == "SELECT" else verb, _unquote(match[2] or "")))


def _unquote(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word


def _literal(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _fits(command: Command) -> Command:
    too_long = (
        len(command.verb.encode()) > _COMMAND_BYTES
        or len(command.argument.encode()) > _WORD_BYTES
        or len((command.value or "").encode()) > _VALUE_BYTES
    )
    if too_long:
        raise BadCommand("bad_arguments")
    return command
