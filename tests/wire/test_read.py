"""Tests for pgshoal.wire.read and pgshoal.wire.build: what one builds the other reads, and broken input is refused."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.wire import build, read
from pgshoal.wire.errors import WireError

READERS: list[Callable[[bytes], object]] = [
    read.error_fields, read.parameter_status, read.backend_key_data, read.auth_request, read.row_description,
    read.data_row, read.command_complete, read.ready_for_query, read.negotiate_protocol_version, read.parse,
    read.bind, read.bind_formats, read.describe, read.close, read.query, read.execute, read.password_message,
    read.sasl_initial,
]  # fmt: skip

# Reader, a packet it reads, and what it reads there.
CASES: list[tuple[Callable[[bytes], object], bytes, object]] = [
    (read.error_fields, build.error_response("FATAL", "08P01", "no"), {"S": "FATAL", "C": "08P01", "M": "no"}),
    (read.error_fields, build.notice("hi", "more"), {"S": "NOTICE", "C": "00000", "M": "hi", "D": "more"}),
    (read.parameter_status, build.parameter_status("TimeZone", "UTC"), ("TimeZone", "UTC")),
    (read.backend_key_data, build.backend_key_data(b"12345678"), b"12345678"),
    (read.backend_key_data, build.backend_key_data(bytes(260)), bytes(260)),
    (read.auth_request, build.auth_ok(), read.AuthRequest(0)),
    (read.auth_request, build.auth_cleartext(), read.AuthRequest(3)),
    (read.auth_request, build.auth_md5(b"salt"), read.AuthRequest(5, b"salt")),
    (read.auth_request, build.auth_sasl(["A", "B"]), read.AuthRequest(10, b"", ("A", "B"))),
    (read.row_description, build.row_description([("a", 25, -1), ("é", 23, 4)]), [("a", 25, -1, 0), ("é", 23, 4, 0)]),
    (read.data_row, build.data_row(["x", None, b"\0\xff", ""]), [b"x", None, b"\0\xff", b""]),
    (read.command_complete, build.command_complete("SELECT 1"), "SELECT 1"),
    (read.ready_for_query, build.ready_for_query(b"T"), "T"),
    (read.negotiate_protocol_version, build.negotiate_protocol_version(3, 2, ["_pq_.a"]), (2, ("_pq_.a",))),
    (read.parse, build.parse(b"s", b"select $1", [23]), (b"s", b"select $1", b"\0\1\0\0\0\x17")),
    (read.bind, build.bind(b"p", b"s", [b"1", None]), (b"p", b"s", b"\0\0\0\2\0\0\0\0011\xff\xff\xff\xff\0\0")),
    (read.bind_formats, build.message(b"B", b"\0\1\0\1\0\2\0\0\0\0011\xff\xff\xff\xff\0\2\0\0\0\1"), (2, (0, 1))),
    (read.bind_formats, build.message(b"B", b"\0\0\0\0\0\0"), (0, ())),
    (read.describe, build.describe(b"S", b"s"), (b"S", b"s")),
    (read.close, build.close(b"P", b""), (b"P", b"")),
    (read.query, build.query("select 'é'"), "select 'é'"),
    (read.execute, build.execute(b"p", 10), (b"p", 10)),
    (read.password_message, build.password_message(b"\xffx"), b"\xffx"),
    (read.sasl_initial, build.sasl_initial("SCRAM-SHA-256", b"n,,"), ("SCRAM-SHA-256", b"n,,")),
]


@pytest.mark.parametrize(("reader", "packet", "fact"), CASES)
def test_built_packets_are_read_back(reader: Callable[[bytes], object], packet: bytes, fact: object) -> None:
    """A packet's length field is right and its reader finds what was built."""
    assert int.from_bytes(packet[1:5]) == len(packet) - 1
    assert reader(packet[5:]) == fact


@pytest.mark.parametrize(("reader", "packet", "fact"), CASES)
def test_truncated_and_padded_payloads_are_refused(
    reader: Callable[[bytes], object], packet: bytes, fact: object
) -> None:
    """A payload cut at any byte raises WireError or is read as something else; it never passes for the whole."""
    payload = packet[5:]
    for size in range(len(payload)):
        with suppress(WireError):
            assert reader(payload[:size]) != fact
    with suppress(WireError):
        assert reader(payload + b"x") != fact


@given(st.binary(max_size=200))
def test_random_payloads_raise_nothing_but_wire_error(payload: bytes) -> None:
    """No reader lets another exception out."""
    for reader in READERS:
        with suppress(WireError):
            reader(payload)


@given(st.sampled_from(CASES), st.integers(0, 400), st.integers(0, 255))
def test_damaged_packets_raise_nothing_but_wire_error(
    case: tuple[Callable[[bytes], object], bytes, object], at: int, value: int
) -> None:
    """One changed byte in a good packet leads to a fact or a WireError."""
    payload = bytearray(case[1][5:])
    payload[at % len(payload)] = value
    with suppress(WireError):
        case[0](bytes(payload))


@pytest.mark.parametrize("length", [3, 4, -2, -(2**31), 2**31 - 1])
def test_hostile_inner_lengths_are_refused(length: int) -> None:
    """Lengths and counts inside messages are checked against what is there before anything is taken or allocated."""
    inner = struct.pack("!i", length)
    for reader, payload in (
        (read.data_row, b"\0\1" + inner + b"xx"),
        (read.sasl_initial, b"SCRAM-SHA-256\0" + inner + b"xx"),
        (read.bind_formats, b"\0\0\0\1" + inner + b"\0\0"),
        (read.negotiate_protocol_version, b"\0\3\0\0" + inner + b"x\0"),
    ):
        with pytest.raises(WireError):
            reader(payload)


def test_counts_beyond_the_payload_are_refused() -> None:
    """65535 columns, values or parameter types that are not there raise at the first missing one."""
    for reader, payload in (
        (read.data_row, b"\xff\xff"),
        (read.row_description, b"\xff\xff"),
        (read.parse, b"\0\0\xff\xff\0\0\0\1"),
        (read.bind_formats, b"\xff\xff\0\0"),
        (read.bind_formats, b"\0\0\xff\xff\0\0\0\0"),
        (read.bind_formats, b"\0\0\0\0\xff\xff\0\0"),
    ):
        with pytest.raises(WireError):
            reader(payload)


def test_error_without_sqlstate_is_read() -> None:
    """CVE-2026-6666: an error that lacks its SQLSTATE, message or severity still has usable ones."""
    fields = read.error_fields(b"Mboom\0\0")
    assert (fields.severity, fields.sqlstate, fields.text) == ("ERROR", "XX000", "boom")
    empty = read.error_fields(b"\0")
    assert (empty.severity, empty.sqlstate, empty.text) == ("ERROR", "XX000", "no message")


@pytest.mark.parametrize("code", ["", "1", "123456", "ab\u00e9de", "a b c"])
def test_malformed_sqlstate_is_replaced(code: str) -> None:
    """A SQLSTATE that is not five letters or digits is never passed on."""
    assert read.error_fields(build.error_response("ERROR", code, "x")[5:]).sqlstate == "XX000"


def test_unlocalised_severity_is_preferred() -> None:
    """PostgreSQL's V field wins over the translated S field."""
    assert read.error_fields(b"SFATALE\0VFATAL\0C3D000\0Mx\0\0").severity == "FATAL"


def test_unknown_authentication_requests_are_facts() -> None:
    """GSSAPI and codes not yet invented are for the login to refuse, not for the reader."""
    assert read.auth_request(struct.pack("!i", 7)) == read.AuthRequest(7)
    assert read.auth_request(struct.pack("!i", -1) + b"x") == read.AuthRequest(-1, b"x")


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\0\0\0", b"\0\0\0\0x", b"\0\0\0\5abc", b"\0\0\0\5abcde",
        b"\0\0\0\x0a", b"\0\0\0\x0a\0", b"\0\0\0\x0aA\0", b"\0\0\0\x0aA",
    ],
)  # fmt: skip
def test_malformed_authentication_requests_are_refused(payload: bytes) -> None:
    """A salt of another size or a mechanism list without its end is an error."""
    with pytest.raises(WireError):
        read.auth_request(payload)


@pytest.mark.parametrize("size", [0, 7, 261])
def test_cancel_keys_of_impossible_size_are_refused(size: int) -> None:
    """Cancel keys have 8 to 260 bytes."""
    with pytest.raises(WireError):
        read.backend_key_data(bytes(size))


def test_sasl_initial_without_data_is_told_apart_from_empty_data() -> None:
    """A length of -1 means that the client waits for a challenge."""
    assert read.sasl_initial(b"M\0\xff\xff\xff\xff") == ("M", None)
    assert read.sasl_initial(b"M\0\0\0\0\0") == ("M", b"")


def test_error_text_cannot_end_its_field_early() -> None:
    """A NUL inside a message is dropped, so that it cannot forge further fields."""
    assert read.error_fields(build.error_response("ERROR", "XX000", "a\0CZZZZZ")[5:]) == {
        "S": "ERROR", "C": "XX000", "M": "aCZZZZZ",
    }  # fmt: skip


def test_error_response_has_exactly_the_fields_clients_expect() -> None:
    """Severity, SQLSTATE and message in this order, byte for byte."""
    assert build.error_response("FATAL", "08P01", "x") == b"E\0\0\0\x16SFATAL\0C08P01\0Mx\0\0"


def test_welcome_is_the_whole_end_of_login() -> None:
    """AuthenticationOk, fixed then own parameters, key, notice and ReadyForQuery come in one piece."""
    fixed = build.parameter_statuses([("server_version", "15")])
    packet = build.welcome(fixed, [("TimeZone", "UTC")], b"12345678", build.notice("hi"))
    assert packet == b"".join([
        build.AUTH_OK, fixed, build.parameter_status("TimeZone", "UTC"), build.backend_key_data(b"12345678"),
        build.notice("hi"), build.READY_IDLE,
    ])  # fmt: skip


def test_startup_and_cancel_packets_state_their_size() -> None:
    """Packets without a type byte begin with their whole length."""
    for packet in (build.startup_message([("user", "a")]), build.cancel_request(bytes(260)), build.ssl_request()):
        assert int.from_bytes(packet[:4]) == len(packet)


def test_sasl_steps_are_authentication_requests() -> None:
    """SASL continue and final carry their data unchanged."""
    assert read.auth_request(build.sasl_continue(b"r=\xff")[5:]) == read.AuthRequest(read.AUTH_SASL_CONTINUE, b"r=\xff")
    assert read.auth_request(build.sasl_final(b"v=")[5:]) == read.AuthRequest(read.AUTH_SASL_FINAL, b"v=")
    assert build.sasl_response(b"\0c=biws") == b"p\0\0\0\x0b\0c=biws"


@pytest.mark.parametrize("salt", [b"", b"123", b"12345"])
def test_md5_salt_of_another_size_is_our_own_mistake(salt: bytes) -> None:
    """A salt that would garble the message is never sent."""
    with pytest.raises(ValueError, match="4 bytes"):
        build.auth_md5(salt)


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (build.sync(), b"S"),
        (build.flush(), b"H"),
        (build.terminate(), b"X"),
        (build.empty_query_response(), b"I"),
        (build.PARSE_COMPLETE, b"1"),
        (build.BIND_COMPLETE, b"2"),
        (build.CLOSE_COMPLETE, b"3"),
        (build.NO_DATA, b"n"),
        (build.COPY_DONE, b"c"),
    ],
)
def test_messages_without_payload(packet: bytes, code: bytes) -> None:
    """A message that says all with its type has a length of four."""
    assert packet == code + b"\0\0\0\4"
