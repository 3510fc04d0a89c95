"""Tests for pgshoal.wire.proxy."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire.errors import WireError
from pgshoal.wire.proxy import REST_MAX, SIGNATURE, Passed, ProxyHeader

PROXY, LOCAL = 0x21, 0x20
UNSPEC, TCP4, UDP4, TCP6, UNIX = 0x00, 0x11, 0x12, 0x21, 0x31


def header(command: int, family: int, rest: bytes, length: int | None = None) -> bytes:
    """A header; `length` if another one than the rest's is announced."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(rest) if length is None else length) + rest


def tcp(peer: str, peer_port: int, local: str, local_port: int) -> bytes:
    """Addresses and ports."""
    ends = ipaddress.ip_address(peer).packed + ipaddress.ip_address(local).packed
    return ends + struct.pack("!HH", peer_port, local_port)


def tlv(kind: int, value: bytes) -> bytes:
    """An extension."""
    return struct.pack("!BH", kind, len(value)) + value


FOUR = tcp("192.0.2.7", 40001, "198.51.100.1", 6432)
SIX = tcp("2001:db8::7", 40002, "2001:db8::1", 6432)
GOOD = {
    "tcp4": (header(PROXY, TCP4, FOUR), Passed("192.0.2.7", 40001, "198.51.100.1", 6432)),
    "tcp6": (header(PROXY, TCP6, SIX), Passed("2001:db8::7", 40002, "2001:db8::1", 6432)),
    "mapped": (
        header(PROXY, TCP6, tcp("::ffff:192.0.2.7", 1, "::ffff:192.0.2.8", 2)),
        Passed("192.0.2.7", 1, "192.0.2.8", 2),
    ),
    "extensions": (
        header(PROXY, TCP4, FOUR + tlv(1, b"postgresql") + tlv(4, b"")),
        Passed("192.0.2.7", 40001, "198.51.100.1", 6432),
    ),
    "unix": (header(PROXY, UNIX, b"/client".ljust(108, b"\0") + b"/server".ljust(108, b"\0")), None),
    "unspec": (header(PROXY, UNSPEC, b"anything"), None),
    "local": (header(LOCAL, UNSPEC, b""), None),
    "local with addresses": (header(LOCAL, TCP4, FOUR), None),
    "local with an unknown family": (header(LOCAL, 0x55, b"anything"), None),
    "longest": (header(PROXY, UNIX, bytes(216) + tlv(4, bytes(509))), None),
}
BAD = {
    "startup packet": (b"\0\0\0\x08\x04\xd2\x16\x2f", "missing"),
    "tls": (b"\x16\x03\x01\x02\0", "missing"),
    "version 1": (b"PROXY TCP4 192.0.2.7 198.51.100.1 40001 6432\r\n", "missing"),
    "signature": (SIGNATURE[:11] + b"\r", "missing"),
    "version 3": (header(0x31, TCP4, FOUR), "unknown version or command"),
    "command": (header(0x22, TCP4, FOUR), "unknown version or command"),
    "datagrams": (header(PROXY, UDP4, FOUR), "unknown address family"),
    "family": (header(PROXY, 0x41, FOUR), "unknown address family"),
    "protocol": (header(PROXY, 0x10, FOUR), "unknown address family"),
    "short tcp4": (header(PROXY, TCP4, FOUR[:-1]), "too short"),
    "short tcp6": (header(PROXY, TCP6, FOUR), "too short"),
    "short unix": (header(PROXY, UNIX, bytes(215)), "too short"),
    "too long": (header(PROXY, TCP4, b"", REST_MAX + 1), "too long"),
    "much too long": (header(LOCAL, UNSPEC, b"", 0xFFFF), "too long"),
    "half an extension": (header(PROXY, TCP4, FOUR + b"\x04\0"), "broken extension"),
    "extension beyond the end": (header(PROXY, TCP4, FOUR + tlv(4, bytes(5))[:-1]), "broken extension"),
}


def fed(*pieces: bytes) -> ProxyHeader:
    """A reader that got these pieces, each as far as it wanted more."""
    reader = ProxyHeader()
    for piece in pieces:
        while piece and not reader.done:
            take = piece[: reader.missing]
            reader.feed(take)
            piece = piece[len(take) :]
    return reader


@pytest.mark.parametrize("case", GOOD)
def test_headers_cut_at_every_byte(case: str) -> None:
    """However a header is cut it says the same, and what stands behind it is not taken."""
    data, passed = GOOD[case]
    for cut in range(len(data) + 1):
        reader = fed(data[:cut], data[cut:] + b"\0\0\0\x08startup")
        assert (reader.done, reader.passed, reader.missing) == (True, passed, 0), cut
    reader = fed(*(data[at : at + 1] for at in range(len(data))))
    assert (reader.done, reader.passed) == (True, passed)


@pytest.mark.parametrize("case", GOOD)
def test_nothing_is_said_before_the_end(case: str) -> None:
    """A header that is not whole has said nothing."""
    data, _ = GOOD[case]
    for cut in range(len(data)):
        reader = fed(data[:cut])
        assert (reader.done, reader.passed) == (False, None)
        assert 0 < reader.missing <= len(data) - cut


@pytest.mark.parametrize("case", BAD)
def test_bad_headers_cut_at_every_byte(case: str) -> None:
    """However it is cut, it is refused for the same reason."""
    data, reason = BAD[case]
    for cut in range(len(data) + 1):
        with pytest.raises(WireError, match=reason):
            fed(data[:cut], data[cut:])


def test_a_bad_header_is_refused_as_early_as_it_can_be() -> None:
    """The first byte of a startup packet is enough: nobody waits for sixteen."""
    with pytest.raises(WireError):
        fed(b"\0")
    with pytest.raises(WireError):
        fed(SIGNATURE + b"\x22")


def test_more_than_is_missing_is_a_bug_of_the_caller() -> None:
    """Bytes behind the header are the client's, so they must not be read at all."""
    with pytest.raises(ValueError, match="missing"):
        ProxyHeader().feed(bytes(17))


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_end_in_a_header_or_an_error(data: bytes, signed: bool) -> None:
    """Nothing else is raised, and never is more wanted than the bound allows."""
    reader = ProxyHeader()
    data = SIGNATURE + b"\x21" + data if signed else data
    try:
        while data and not reader.done:
            take = data[: reader.missing]
            reader.feed(take)
            data = data[len(take) :]
            assert reader.missing <= REST_MAX
    except WireError:
        assert not reader.done or reader.passed is None
