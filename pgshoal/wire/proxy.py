"""The PROXY protocol's header, version 2: what a balancer says about the client whose connection it passes on."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from pgshoal.wire.errors import WireError

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
#: Signature, version and command, family and protocol, length of the rest.
FIXED: Final = 16
#: Two socket paths are the longest addresses; what stands behind addresses is passed over, and bounded.
REST_MAX: Final = 216 + 512

_VERSION: Final = 0x20
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_UNSPEC: Final = 0x00
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNIX: Final = 0x31
_ADDRESSES: Final = {_UNSPEC: 0, _TCP4: 12, _TCP6: 36, _UNIX: 216}
_TLV: Final = struct.Struct("!BH")


@dataclass(frozen=True, slots=True)
class Passed:
    """Between whom the connection was made that the balancer passes on."""

    peer_host: str
    peer_port: int
    local_host: str
    local_port: int


class ProxyHeader:
    """Reads one header that may come in pieces, and never a byte behind it."""

    __slots__ = ("_data", "_size", "done", "passed")

    def __init__(self) -> None:
        self._data = b""
        self._size = FIXED
        self.done = False
        #: None once `done`: the connection is the balancer's own, or from a socket without an address
        self.passed: Passed | None = None

    @property
    def missing(self) -> int:
        """How many bytes may be read now; more could belong to the client."""
        return self._size - len(self._data)

    def feed(self, data: bytes) -> None:
        """At most `missing` bytes. WireError as soon as they cannot become a header."""
        if len(data) > self.missing:
            raise ValueError("more than was missing")
        self._data += data
        if self._size == FIXED:
            self._fixed()
        if not self.missing:
            self._rest()

    def _fixed(self) -> None:
        data = self._data
        if not SIGNATURE.startswith(data[:12]):
            raise WireError("PROXY header missing")
        if len(data) > 12 and data[12] not in (_LOCAL, _PROXY):
            raise WireError("PROXY header: unknown version or command")
        if len(data) > 13 and data[12] == _PROXY and data[13] not in _ADDRESSES:
            raise WireError("PROXY header: unknown address family")
        if len(data) < FIXED:
            return
        size = int.from_bytes(data[14:])
        if size > REST_MAX:
            raise WireError("PROXY header: too long")
        if data[12] == _PROXY and size < _ADDRESSES[data[13]]:
            raise WireError("PROXY header: too short for its addresses")
        self._size += size

    def _rest(self) -> None:
        self.done = True
        if self._data[12] == _LOCAL:
            return  # whatever stands behind it has no meaning
        family, rest = self._data[13], self._data[FIXED:]
        size = _ADDRESSES[family]
        if family != _UNSPEC:
            _check_extensions(rest[size:])
        if family == _TCP4:
            self.passed = _passed(rest, ipaddress.IPv4Address, 4)
        elif family == _TCP6:
            self.passed = _passed(rest, ipaddress.IPv6Address, 16)


def _passed(rest: bytes, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address], size: int) -> Passed:
    peer_port, local_port = struct.unpack_from("!HH", rest, 2 * size)
    return Passed(_host(kind(rest[:size])), peer_port, _host(kind(rest[size : 2 * size])), local_port)


def _host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An IPv4 address within IPv6 is shown, and judged, as what it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _check_extensions(data: bytes) -> None:
    """They say nothing to us, but they must fill the header to its end."""
    at = 0
    while at < len(data):
        if at + _TLV.size > len(data):
            raise WireError("PROXY header: broken extension")
        at += _TLV.size + _TLV.unpack_from(data, at)[1]
    if at != len(data):
        raise WireError("PROXY header: broken extension")
