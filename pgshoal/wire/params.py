"""What is known about session parameters: which cannot be SET, how their names are spelled, how values are quoted."""

from typing import Final

from pgshoal.wire.errors import WireError

REPORTED_ONLY: Final = frozenset(
    {
        "in_hot_standby",
        "integer_datetimes",
        "is_superuser",
        "server_encoding",
        "server_version",
        "server_version_num",
        "session_authorization",
    }
)
"""ParameterStatus names, in lower case, that a SET cannot or must not change."""

_CANONICAL: Final = {
    name.lower(): name
    for name in (
        "DateStyle", "IntervalStyle", "TimeZone", "application_name", "client_encoding", "search_path",
        "default_transaction_read_only", "scram_iterations", "standard_conforming_strings",
    )
}  # fmt: skip

TRACKED_FIRST: Final = ("DateStyle", "client_encoding", "TimeZone", "standard_conforming_strings", "application_name")
"""Parameters every pooler session tracks, in the order they are told to clients."""


def settable(name: str) -> bool:
    """True unless the parameter is one a server only reports."""
    return name.lower() not in REPORTED_ONLY


def canonical_name(name: str) -> str:
    """The spelling PostgreSQL reports for a name in any case; unknown names in lower case."""
    lower = name.lower()
    return _CANONICAL.get(lower, lower)


def quote_value(value: str) -> str:
    """A string literal that is safe whatever standard_conforming_strings says.

    Raises WireError for a backslash beside non-ASCII text: in client encodings such as SJIS a backslash byte can be
    half of a character, and escaping it would end the literal early.
    """
    quoted = value.replace("\0", "").replace("'", "''")
    if "\\" not in quoted:
        return f"'{quoted}'"
    if not quoted.isascii():
        raise WireError("parameter value mixes backslash and non-ASCII text")
    return "E'" + quoted.replace("\\", "\\\\") + "'"


def quote_name(name: str) -> str:
    """A parameter name as it may stand in SET; raises WireError unless it is words joined by dots."""
    if not name.isascii() or not all(part.isidentifier() for part in name.split(".")):
        raise WireError("not a parameter name")
    return name


# A list of names: quoted as one string, `a, b` would be a single schema called "a, b".
_NAME_LISTS: Final = frozenset({"search_path", "temp_tablespaces"})


def set_statement(name: str, value: str) -> str:
    """One SET, without a semicolon, that gives a parameter the value a server reported or a client asked for."""
    quoted = _quote_names(value) if name.lower() in _NAME_LISTS else quote_value(value)
    return f"SET {quote_name(name)}={quoted}"


def _quote_names(value: str) -> str:
    return ",".join(quote_value(item) for item in split_names(value)) or "''"


def split_names(value: str) -> list[str]:
    """The names in a list such as `"$user", public`, unquoted, folded to lower case where they had no quotes."""
    names: list[str] = []
    at = 0
    while at < len(value):
        if value[at] in " \t\n\r\f,":
            at += 1
        elif value[at] == '"':
            name, at = _quoted_name(value, at + 1)
            names.append(name)
        else:
            end = value.find(",", at)
            end = len(value) if end < 0 else end
            bare = value[at:end].strip()
            names.append(bare.lower() if bare.isascii() else bare)
            at = end
    return names


def _quoted_name(value: str, at: int) -> tuple[str, int]:
    """The name after an opening quote, and the position after its closing one; a missing quote ends with the text."""
    parts: list[str] = []
    while True:
        end = value.find('"', at)
        if end < 0:
            return "".join(parts) + value[at:], len(value)
        parts.append(value[at:end])
        if value[end + 1 : end + 2] != '"':
            return "".join(parts), end + 1
        parts.append('"')
        at = end + 2
