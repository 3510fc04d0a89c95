"""Tests for pgshoal.wire.framing."""

import struct
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire import build
from pgshoal.wire.catalogue import BACKEND_BY_CODE, FRONTEND_BY_CODE, MessageSpec
from pgshoal.wire.framing import STARTUP, STARTUP_LIMIT, BadHeader, DirectTls, Framer, Message, SecondStartup
from tests.wire.cuts import frames_of

HOSTILE = [0, 3, -1, -(2**31), 2**31 - 1]


def startup_framer() -> Framer:
    """A framer for the startup phase."""
    return Framer("startup")


def message_framer() -> Framer:
    """A framer for messages of at most 100 bytes."""
    return Framer("message", limit=100)


def test_messages_are_cut_out_in_order_however_they_arrive() -> None:
    """Three messages in one stream give three facts, at any cut."""
    stream = build.query("select 1") + build.SYNC + build.command_complete("SELECT 1")
    assert frames_of(message_framer, stream) == [
        Message(ord("Q"), b"select 1\0"),
        Message(ord("S"), b""),
        Message(ord("C"), b"SELECT 1\0"),
    ]


@pytest.mark.parametrize("length", HOSTILE)
def test_hostile_length_yields_its_header_and_nothing_more(length: int) -> None:
    """A length that cannot be right ends the stream with a fact that carries the header."""
    header = struct.pack("!ci", b"Q", length)
    good = build.SYNC
    frames = frames_of(message_framer, good + header + b"rest" + good)
    assert frames == [Message(ord("S"), b""), BadHeader(header)]


def test_length_of_four_is_an_empty_message() -> None:
    """The smallest legal length field is four."""
    assert frames_of(message_framer, b"Q\0\0\0\x04") == [Message(ord("Q"), b"")]


def test_limit_counts_the_whole_packet_and_is_judged_from_the_header_alone() -> None:
    """A packet of exactly the limit passes; one byte more is refused before any payload has arrived."""
    assert message_framer().feed(b"d" + struct.pack("!i", 99) + bytes(95)) == [Message(ord("d"), bytes(95))]
    header = b"d" + struct.pack("!i", 100)
    assert message_framer().feed(header) == [BadHeader(header)]


def test_bad_header_names_the_bytes_in_hex() -> None:
    """The text for the client shows the header as hex."""
    assert BadHeader(b"p\xff\xff\xff\xff").reason == "bad packet header: '70ffffffff'"


def test_broken_framer_keeps_nothing() -> None:
    """A peer that goes on sending after a bad header costs no memory."""
    framer = message_framer()
    framer.feed(b"Q\0\0\0\0")
    framer.feed(bytes(1000))
    assert framer.pending_size == 0


def test_broken_framer_cannot_be_revived() -> None:
    """Switching the kind after a bad header does not read on."""
    framer = message_framer()
    framer.feed(b"Q\0\0\0\0")
    assert framer.switch("message", limit=100) == []
    assert framer.feed(build.SYNC) == []


@pytest.mark.parametrize(("code", "length"), [("X", 5), ("H", 8), ("S", 5), ("D", 20_000), ("B", 11), ("Q", 4)])
def test_catalogue_bounds_apply_when_asked_for(code: str, length: int) -> None:
    """With the catalogue given, a length no such message can have is refused from the header."""
    header = code.encode() + struct.pack("!i", length)
    framer = Framer("message", specs=FRONTEND_BY_CODE)
    assert framer.feed(header) == [BadHeader(header)]


def test_server_authentication_request_is_bounded_tightly() -> None:
    """A 64 kB authentication request, as for an endless SCRAM nonce, is refused from its header."""
    header = b"R" + struct.pack("!i", 65_536)
    assert Framer("message", specs=BACKEND_BY_CODE).feed(header) == [BadHeader(header)]


@pytest.mark.parametrize("table", [FRONTEND_BY_CODE, BACKEND_BY_CODE])
def test_every_message_refuses_every_hostile_length(table: Mapping[int, MessageSpec]) -> None:
    """Lengths 0, 3, 4 (where too short), 2**31-1 and -1 of each message of both sides are refused from the header."""
    for spec in table.values():
        for length in (0, 3, 4, 2**31 - 1, -1):
            header = struct.pack("!Bi", spec.code, length)
            fine = length == 4 and spec.min_length == 4
            expected = Message(spec.code, b"") if fine else BadHeader(header)
            assert Framer("message", specs=table).feed(header) == [expected], (spec.name, length)


# Startup phase


def test_startup_packet_is_one_frame_and_what_follows_is_held() -> None:
    """The framer stops after a startup-phase packet, so that bytes behind SSLRequest can be refused."""
    framer = startup_framer()
    assert framer.feed(build.SSL_REQUEST + b"\x16\x03evil") == [Message(STARTUP, build.SSL_REQUEST[4:])]
    assert framer.pending == b"\x16\x03evil"
    assert framer.feed(b"more") == []


def test_switch_reads_on_from_the_held_bytes() -> None:
    """A password sent right behind the startup packet is read once the caller asks for messages."""
    framer = startup_framer()
    framer.feed(build.startup_message([("user", "a")]) + build.password_message(b"x"))
    assert framer.switch("message", limit=1000) == [Message(ord("p"), b"x\0")]


def test_startup_is_the_same_at_every_cut() -> None:
    """A startup packet cut anywhere gives the same frame."""
    stream = build.startup_message([("user", "a"), ("database", "b")], minor=2)
    assert frames_of(startup_framer, stream) == [Message(STARTUP, stream[4:])]


@pytest.mark.parametrize("length", [0, 3, 4, 7, STARTUP_LIMIT + 1, 2**24 - 1])
def test_startup_with_hostile_length_is_refused(length: int) -> None:
    """Startup lengths below the code and above 10000 bytes are refused with the first eight bytes."""
    packet = struct.pack("!iI", length, 3 << 16)
    assert frames_of(startup_framer, packet + b"user") == [BadHeader(packet)]


def test_startup_packet_of_10000_bytes_passes() -> None:
    """PostgreSQL's own bound is legal to the last byte."""
    packet = build.startup_message([("user", "x" * (STARTUP_LIMIT - 8 - 7))])
    assert len(packet) == STARTUP_LIMIT
    assert startup_framer().feed(packet) == [Message(STARTUP, packet[4:])]


def test_second_startup_packet_is_refused_from_its_first_byte() -> None:
    """CVE-2026-107350: a startup packet in the middle of an exchange is told apart and ends the stream."""
    stream = build.sasl_response(b"x") + build.startup_message([("user", "postgres")]) + build.SYNC
    frames = frames_of(message_framer, stream)
    assert frames == [Message(ord("p"), b"x"), SecondStartup()]


def test_direct_tls_is_a_fact_and_keeps_every_byte() -> None:
    """A TLS handshake record as the first byte is reported at once; its bytes stay for the TLS layer."""
    framer = startup_framer()
    assert framer.feed(b"\x16") == [DirectTls()]
    assert framer.feed(b"\x03\x01") == []
    assert framer.take_pending() == b"\x16\x03\x01"
    assert framer.pending_size == 0


def test_typed_message_before_startup_is_shown_to_the_caller() -> None:
    """A password packet before any startup packet is a typed message, so the caller can name the fault."""
    stream = build.password_message(b"x")
    assert frames_of(startup_framer, stream) == [Message(ord("p"), b"x\0")]


def test_http_request_is_a_bad_header() -> None:
    """Another protocol's bytes are refused from their first five."""
    assert frames_of(startup_framer, b"GET / HTTP/1.1\r\n") == [BadHeader(b"GET /")]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_random_bytes_give_the_same_frames_at_random_cuts(stream: bytes, cuts: list[int]) -> None:
    """Neither framer raises on random bytes, and cuts change nothing."""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for make in (startup_framer, message_framer):
        framer = make()
        parts = [frame for a, b in pairwise(edges) for frame in framer.feed(stream[a:b])]
        assert parts == make().feed(stream)
