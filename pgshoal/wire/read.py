"""Reads message payloads into facts; malformed input of any kind raises WireError and nothing else."""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from pgshoal.wire.catalogue import CANCEL_SECRET_MAX
from pgshoal.wire.errors import WireError

_INT = Struct("!i")
_OID = Struct("!I")
_COUNT = Struct("!H")
_COLUMN = Struct("!IHIhiH")

AUTH_OK, AUTH_CLEARTEXT, AUTH_MD5 = 0, 3, 5
AUTH_SASL, AUTH_SASL_CONTINUE, AUTH_SASL_FINAL = 10, 11, 12


def decode(raw: bytes) -> str:
    """Text of any bytes; those that are not UTF-8 survive a later `build.encode` unchanged."""
    return raw.decode("utf-8", "surrogateescape")


def _cstring(payload: bytes, at: int, what: str) -> tuple[bytes, int]:
    end = payload.find(b"\0", at)
    if end < 0:
        raise WireError(f"broken {what} packet")
    return payload[at:end], end + 1


def _number(form: Struct, payload: bytes, at: int, what: str) -> int:
    if len(payload) - at < form.size:
        raise WireError(f"broken {what} packet")
    value: int = form.unpack_from(payload, at)[0]
    return value


def _whole(payload: bytes, at: int, what: str) -> None:
    if at != len(payload):
        raise WireError(f"broken {what} packet")


# From servers


class ErrorFields(dict[str, str]):
    """Fields of an ErrorResponse or NoticeResponse by their letter; hostile servers leave out any of them."""

    @property
    def severity(self) -> str:
        """The unlocalised severity where given, else the plain one, else ERROR."""
        return self.get("V") or self.get("S") or "ERROR"

    @property
    def sqlstate(self) -> str:
        """Five characters; XX000 if the server sent none."""
        code = self.get("C", "")
        return code if len(code) == 5 and code.isascii() and code.isalnum() else "XX000"

    @property
    def text(self) -> str:
        """The primary message."""
        return self.get("M") or "no message"


def error_fields(payload: bytes) -> ErrorFields:
    """ErrorResponse or NoticeResponse."""
    fields = ErrorFields()
    at = 0
    while True:
        if at >= len(payload):
            raise WireError("broken ErrorResponse packet")
        if payload[at] == 0:
            _whole(payload, at + 1, "ErrorResponse")
            return fields
        value, end = _cstring(payload, at + 1, "ErrorResponse")
        fields[chr(payload[at])] = decode(value)
        at = end


def parameter_status(payload: bytes) -> tuple[str, str]:
    """ParameterStatus as (name, value)."""
    name, at = _cstring(payload, 0, "ParameterStatus")
    value, at = _cstring(payload, at, "ParameterStatus")
    _whole(payload, at, "ParameterStatus")
    return decode(name), decode(value)


def backend_key_data(payload: bytes) -> bytes:
    """The cancel key, process id and secret together: 8 bytes in 3.0, up to 260 in 3.2."""
    if not 8 <= len(payload) <= 4 + CANCEL_SECRET_MAX:
        raise WireError("bad cancel key")
    return payload


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """An Authentication message: `code` says which; `mechanisms` for SASL, `content` is salt or SASL bytes."""

    code: int
    content: bytes = b""
    mechanisms: tuple[str, ...] = ()


def auth_request(payload: bytes) -> AuthRequest:
    """Any Authentication message; codes we do not know are facts, not errors."""
    code = _number(_INT, payload, 0, "Authentication")
    content = payload[4:]
    if code in (AUTH_OK, AUTH_CLEARTEXT):
        _whole(payload, 4, "Authentication")
    elif code == AUTH_MD5:
        _whole(payload, 8, "Authentication")
    elif code == AUTH_SASL:
        # A list of names, each NUL-terminated, and one more NUL: what is between the last two is empty.
        names = decode(content).split("\0")
        if len(names) < 3 or names[-1] or names[-2] or "" in names[:-2]:
            raise WireError("broken Authentication packet")
        return AuthRequest(code, b"", tuple(names[:-2]))
    return AuthRequest(code, content)


class Column(NamedTuple):
    """One column of a RowDescription."""

    name: str
    type_oid: int
    type_size: int
    format: int


def row_description(payload: bytes) -> list[Column]:
    """RowDescription."""
    count = _number(_COUNT, payload, 0, "RowDescription")
    at = 2
    columns: list[Column] = []
    for _ in range(count):
        name, at = _cstring(payload, at, "RowDescription")
        if len(payload) - at < _COLUMN.size:
            raise WireError("broken RowDescription packet")
        _table, _attribute, oid, size, _modifier, code = _COLUMN.unpack_from(payload, at)
        at += _COLUMN.size
        columns.append(Column(decode(name), oid, size, code))
    _whole(payload, at, "RowDescription")
    return columns


def data_row(payload: bytes) -> list[bytes | None]:
    """DataRow; SQL NULL is None."""
    count = _number(_COUNT, payload, 0, "DataRow")
    at = 2
    values: list[bytes | None] = []
    for _ in range(count):
        size = _number(_INT, payload, at, "DataRow")
        at += 4
        if size == -1:
            values.append(None)
            continue
        if size < 0 or size > len(payload) - at:
            raise WireError("broken DataRow packet")
        values.append(payload[at : at + size])
        at += size
    _whole(payload, at, "DataRow")
    return values


def command_complete(payload: bytes) -> str:
    """The command tag."""
    tag, at = _cstring(payload, 0, "CommandComplete")
    _whole(payload, at, "CommandComplete")
    return decode(tag)


def ready_for_query(payload: bytes) -> str:
    """Transaction status: I, T or E."""
    if payload not in (b"I", b"T", b"E"):
        raise WireError("broken ReadyForQuery packet")
    return payload.decode("ascii")


def negotiate_protocol_version(payload: bytes) -> tuple[int, tuple[str, ...]]:
    """(newest minor version, names of options the server does not know)."""
    newest = _number(_OID, payload, 0, "NegotiateProtocolVersion")
    count = _number(_INT, payload, 4, "NegotiateProtocolVersion")
    if count < 0 or count > len(payload):
        raise WireError("broken NegotiateProtocolVersion packet")
    at = 8
    names: list[str] = []
    for _ in range(count):
        name, at = _cstring(payload, at, "NegotiateProtocolVersion")
        names.append(decode(name))
    _whole(payload, at, "NegotiateProtocolVersion")
    return newest & 0xFFFF, tuple(names)


# From clients. Statement and portal names stay bytes: nobody but their owner reads them.


class Parse(NamedTuple):
    """Parse; `tail` is the parameter count and type OIDs as sent, so query and tail identify the statement."""

    name: bytes
    query: bytes
    tail: bytes


class Bind(NamedTuple):
    """Bind; `tail` is all that follows the two names, as sent."""

    portal: bytes
    statement: bytes
    tail: bytes


class Named(NamedTuple):
    """The target of Describe or Close: kind S (statement) or P (portal)."""

    kind: bytes
    name: bytes


def parse(payload: bytes) -> Parse:
    """Parse."""
    name, at = _cstring(payload, 0, "Parse")
    text, at = _cstring(payload, at, "Parse")
    count = _number(_COUNT, payload, at, "Parse")
    _whole(payload, at + 2 + 4 * count, "Parse")
    return Parse(name, text, payload[at:])


def bind(payload: bytes) -> Bind:
    """Bind, names only; the server judges the parameters."""
    portal, at = _cstring(payload, 0, "Bind")
    statement, at = _cstring(payload, at, "Bind")
    if len(payload) - at < 6:
        raise WireError("broken Bind packet")
    return Bind(portal, statement, payload[at:])


def bind_formats(tail: bytes) -> tuple[int, tuple[int, ...]]:
    """(how many parameters, result formats) of the `tail` of a Bind."""
    at = 2 + 2 * _number(_COUNT, tail, 0, "Bind")
    parameters = _number(_COUNT, tail, at, "Bind")
    at += 2
    for _ in range(parameters):
        size = _number(_INT, tail, at, "Bind")
        if size < -1:
            raise WireError("broken Bind packet")
        at += 4 + max(size, 0)
    count = _number(_COUNT, tail, at, "Bind")
    at += 2
    _whole(tail, at + 2 * count, "Bind")
    return parameters, tuple(_number(_COUNT, tail, at + 2 * index, "Bind") for index in range(count))


def _named(payload: bytes, what: str) -> Named:
    kind = payload[:1]
    if kind not in (b"S", b"P"):
        raise WireError(f"broken {what} packet")
    name, at = _cstring(payload, 1, what)
    _whole(payload, at, what)
    return Named(kind, name)


def describe(payload: bytes) -> Named:
    """Describe."""
    return _named(payload, "Describe")


def close(payload: bytes) -> Named:
    """Close."""
    return _named(payload, "Close")


def query(payload: bytes) -> str:
    """The SQL text of a Query."""
    text, at = _cstring(payload, 0, "Query")
    _whole(payload, at, "Query")
    return decode(text)


def execute(payload: bytes) -> tuple[bytes, int]:
    """(portal, row limit) of an Execute."""
    portal, at = _cstring(payload, 0, "Execute")
    limit = _number(_INT, payload, at, "Execute")
    _whole(payload, at + 4, "Execute")
    return portal, limit


def password_message(payload: bytes) -> bytes:
    """The cleartext password or md5 answer, without its terminator."""
    password, at = _cstring(payload, 0, "PasswordMessage")
    _whole(payload, at, "PasswordMessage")
    return password


def sasl_initial(payload: bytes) -> tuple[str, bytes | None]:
    """(mechanism, first message or None) of a SASLInitialResponse."""
    # What nearly every client sends.
    if payload.startswith(b"SCRAM-SHA-256\0") and int.from_bytes(payload[14:18]) == len(payload) - 18:
        return "SCRAM-SHA-256", payload[18:]
    mechanism, at = _cstring(payload, 0, "SASLInitialResponse")
    size = _number(_INT, payload, at, "SASLInitialResponse")
    at += 4
    if size == -1:
        _whole(payload, at, "SASLInitialResponse")
        return decode(mechanism), None
    if size < 0:
        raise WireError("broken SASLInitialResponse packet")
    _whole(payload, at + size, "SASLInitialResponse")
    return decode(mechanism), payload[at:]
