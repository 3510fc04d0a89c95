"""Reads one startup-phase packet into a fact, and builds the answer to a version or option we do not speak."""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from pgshoal.wire.build import negotiate_protocol_version
from pgshoal.wire.catalogue import CANCEL_SECRET_MAX

SSL_REQUEST_CODE: Final = 80877103
GSSENC_REQUEST_CODE: Final = 80877104
CANCEL_REQUEST_CODE: Final = 80877102
#: Protocol 3.2 (PostgreSQL 18) differs from 3.0 in the length of cancel keys alone; nobody ever spoke 3.1.
NEWEST_MINOR: Final = 2
BAD_LAYOUT: Final = "invalid startup packet layout: expected terminator as last byte"
OLD_PROTOCOL: Final = "old V2 protocol not supported"

_PROTOCOL_OPTION = b"_pq_."
_CODE = Struct("!I")
_LENGTH_CODE = Struct("!II")


@dataclass(frozen=True, slots=True)
class SSLRequest:
    """The client asks for TLS; the answer is one byte, S or N."""


@dataclass(frozen=True, slots=True)
class GSSENCRequest:
    """The client asks for GSSAPI encryption; the answer is always N."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The client wants a query cancelled; `key` is process id and secret as sent in BackendKeyData (8 bytes in 3.0)."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Startup:
    """A login; `parameters` in the order sent, without the `_pq_.` protocol options, whose names are `pq_options`."""

    major: int
    minor: int
    parameters: tuple[tuple[str, str], ...]
    pq_options: tuple[str, ...] = ()

    def get(self, name: str) -> str | None:
        """The value of a parameter; the last one counts if a client repeats it."""
        found = None
        for key, value in self.parameters:
            if key == name:
                found = value
        return found


@dataclass(frozen=True, slots=True)
class BadStartup:
    """A packet that ends the connection; `silent` if the client gets no error packet for it."""

    reason: str
    silent: bool = False


StartupFact = SSLRequest | GSSENCRequest | CancelRequest | Startup | BadStartup


def parse_startup(payload: bytes) -> StartupFact:
    """The fact in a startup-phase packet; `payload` is what follows its length field. Never raises."""
    if len(payload) < 4:
        return _unknown(payload)
    (code,) = _CODE.unpack_from(payload)
    major = code >> 16
    if major == 3:
        return _parse_parameters(code & 0xFFFF, payload)
    if code == SSL_REQUEST_CODE:
        return SSLRequest() if len(payload) == 4 else BadStartup("bad packet", silent=True)
    if code == GSSENC_REQUEST_CODE:
        return GSSENCRequest() if len(payload) == 4 else BadStartup("bad packet", silent=True)
    if code == CANCEL_REQUEST_CODE:
        key = payload[4:]
        if 8 <= len(key) <= 4 + CANCEL_SECRET_MAX:
            return CancelRequest(key)
        return BadStartup("bad cancel request", silent=True)
    if major == 2:
        return BadStartup(OLD_PROTOCOL)
    return _unknown(payload)


def _unknown(payload: bytes) -> BadStartup:
    header = _LENGTH_CODE.size
    packet = _CODE.pack(len(payload) + 4) + payload
    return BadStartup(f"bad packet header: '{packet[:header].hex()}'")


def _parse_parameters(minor: int, payload: bytes) -> Startup | BadStartup:
    # Names and values are NUL-terminated in turn and one more NUL ends the packet, so a good packet splits into
    # an even number of parts of which the last two are empty, and no earlier name is empty.
    parts = payload[4:].decode("utf-8", "surrogateescape").split("\0")
    if len(parts) & 1 or parts[-1] or parts[-2]:
        return BadStartup(BAD_LAYOUT)
    names = parts[:-2:2]
    if "" in names:
        return BadStartup(BAD_LAYOUT)
    pairs = tuple(zip(names, parts[1:-2:2], strict=True))
    if _PROTOCOL_OPTION not in payload:
        return Startup(3, minor, pairs)
    plain = tuple(pair for pair in pairs if not pair[0].startswith("_pq_."))
    return Startup(3, minor, plain, tuple(name for name in names if name.startswith("_pq_.")))


def negotiate(startup: Startup, newest_minor: int = NEWEST_MINOR) -> bytes | None:
    """The NegotiateProtocolVersion a login needs, or None. To be sent once, before authentication."""
    if startup.minor <= newest_minor and not startup.pq_options:
        return None
    # A client that asks for less must not be answered with more: libpq takes that for nonsense.
    minor = min(startup.minor, newest_minor)
    return negotiate_protocol_version(startup.major, minor, startup.pq_options)
