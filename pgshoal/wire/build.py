"""Builds every message we send, to clients and to servers, as bytes."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

_LENGTH = Struct("!I")
_HEADER = Struct("!cI")
_TWO_INTS = Struct("!II")
_COUNT = Struct("!H")
_COLUMN = Struct("!IHIhiH")
_pack_header = _HEADER.pack
_pack_length = _LENGTH.pack

AUTH_OK: Final = b"R\0\0\0\x08\0\0\0\0"
AUTH_CLEARTEXT: Final = b"R\0\0\0\x08\0\0\0\x03"
READY_IDLE: Final = b"Z\0\0\0\x05I"
SYNC: Final = b"S\0\0\0\x04"
FLUSH: Final = b"H\0\0\0\x04"
TERMINATE: Final = b"X\0\0\0\x04"
EMPTY_QUERY_RESPONSE: Final = b"I\0\0\0\x04"
PARSE_COMPLETE: Final = b"1\0\0\0\x04"
BIND_COMPLETE: Final = b"2\0\0\0\x04"
CLOSE_COMPLETE: Final = b"3\0\0\0\x04"
NO_DATA: Final = b"n\0\0\0\x04"
#: ParameterDescription of a statement without parameters
NO_PARAMETERS: Final = b"t\0\0\0\x06\0\0"
PORTAL_SUSPENDED: Final = b"s\0\0\0\x04"
COPY_DONE: Final = b"c\0\0\0\x04"
SSL_REQUEST: Final = _TWO_INTS.pack(8, 80877103)
GSSENC_REQUEST: Final = _TWO_INTS.pack(8, 80877104)
TEXT_OID: Final = 25


def encode(text: str) -> bytes:
    """The bytes a text came from: undecodable bytes pass through unchanged. NUL would end the field, so it is cut."""
    return text.replace("\0", "").encode("utf-8", "surrogateescape")


def message(code: bytes, payload: bytes) -> bytes:
    """Any message: type byte, length, payload."""
    return _pack_header(code, len(payload) + 4) + payload


# To clients


def _fields(code: bytes, severity: str, sqlstate: str, text: str, detail: str | None) -> bytes:
    payload = b"S%b\0C%b\0M%b\0" % (encode(severity), encode(sqlstate), encode(text))
    if detail is not None:
        payload += b"D%b\0" % encode(detail)
    return message(code, payload + b"\0")


def error_response(severity: str, sqlstate: str, text: str, detail: str | None = None) -> bytes:
    """ErrorResponse with the fields S, C, M and, if given, D."""
    return _fields(b"E", severity, sqlstate, text, detail)


def notice(text: str, detail: str | None = None, severity: str = "NOTICE", sqlstate: str = "00000") -> bytes:
    """NoticeResponse."""
    return _fields(b"N", severity, sqlstate, text, detail)


def auth_ok() -> bytes:
    """AuthenticationOk."""
    return AUTH_OK


def auth_cleartext() -> bytes:
    """AuthenticationCleartextPassword."""
    return AUTH_CLEARTEXT


def auth_md5(salt: bytes) -> bytes:
    """AuthenticationMD5Password with its 4-byte salt."""
    if len(salt) != 4:
        raise ValueError("an md5 salt has 4 bytes")
    return b"R\0\0\0\x0c\0\0\0\x05" + salt


def auth_sasl(mechanisms: Iterable[str]) -> bytes:
    """AuthenticationSASL with the mechanisms offered, in order of preference."""
    return message(b"R", b"\0\0\0\x0a" + b"".join(encode(name) + b"\0" for name in mechanisms) + b"\0")


def sasl_continue(data: bytes) -> bytes:
    """AuthenticationSASLContinue."""
    return message(b"R", b"\0\0\0\x0b" + data)


def sasl_final(data: bytes) -> bytes:
    """AuthenticationSASLFinal."""
    return message(b"R", b"\0\0\0\x0c" + data)


def parameter_status(name: str, value: str) -> bytes:
    """ParameterStatus."""
    payload = f"{name}\0{value}\0".encode("utf-8", "surrogateescape")
    return _pack_header(b"S", len(payload) + 4) + payload


def parameter_statuses(pairs: Iterable[tuple[str, str]]) -> bytes:
    """One ParameterStatus for each pair, in order."""
    return b"".join([parameter_status(name, value) for name, value in pairs])


def backend_key_data(key: bytes) -> bytes:
    """BackendKeyData; `key` is process id and secret together, 8 bytes in protocol 3.0."""
    return _pack_header(b"K", len(key) + 4) + key


def ready_for_query(status: bytes = b"I") -> bytes:
    """ReadyForQuery with status I, T or E."""
    return b"Z\0\0\0\x05" + status


def welcome(
    fixed: bytes, tracked: Iterable[tuple[str, str]], key: bytes, notices: bytes = b"", auth: bytes = AUTH_OK
) -> bytes:
    """All a client gets at the end of its login, in one piece.

    `fixed` is what `parameter_statuses` made once for the pool, `tracked` are this client's own values.
    """
    return b"".join((auth, fixed, parameter_statuses(tracked), backend_key_data(key), notices, READY_IDLE))


def negotiate_protocol_version(major: int, newest_minor: int, options: Sequence[str] = ()) -> bytes:
    """NegotiateProtocolVersion: our newest minor version and the names of the options we do not know."""
    names = b"".join([encode(name) + b"\0" for name in options])
    return message(b"v", _TWO_INTS.pack(major << 16 | newest_minor, len(options)) + names)


def row_description(columns: Sequence[tuple[str, int, int]], formats: Sequence[int] = ()) -> bytes:
    """RowDescription; each column is (name, type oid, type size). Without `formats` all are text."""
    parts = [_COUNT.pack(len(columns))]
    for (name, oid, size), code in zip(columns, formats or (0,) * len(columns), strict=True):
        parts += encode(name), b"\0", _COLUMN.pack(0, 0, oid, size, -1, code)
    return message(b"T", b"".join(parts))


def data_row(values: Sequence[str | bytes | None]) -> bytes:
    """DataRow; None is SQL NULL."""
    parts = [_COUNT.pack(len(values))]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
            continue
        cell = encode(value) if isinstance(value, str) else value
        parts += _pack_length(len(cell)), cell
    return message(b"D", b"".join(parts))


def command_complete(tag: str) -> bytes:
    """CommandComplete."""
    return message(b"C", encode(tag) + b"\0")


# To servers


def startup_message(parameters: Iterable[tuple[str, str]], minor: int = 0) -> bytes:
    """StartupMessage for protocol 3.`minor`."""
    fields = b"".join([encode(name) + b"\0" + encode(value) + b"\0" for name, value in parameters])
    return _TWO_INTS.pack(len(fields) + 9, 3 << 16 | minor) + fields + b"\0"


def ssl_request() -> bytes:
    """SSLRequest."""
    return SSL_REQUEST


def cancel_request(key: bytes) -> bytes:
    """CancelRequest; `key` is process id and secret as in BackendKeyData."""
    return _TWO_INTS.pack(len(key) + 8, 80877102) + key


def password_message(password: bytes) -> bytes:
    """PasswordMessage: a cleartext password or an md5 answer. Bytes, because neither need be UTF-8."""
    return message(b"p", password + b"\0")


def sasl_initial(mechanism: str, data: bytes) -> bytes:
    """SASLInitialResponse."""
    return message(b"p", encode(mechanism) + b"\0" + _pack_length(len(data)) + data)


def sasl_response(data: bytes) -> bytes:
    """SASLResponse."""
    return message(b"p", data)


def query(sql: str) -> bytes:
    """Query."""
    return message(b"Q", encode(sql) + b"\0")


def parse(name: bytes, sql: bytes, type_oids: Sequence[int] = ()) -> bytes:
    """Parse."""
    oids = b"".join([_pack_length(oid) for oid in type_oids])
    return message(b"P", b"%b\0%b\0" % (name, sql) + _COUNT.pack(len(type_oids)) + oids)


def bind(portal: bytes, statement: bytes, values: Sequence[bytes | None] = ()) -> bytes:
    """Bind with parameters and results in text format."""
    parts = [b"%b\0%b\0\0\0" % (portal, statement), _COUNT.pack(len(values))]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else _pack_length(len(value)) + value)
    parts.append(b"\0\0")
    return message(b"B", b"".join(parts))


def describe(kind: bytes, name: bytes) -> bytes:
    """Describe; kind is S for a statement, P for a portal."""
    return message(b"D", kind + name + b"\0")


def execute(portal: bytes, max_rows: int = 0) -> bytes:
    """Execute."""
    return message(b"E", portal + b"\0" + _pack_length(max_rows))


def close(kind: bytes, name: bytes) -> bytes:
    """Close; kind is S for a statement, P for a portal."""
    return message(b"C", kind + name + b"\0")


def sync() -> bytes:
    """Sync."""
    return SYNC


def flush() -> bytes:
    """Flush."""
    return FLUSH


def terminate() -> bytes:
    """Terminate."""
    return TERMINATE


def empty_query_response() -> bytes:
    """EmptyQueryResponse."""
    return EMPTY_QUERY_RESPONSE
