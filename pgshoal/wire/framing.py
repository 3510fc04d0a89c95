"""Cuts a byte stream into protocol messages, and judges every length before anything is kept for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal, NamedTuple

from pgshoal.wire.catalogue import MessageSpec

STARTUP_LIMIT: Final = 10_000
"""PostgreSQL's own bound for a startup-phase packet, length field included."""
PACKET_LIMIT: Final = 2**31 - 1
TLS_HANDSHAKE: Final = 0x16
STARTUP: Final = 0
"""The `type` of a Message from the startup phase, where packets have no type byte."""

_STARTUP_HEADER_SIZE = 8
_LENGTH = Struct("!i")
_HEADER = Struct("!Bi")


class Message(NamedTuple):
    """One whole message; `payload` excludes the type byte and the length field."""

    type: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class BadHeader:
    """A length that cannot be right or exceeds the limit. The stream cannot be read further."""

    header: bytes

    @property
    def reason(self) -> str:
        """The text for the client and the log."""
        return f"bad packet header: '{self.header.hex()}'"


@dataclass(frozen=True, slots=True)
class DirectTls:
    """The first byte is a TLS handshake record: the client starts TLS without SSLRequest. All bytes stay pending."""


@dataclass(frozen=True, slots=True)
class SecondStartup:
    """A type byte of zero, which no message has: a startup packet where none may be. The stream is read no further.

    To honour it would let a client change who it is in the middle of its login.
    """

    reason: str = "client re-sent startup pkt"


Frame = Message | BadHeader | DirectTls | SecondStartup
Kind = Literal["startup", "message"]


class Framer:
    """Feed bytes, get frames.

    In kind "startup" it yields one packet and then holds what follows, because the caller must decide first: answer
    SSLRequest (and refuse bytes already `pending`), or `switch` to "message".
    After any frame but a Message it yields nothing more.
    """

    __slots__ = ("_broken", "_buffer", "_halted", "_kind", "limit", "specs")

    def __init__(
        self, kind: Kind = "message", limit: int | None = None, specs: Mapping[int, MessageSpec] | None = None
    ) -> None:
        """`limit` bounds a whole packet, header included; `specs` adds the catalogue's length bounds per type."""
        self._kind: Kind = kind
        self._buffer = bytearray()
        self._halted = False
        self._broken = False
        self.limit = limit if limit is not None else STARTUP_LIMIT if kind == "startup" else PACKET_LIMIT
        self.specs = specs

    @property
    def pending(self) -> bytes:
        """Bytes received but not yet part of a yielded message."""
        return bytes(self._buffer)

    @property
    def pending_size(self) -> int:
        """How many bytes are received but not yet part of a yielded message."""
        return len(self._buffer)

    def switch(self, kind: Kind, limit: int, specs: Mapping[int, MessageSpec] | None = None) -> list[Frame]:
        """Go on as another kind; returns frames that are already complete in the pending bytes."""
        self._kind, self.limit, self.specs, self._halted = kind, limit, specs, False
        return self.feed(b"")

    def take_pending(self) -> bytes:
        """Hand over the pending bytes and forget them, for a caller that passes the stream on."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; returns the frames they complete, in order."""
        if self._broken:
            return []
        if data:
            self._buffer += data
        if self._halted or not self._buffer:
            return []
        return self._startup() if self._kind == "startup" else self._messages()

    def _bad(self, size: int) -> list[Frame]:
        header = bytes(self._buffer[:size])
        return self._break(BadHeader(header))

    def _break(self, frame: Frame) -> list[Frame]:
        # Nothing more is kept: the peer may go on sending until the connection is closed.
        self._broken = True
        self._buffer.clear()
        return [frame]

    def _startup(self) -> list[Frame]:
        """At most one frame: a startup packet, or a typed message from a client that skipped the startup packet."""
        buffer = self._buffer
        first = buffer[0]
        if first == TLS_HANDSHAKE:
            self._halted = True
            return [DirectTls()]
        if first:
            return self._messages(one=True)
        # Judged with its code in hand, so that the header in an error is the same however the bytes arrive.
        if len(buffer) < _STARTUP_HEADER_SIZE:
            return []
        (length,) = _LENGTH.unpack_from(buffer)
        if length < _STARTUP_HEADER_SIZE or length > self.limit:
            return self._bad(_STARTUP_HEADER_SIZE)
        if len(buffer) < length:
            return []
        payload = bytes(buffer[4:length])
        del buffer[:length]
        self._halted = True
        return [Message(STARTUP, payload)]

    def _messages(self, one: bool = False) -> list[Frame]:
        frames: list[Frame] = []
        buffer = self._buffer
        end = len(buffer)
        limit = self.limit
        specs = self.specs
        at = 0
        unpack = _HEADER.unpack_from
        while end - at >= _HEADER.size:
            code, length = unpack(buffer, at)
            if code == STARTUP:
                break
            spec = specs.get(code) if specs is not None else None
            if length < 4 or length + 1 > limit or (spec is not None and not spec.length_ok(length)):
                del buffer[:at]
                return frames + self._bad(_HEADER.size)
            if end - at <= length:
                break
            frames.append(Message(code, bytes(buffer[at + 5 : at + 1 + length])))
            at += 1 + length
            if one:
                self._halted = True
                break
        if at < end and buffer[at] == STARTUP and not self._halted:
            return frames + self._break(SecondStartup())
        if at:
            del buffer[:at]
        return frames
