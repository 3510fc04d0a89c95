"""Tests for pgshoal.wire.startup."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire import build, read
from pgshoal.wire.startup import (
    BAD_LAYOUT,
    OLD_PROTOCOL,
    BadStartup,
    CancelRequest,
    GSSENCRequest,
    SSLRequest,
    Startup,
    negotiate,
    parse_startup,
)


def body(packet: bytes) -> bytes:
    """A startup-phase packet without its length field."""
    return packet[4:]


def startup(parameters: list[tuple[str, str]], minor: int = 0) -> Startup:
    """A parsed login packet."""
    fact = parse_startup(body(build.startup_message(parameters, minor)))
    assert isinstance(fact, Startup)
    return fact


def test_parameters_keep_their_order_and_empty_values() -> None:
    """A login packet gives its parameters in the order sent."""
    pairs = [("user", "a"), ("database", ""), ("TimeZone", "UTC"), ("application_name", "x y")]
    assert startup(pairs) == Startup(3, 0, tuple(pairs))


def test_last_of_repeated_parameters_counts() -> None:
    """A repeated parameter has its last value, as in PostgreSQL; an absent one is None."""
    fact = startup([("user", "zz"), ("user", "a")])
    assert fact.get("user") == "a"
    assert fact.get("database") is None


def test_names_survive_unchanged_whatever_their_encoding() -> None:
    """UTF-8 and Latin-1 user names leave as the bytes they came as."""
    for raw in ("jürgen".encode(), "jürgen".encode("latin-1"), b"\xff\xfe"):
        fact = parse_startup(b"\0\x03\0\0user\0" + raw + b"\0\0")
        assert isinstance(fact, Startup)
        user = fact.get("user")
        assert user is not None
        assert build.encode(user) == raw


@pytest.mark.parametrize(
    "tail", [b"", b"user", b"user\0", b"user\0a", b"user\0a\0", b"user\0a\0\0x", b"\0x\0\0", b"user\0\0"]
)
def test_packet_without_its_terminator_is_refused(tail: bytes) -> None:
    """Every layout that does not end in name, value, terminator gets the one text for it."""
    assert parse_startup(b"\0\x03\0\0" + tail) == BadStartup(BAD_LAYOUT)


def test_every_truncation_of_a_login_packet_is_refused() -> None:
    """A packet whose length lies is refused at every cut, never read beyond."""
    whole = body(build.startup_message([("user", "a"), ("database", "b")]))
    for size in range(len(whole)):
        fact = parse_startup(whole[:size])
        # Where one pair ends early, the rest still lacks its terminator.
        assert isinstance(fact, BadStartup), whole[:size]


def test_login_without_parameters_is_a_login() -> None:
    """An empty list is well formed; that a user is missing is for the login to say."""
    assert startup([]) == Startup(3, 0, ())


def test_tls_and_gss_requests() -> None:
    """The two requests are distinct facts, and bytes inside them are refused silently."""
    assert parse_startup(body(build.SSL_REQUEST)) == SSLRequest()
    assert parse_startup(body(build.GSSENC_REQUEST)) == GSSENCRequest()
    assert parse_startup(body(build.SSL_REQUEST)) != parse_startup(body(build.GSSENC_REQUEST))
    assert parse_startup(body(build.SSL_REQUEST) + b"x") == BadStartup("bad packet", silent=True)


@pytest.mark.parametrize("size", [8, 9, 36, 260])
def test_cancel_keys_of_both_protocols(size: int) -> None:
    """A cancel key has 8 bytes in 3.0 and up to 260 in 3.2."""
    key = bytes(range(256)) + b"\1\2\3\4"
    assert parse_startup(body(build.cancel_request(key[:size]))) == CancelRequest(key[:size])


@pytest.mark.parametrize("size", [0, 4, 7, 261, 5000])
def test_cancel_key_of_impossible_size_is_dropped_silently(size: int) -> None:
    """A cancel connection never gets an error packet."""
    assert parse_startup(body(build.cancel_request(bytes(size)))) == BadStartup("bad cancel request", silent=True)


def test_other_majors_are_refused() -> None:
    """Protocol 2 has its own text; 1, 4 and unknown codes show their header."""
    assert parse_startup(struct.pack("!I", 2 << 16)) == BadStartup(OLD_PROTOCOL)
    assert parse_startup(struct.pack("!I", 4 << 16)) == BadStartup("bad packet header: '0000000800040000'")
    assert parse_startup(struct.pack("!I", 1234)) == BadStartup("bad packet header: '00000008000004d2'")
    assert parse_startup(b"ab") == BadStartup("bad packet header: '000000066162'")


# Negotiation


def test_protocol_3_0_needs_no_negotiation() -> None:
    """A plain login is not answered with NegotiateProtocolVersion."""
    assert negotiate(startup([("user", "a")])) is None


@pytest.mark.parametrize("minor", [3, 9999])
def test_newer_minor_is_answered_with_3_2(minor: int) -> None:
    """3.3 and the grease version 3.9999 get one answer that names 3.2 and no option."""
    assert negotiate(startup([("user", "a")], minor)) == b"v\0\0\0\x0c\0\3\0\2\0\0\0\0"


def test_unknown_protocol_options_are_named_all_at_once() -> None:
    """`_pq_.` options are no parameters; one message lists all their names, also under 3.0."""
    fact = startup([("user", "a"), ("_pq_.test_protocol_negotiation", ""), ("_pq_.x", "1"), ("database", "d")])
    assert fact.parameters == (("user", "a"), ("database", "d"))
    packet = negotiate(fact)
    assert packet is not None
    assert read.negotiate_protocol_version(packet[5:]) == (0, ("_pq_.test_protocol_negotiation", "_pq_.x"))


def test_minor_we_speak_needs_no_answer() -> None:
    """3.1 and 3.2 are accepted; with options nobody is answered with a version above the one asked for."""
    assert negotiate(startup([("user", "a")], 1)) is None
    assert negotiate(startup([("user", "a")], 2)) is None
    for minor in (0, 2):
        packet = negotiate(startup([("user", "a"), ("_pq_.x", "")], minor))
        assert packet is not None
        assert read.negotiate_protocol_version(packet[5:]) == (minor, ("_pq_.x",))


@given(st.binary(max_size=300))
def test_random_packets_are_facts(payload: bytes) -> None:
    """No packet makes the parser raise; a login it accepts can be built again byte for byte."""
    for packet in (payload, b"\0\x03\0\0" + payload, b"\0\x03\0\0" + payload + b"\0\0"):
        fact = parse_startup(packet)
        if isinstance(fact, Startup) and not fact.pq_options:
            assert body(build.startup_message(fact.parameters, fact.minor)) == packet
