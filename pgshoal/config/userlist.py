"""Reads an auth_file: user names and their secrets."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgshoal.config.model import Secret
from pgshoal.errors import ConfigError

NAME_BYTES_MAX = 127
SECRET_BYTES_MAX = 65530
_MD5 = re.compile(r"md5[0-9a-f]{32}")
_SCRAM = re.compile(r"SCRAM-SHA-256\$([0-9]{1,10}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_SKIP = re.compile(r"(?:\s++|;[^\n]*+)*+")
# Possessive, so that a missing quote in a long file fails at once.
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')


def classify(text: str) -> Secret:
    """Tell what a stored secret is; a malformed md5 or SCRAM text is an ordinary password."""
    if not text:
        return Secret("empty", "")
    if _MD5.fullmatch(text):
        return Secret("md5", text)
    return Secret("scram" if _is_scram(text) else "plain", text)


def _is_scram(text: str) -> bool:
    match = _SCRAM.fullmatch(text)
    if match is None or int(match[1]) < 1:
        return False
    try:
        salt, stored, server = (base64.b64decode(part, validate=True) for part in match.group(2, 3, 4))
    except binascii.Error:
        return False
    return bool(salt) and len(stored) == 32 and len(server) == 32


@dataclass(frozen=True, slots=True)
class UserList:
    """What an auth_file gave; after an error the users before it stand."""

    secrets: dict[str, Secret] = field(default_factory=dict)
    error: ConfigError | None = None


def read_userlist(path: str) -> UserList:
    """Read an auth_file; a missing or broken file is reported, never raised."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except OSError as error:
        reason = f"could not open auth_file: {error.strerror}"
        return UserList({}, ConfigError(path, 0, "", None, reason))
    return parse_userlist(text, path)


def parse_userlist(text: str, path: str) -> UserList:
    """Read the text of an auth_file; the last line of a user wins."""
    secrets: dict[str, Secret] = {}
    try:
        for name, secret in _entries(text, path):
            secrets[name] = classify(secret)
    except ConfigError as error:
        return UserList(secrets, error)
    return UserList(secrets)


def _entries(text: str, path: str) -> Iterator[tuple[str, str]]:
    position, line = 0, 1
    while True:
        start = _skip(text, position)
        line += text.count("\n", position, start)
        if start == len(text):
            return
        name, end = _field(text, start, path, line)
        opening = text.find('"', end)
        if opening < 0:
            raise _broken(path, line)
        secret, end = _field(text, opening, path, line)
        # The length of a name or secret is told, never its text.
        if len(name.encode(errors="surrogateescape")) > NAME_BYTES_MAX:
            raise ConfigError(path, line, "", None, f"a user name may have {NAME_BYTES_MAX} bytes")
        if len(secret.encode(errors="surrogateescape")) > SECRET_BYTES_MAX:
            raise ConfigError(path, line, "", None, f"a secret may have {SECRET_BYTES_MAX} bytes")
        yield name, secret
        newline = text.find("\n", end)
        position = len(text) if newline < 0 else newline
        line += text.count("\n", start, position)


def _skip(text: str, position: int) -> int:
    match = _SKIP.match(text, position)
    return position if match is None else match.end()


def _field(text: str, start: int, path: str, line: int) -> tuple[str, int]:
    match = _QUOTED.match(text, start)
    if match is None or "\0" in match[1]:
        raise _broken(path, line)
    return match[1].replace('""', '"'), match.end()


def _broken(path: str, line: int) -> ConfigError:
    return ConfigError(path, line, "", None, 'broken auth file: expected "user" "secret", or ; before a comment')
