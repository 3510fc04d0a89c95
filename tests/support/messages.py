"""PostgreSQL messages written by hand for tests, independent of the product's own codec."""

from __future__ import annotations

import struct

PROTOCOL_3_0 = 196608
PROTOCOL_3_2 = 196610
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)
TERMINATE = b"X\0\0\0\4"
SYNC = b"S\0\0\0\4"
FLUSH = b"H\0\0\0\4"
COPY_DONE = b"c\0\0\0\4"


def message(kind: bytes, payload: bytes = b"") -> bytes:
    """One typed message with its length."""
    return kind + struct.pack("!i", len(payload) + 4) + payload


def text(*values: str | bytes) -> bytes:
    """Zero-terminated strings, one after another."""
    return b"".join((v.encode() if isinstance(v, str) else v) + b"\0" for v in values)


def startup(parameters: dict[str, str], protocol: int = PROTOCOL_3_0) -> bytes:
    """A startup packet."""
    body = struct.pack("!i", protocol) + b"".join(text(k, v) for k, v in parameters.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def cancel_request(key: bytes) -> bytes:
    """A CancelRequest from the payload of BackendKeyData."""
    return struct.pack("!ii", 8 + len(key), 80877102) + key


def query(sql: str) -> bytes:
    """A simple Query."""
    return message(b"Q", text(sql))


def parse(name: str, sql: str, types: tuple[int, ...] = ()) -> bytes:
    """A Parse."""
    return message(b"P", text(name, sql) + struct.pack(f"!h{len(types)}i", len(types), *types))


def bind(statement: str, portal: str = "", values: tuple[bytes | None, ...] = ()) -> bytes:
    """A Bind with parameters and results in text form."""
    body = text(portal, statement) + struct.pack("!hh", 0, len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return message(b"B", body + struct.pack("!h", 0))


def describe(kind: str, name: str) -> bytes:
    """A Describe of a statement ("S") or a portal ("P")."""
    return message(b"D", kind.encode() + text(name))


def execute(portal: str = "", rows: int = 0) -> bytes:
    """An Execute; rows=0 means all."""
    return message(b"E", text(portal) + struct.pack("!i", rows))


def close(kind: str, name: str) -> bytes:
    """A Close of a statement ("S") or a portal ("P")."""
    return message(b"C", kind.encode() + text(name))


def ready(status: str = "I") -> bytes:
    """A ReadyForQuery."""
    return message(b"Z", status.encode())


def auth(code: int, payload: bytes = b"") -> bytes:
    """An authentication message."""
    return message(b"R", struct.pack("!i", code) + payload)


def parameter_status(name: str, value: str) -> bytes:
    """A ParameterStatus."""
    return message(b"S", text(name, value))


def row_description(*names: str) -> bytes:
    """A RowDescription of text columns."""
    columns = b"".join(text(n) + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0) for n in names)
    return message(b"T", struct.pack("!h", len(names)) + columns)


def data_row(*values: str | None) -> bytes:
    """A DataRow in text form."""
    body = struct.pack("!h", len(values))
    for value in values:
        raw = None if value is None else value.encode()
        body += struct.pack("!i", -1) if raw is None else struct.pack("!i", len(raw)) + raw
    return message(b"D", body)


def command_complete(tag: str) -> bytes:
    """A CommandComplete."""
    return message(b"C", text(tag))


def error(sqlstate: str, words: str, severity: str = "ERROR") -> bytes:
    """An ErrorResponse."""
    return message(
        b"E",
        text(b"S" + severity.encode(), b"V" + severity.encode(), b"C" + sqlstate.encode(), b"M" + words.encode())
        + b"\0",
    )


def error_fields(payload: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse by their letter."""
    parts = [p for p in payload.split(b"\0") if p]
    return {chr(p[0]): p[1:].decode(errors="replace") for p in parts}
