"""Hostile lengths and bytes, back-pressure, and messages that are never kept whole."""

from __future__ import annotations

import struct

import pytest

from pgshoal.engine.contract import Event
from tests.engine.core.harness import BLOCK, IDLE, Bench
from tests.support.messages import COPY_DONE, FLUSH, SYNC, command_complete, data_row, message, query

CLIENT_TYPES = "QPBEDCSHFdcfX"
SERVER_TYPES = "123nsIcZSCDdTtGHWVNAE"
FIXED_CLIENT = "SHXc"


def head(kind: str, length: int) -> bytes:
    """Type and length."""
    return kind.encode() + struct.pack("!I", length & 0xFFFFFFFF)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("length", [0, 3, -1, -(2**31)])
@pytest.mark.parametrize("kind", CLIENT_TYPES)
def test_client_lengths_that_cannot_be(core: Bench, kind: str, length: int, linked: bool) -> None:
    """A length below 4 or negative freezes the client, with the header as detail; a linked server is closed."""
    core.pool(prepared=0)
    client, server = core.linked(*[query("begin")] * linked)
    client.say(head(kind, length))
    events = core.events()
    assert events[0] == (Event.FAULT, client.id, "bad_packet_header", head(kind, length).hex())
    assert client.mode == "frozen"
    assert len(events) == 1 + linked
    assert server.mode == "idle" if not linked else server.mode != "linked"


@pytest.mark.parametrize("kind", FIXED_CLIENT)
def test_fixed_client_lengths(core: Bench, kind: str) -> None:
    """Sync, Flush, Terminate and CopyDone have one length."""
    client, _server = core.linked()
    client.say(head(kind, 5))
    assert core.events() == [(Event.FAULT, client.id, "bad_packet_header", head(kind, 5).hex())]


def test_max_packet_size(core: Bench) -> None:
    """The limit is the greatest length allowed, and nothing is kept for what it refuses."""
    core.limits(max_packet_size=1000)
    client, server = core.linked()
    client.say(message(b"Q", b"x" * 996))
    assert server.heard() == message(b"Q", b"x" * 996)
    client.say(head("Q", 1001))
    assert core.events()[0] == (Event.FAULT, client.id, "bad_packet_header", head("Q", 1001).hex())


@pytest.mark.parametrize("kind", "pRZ!\0\xff")
def test_unknown_client_types(core: Bench, kind: str) -> None:
    """A type no client sends after login freezes it."""
    client, _server = core.linked()
    client.say(kind.encode("latin-1") + b"\0\0\0\x04")
    assert core.events() == [(Event.FAULT, client.id, "unknown_pkt", "")]


@pytest.mark.parametrize("length", [0, 3, -1, -(2**31)])
@pytest.mark.parametrize("kind", SERVER_TYPES)
def test_server_lengths_that_cannot_be(core: Bench, kind: str, length: int) -> None:
    """A server whose length cannot be is closed, and its client gets FAULT."""
    client, server = core.linked(query("x"))
    server.say(head(kind, length))
    assert core.events() == [
        (Event.CLOSED, server.id, "bad pkt header"),
        (Event.FAULT, client.id, "server_closed", "bad pkt header"),
    ]
    assert client.heard() == b""


@pytest.mark.parametrize(
    "said", [head("1", 5), head("Z", 4), head("Z", 6), head("S", 65_537), head("C", 2**31 - 1), head("c", 8)]
)
def test_server_lengths_of_fixed_forms(core: Bench, said: bytes) -> None:
    """Fixed and small messages of a server are held to their lengths."""
    _client, server = core.linked(query("x"))
    server.say(said)
    assert core.events()[0] == (Event.CLOSED, server.id, "bad pkt header")


def test_ready_with_an_unknown_status(core: Bench) -> None:
    """Only I, T and E are statuses."""
    client, server = core.linked(query("x"))
    server.say(message(b"Z", b"X"))
    assert core.events()[0] == (Event.CLOSED, server.id, "bad pkt header")
    assert client.heard() == b""


@pytest.mark.parametrize("kind", ["D", "d", "T", "N", "E", "A", "V"])
def test_the_largest_server_message_is_streamed(core: Bench, kind: str) -> None:
    """A message of 2 GiB is passed on as it comes, nothing of it is kept."""
    client, server = core.linked(query("x"))
    server.say(head(kind, 2**31 - 1), b"x" * 100)
    assert client.heard() == head(kind, 2**31 - 1) + b"x" * 100
    assert server.facts.recv_pending == 0


@pytest.mark.parametrize("kind", ["Q", "F", "E"])
def test_the_largest_client_message_is_streamed(core: Bench, kind: str) -> None:
    """A request of 2 GiB is forwarded as it comes."""
    client, server = core.linked()
    client.say(head(kind, 2**31 - 1), b"x" * 100)
    assert server.heard() == head(kind, 2**31 - 1) + b"x" * 100
    assert client.facts.recv_pending == 0


def test_a_large_bind_streams_behind_its_names(core: Bench) -> None:
    """Only the names of a Bind are collected."""
    core.pool(prepared=0)
    client, server = core.linked()
    whole = message(b"B", b"p\0s\0" + b"x" * 100_000)
    core.engine.received(client.id, whole[:7])
    assert (server.heard(), client.mode) == (b"", "parked")
    core.engine.received(client.id, whole[7:50_000])
    assert server.heard() == whole[:50_000]
    core.engine.received(client.id, whole[50_000:])
    assert server.heard() == whole[50_000:]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (message(b"P", b"a"), "broken_parse"),
        (message(b"P", b"a\0select"), "broken_parse"),
        (message(b"B", b"a"), "broken_bind"),
        (message(b"B", b"a\0b"), "broken_bind"),
        (head("B", 100_000) + b"x" * 70_000, "broken_bind"),
        (message(b"D", b""), "broken_describe"),
        (message(b"D", b"Xa\0"), "broken_describe"),
        (message(b"D", b"Sa"), "broken_describe"),
        (message(b"D", b"Sa\0b"), "broken_describe"),
        (head("D", 65_537), "broken_describe"),
        (message(b"C", b"Sa"), "broken_close"),
        (head("C", 65_537), "broken_close"),
    ],
)
def test_broken_requests(core: Bench, said: bytes, key: str) -> None:
    """A request that cannot be read freezes the client; the clean server is free again."""
    client, server = core.linked()
    if len(said) > 1000:
        core.engine.received(client.id, said)
    else:
        client.say(said)
    assert core.events() == [(Event.FAULT, client.id, key, "")]
    assert (server.heard(), server.mode) == (b"", "idle")


def test_back_pressure_towards_the_client(core: Bench) -> None:
    """A client that does not read stops its server above 128 KiB and lets it go on below 32 KiB."""
    client, server = core.linked(query("x"))
    row = data_row("x" * 10_000)
    core.engine.received(server.id, row * 13)
    assert core.engine.reading(server.id)
    core.engine.received(server.id, row)
    assert not core.engine.reading(server.id)
    assert core.engine.reading(client.id)
    client.heard()
    assert core.engine.reading(server.id)


def test_back_pressure_towards_the_server(core: Bench) -> None:
    """A server that does not read stops its client."""
    client, server = core.linked(query("copy"))
    server.say(message(b"G", b"\0\0\0"))
    core.engine.received(client.id, message(b"d", b"x" * 140_000))
    assert not core.engine.reading(client.id)
    server.heard()
    assert core.engine.reading(client.id)


def test_a_released_server_is_read_again(core: Bench) -> None:
    """Back-pressure belongs to the link: a server is read again once it is free."""
    _client, server = core.linked(query("x"))
    core.engine.received(server.id, data_row("x" * 140_000))
    assert not core.engine.reading(server.id)
    core.engine.received(server.id, command_complete("X") + IDLE)
    assert core.engine.reading(server.id)


def test_fixed_messages_in_a_row(core: Bench) -> None:
    """Fixed forms of the right length are no trouble."""
    client, server = core.linked(query("begin"))
    server.say(command_complete("BEGIN"), BLOCK)
    client.say(FLUSH, COPY_DONE, SYNC)
    assert server.heard() == FLUSH + SYNC


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", CLIENT_TYPES)
def test_empty_client_messages(core: Bench, kind: str, linked: bool) -> None:
    """A message of any type with nothing in it is forwarded, answered or refused, never more than that."""
    client, _server = core.linked(*[query("begin")] * linked)
    client.say(head(kind, 4))
    assert client.mode in ("parked", "linked", "frozen", "gone", "closing")


@pytest.mark.parametrize("kind", SERVER_TYPES)
@pytest.mark.parametrize("asked", [query("x"), message(b"E", b"\0\0\0\0\0"), message(b"D", b"Sa\0"), SYNC + query("x")])
def test_empty_server_messages(core: Bench, kind: str, asked: bytes) -> None:
    """A server's message with nothing in it passes or closes the server."""
    client, server = core.linked()
    client.say(asked)
    server.say(head(kind, 4))
    assert server.mode in ("linked", "gone", "closing")
