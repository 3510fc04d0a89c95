"""Message types, bounds and pieces of messages that the relay knows by heart."""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER: Final = Struct(">BI")
LENGTH: Final = Struct(">I")

MAX_LENGTH: Final = 2**31 - 1
STARTUP_MIN: Final = 8
STARTUP_MAX: Final = 10_000
COLLECT_MAX: Final = 64 * 1024
SMALL_REQUEST: Final = 1024
"""Q and E up to this length are collected whole, because their text or portal decides something."""
PAUSE_ABOVE: Final = 128 * 1024
RESUME_BELOW: Final = 32 * 1024
DIALOGUE_PENDING_MAX: Final = 64 * 1024
SERVER_DIALOGUE_LIMIT: Final = 1024 * 1024
CLOSING_LIMIT_US: Final = 10_000_000

SSL_REQUEST: Final = b"\0\0\0\x08\x04\xd2\x16\x2f"
GSSENC_REQUEST: Final = b"\0\0\0\x08\x04\xd2\x16\x30"
READY_IDLE: Final = b"Z\0\0\0\x05I"
CLOSE_COMPLETE: Final = b"3\0\0\0\x04"
PARSE_COMPLETE: Final = b"1\0\0\0\x04"
VOID_PARSE: Final = b"P\0\0\0\x16PGBOUNCER_VOID\0\0\0\0"
VOID_TEXT: Final = b'DEALLOCATE "PGBOUNCER_VOID"'
CLOSE_UNNAMED: Final = b"C\0\0\0\x06S\0"
SYNC_MESSAGE: Final = b"S\0\0\0\x04"

CLIENT_TYPES: Final = frozenset(b"QPBEDCSHFdcfX")
CLIENT_FIXED: Final = frozenset(b"SHXc")
SERVER_TYPES: Final = frozenset(b"123nsIcZSCDdTtGHWVNAE")
SERVER_FIXED: Final = frozenset(b"123nsIc")
SERVER_COLLECTED: Final = frozenset(b"CSZ123nsI")
SERVER_SMALL: Final = frozenset(b"SC")

ERR_UNKNOWN: Final = "unknown pkt from server"
ERR_HEADER: Final = "bad pkt header"
ERR_DIRTY: Final = "idle server got dirty"
ERR_CRASHED: Final = "server conn crashed?"


def error_fields(message: bytes) -> dict[int, bytes]:
    """The fields of a whole ErrorResponse; fields after a broken one are left out."""
    fields: dict[int, bytes] = {}
    at = 5
    while at < len(message) and message[at]:
        end = message.find(b"\0", at + 1)
        if end < 0:
            break
        fields.setdefault(message[at], message[at + 1 : end])
        at = end + 1
    return fields


def named(code: bytes, name: bytes, rest: bytes) -> bytes:
    """A message whose payload is a name and a tail."""
    return code + LENGTH.pack(len(name) + len(rest) + 5) + name + b"\0" + rest


def bind_names(data: bytes, at: int, end: int) -> tuple[bytes, bytes, int] | None:
    """Portal, statement and how many bytes of the message they end at; None if they are not all there."""
    portal_end = data.find(b"\0", at + 5, end)
    if portal_end < 0:
        return None
    name_end = data.find(b"\0", portal_end + 1, end)
    if name_end < 0:
        return None
    return data[at + 5 : portal_end], data[portal_end + 1 : name_end], name_end + 1 - at
