"""Every message of PostgreSQL protocol 3.0 and 3.2, as one table: type byte, name, phases and legal lengths.

Lengths are values of the length field, so they include its own four bytes but not the type byte.
Source: the PostgreSQL manual, "Message Formats"; the small limits are those PostgreSQL and libpq apply themselves.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Phase(StrEnum):
    """When in the life of a connection a message may be seen."""

    LOGIN = "login"
    QUERY = "query"
    COPY = "copy"


class MessageSpec(NamedTuple):
    """One row; `max_length` is None where the protocol sets no bound and only max_packet_size limits it."""

    code: int
    name: str
    phases: frozenset[Phase]
    min_length: int
    max_length: int | None

    @property
    def unbounded(self) -> bool:
        """True if only max_packet_size limits this message."""
        return self.max_length is None

    def length_ok(self, length: int) -> bool:
        """True if a length field of this value can be legal."""
        return length >= self.min_length and (self.max_length is None or length <= self.max_length)


_LOGIN = frozenset({Phase.LOGIN})
_QUERY = frozenset({Phase.QUERY})
_COPY = frozenset({Phase.COPY})
_LATER = _QUERY | _COPY
_ANY = _LOGIN | _QUERY | _COPY

# PostgreSQL refuses a longer Describe, Close, Execute or CopyFail before reading it.
SMALL_LIMIT: Final = 10_000
PASSWORD_LIMIT: Final = 65_535
_PASSWORD_MAX = 4 + PASSWORD_LIMIT + 1
# libpq refuses a longer authentication request; it also bounds hostile SCRAM nonces.
AUTH_REQUEST_MAX: Final = 2_000
CANCEL_SECRET_MAX: Final = 256
_SHORTS = 2 * 65_535


def _row(code: str, name: str, phases: frozenset[Phase], low: int, high: int | None) -> MessageSpec:
    return MessageSpec(ord(code), name, phases, low, high)


FRONTEND: Final[tuple[MessageSpec, ...]] = (
    _row("B", "Bind", _QUERY, 12, None),
    _row("C", "Close", _QUERY, 6, SMALL_LIMIT),
    _row("d", "CopyData", _LATER, 4, None),
    _row("c", "CopyDone", _LATER, 4, 4),
    _row("f", "CopyFail", _LATER, 5, SMALL_LIMIT),
    _row("D", "Describe", _QUERY, 6, SMALL_LIMIT),
    _row("E", "Execute", _QUERY, 9, SMALL_LIMIT),
    _row("H", "Flush", _LATER, 4, 4),
    _row("F", "FunctionCall", _QUERY, 14, None),
    _row("P", "Parse", _QUERY, 8, None),
    # Also SASLInitialResponse, SASLResponse and GSSResponse: the state tells them apart.
    _row("p", "PasswordMessage", _LOGIN, 4, _PASSWORD_MAX),
    _row("Q", "Query", _QUERY, 5, None),
    _row("S", "Sync", _LATER, 4, 4),
    _row("X", "Terminate", _ANY, 4, 4),
)

BACKEND: Final[tuple[MessageSpec, ...]] = (
    _row("R", "Authentication", _LOGIN, 8, AUTH_REQUEST_MAX),
    _row("K", "BackendKeyData", _LOGIN, 9, 8 + CANCEL_SECRET_MAX),
    _row("2", "BindComplete", _QUERY, 4, 4),
    _row("3", "CloseComplete", _QUERY, 4, 4),
    _row("C", "CommandComplete", _LATER, 5, None),
    _row("d", "CopyData", _COPY, 4, None),
    _row("c", "CopyDone", _COPY, 4, 4),
    _row("G", "CopyInResponse", _QUERY, 7, 7 + _SHORTS),
    _row("H", "CopyOutResponse", _QUERY, 7, 7 + _SHORTS),
    _row("W", "CopyBothResponse", _QUERY, 7, 7 + _SHORTS),
    _row("D", "DataRow", _QUERY, 6, None),
    _row("I", "EmptyQueryResponse", _QUERY, 4, 4),
    _row("E", "ErrorResponse", _ANY, 5, None),
    _row("V", "FunctionCallResponse", _QUERY, 8, None),
    _row("v", "NegotiateProtocolVersion", _LOGIN, 12, SMALL_LIMIT * 2),
    _row("n", "NoData", _QUERY, 4, 4),
    _row("N", "NoticeResponse", _ANY, 5, None),
    _row("A", "NotificationResponse", _LATER, 10, None),
    _row("t", "ParameterDescription", _QUERY, 6, 6 + 4 * 65_535),
    _row("S", "ParameterStatus", _ANY, 6, None),
    _row("1", "ParseComplete", _QUERY, 4, 4),
    _row("s", "PortalSuspended", _QUERY, 4, 4),
    _row("Z", "ReadyForQuery", _ANY, 5, 5),
    _row("T", "RowDescription", _QUERY, 6, None),
)

FRONTEND_BY_CODE: Final = MappingProxyType({spec.code: spec for spec in FRONTEND})
BACKEND_BY_CODE: Final = MappingProxyType({spec.code: spec for spec in BACKEND})


def frontend(code: int) -> MessageSpec | None:
    """The message a client means by this type byte, or None."""
    return FRONTEND_BY_CODE.get(code)


def backend(code: int) -> MessageSpec | None:
    """The message a server means by this type byte, or None."""
    return BACKEND_BY_CODE.get(code)
