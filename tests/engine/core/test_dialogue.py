"""Dialogue mode: framing, one message at a time, lengths."""

from __future__ import annotations

import struct

import pytest

from pgshoal.engine.contract import Event
from tests.engine.core.harness import STARTUP, Bench, Peer
from tests.support.messages import GSSENC_REQUEST, SSL_REQUEST, auth, message, parameter_status, query, ready


def test_a_packet_waits_for_proceed(core: Bench) -> None:
    """After a startup packet nothing is parsed until Python says how to go on."""
    client = core.fresh_client()
    client.say(STARTUP, message(b"p", b"secret\0"))
    assert core.events() == [(Event.PACKET, client.id, STARTUP[4:])]
    core.engine.proceed(client.id, 100)
    assert core.events() == [(Event.MESSAGE, client.id, ord("p"), b"secret\0")]
    assert client.mode == "dialogue"


def test_direct_tls_consumes_nothing(core: Bench) -> None:
    """A TLS handshake byte at the very start gives DIRECT_TLS once, and the bytes stay."""
    client = core.fresh_client()
    client.say(b"\x16\x03\x01\0\x05")
    assert core.events() == [(Event.DIRECT_TLS, client.id)]
    assert client.facts.recv_pending == 5


def test_a_handshake_byte_later_is_a_length(core: Bench) -> None:
    """After the first packet 0x16 is no handshake but a length out of bounds."""
    client = core.fresh_client()
    client.say(SSL_REQUEST)
    core.events()
    core.engine.send(client.id, b"N")
    core.engine.proceed_startup(client.id)
    client.say(b"\x16\x03\x01\0\x05\0\0\0\0"[:8])
    assert core.events() == [
        (Event.OVERSIZE, client.id, b"\x16\x03\x01\0" + (b"" if core.cut == "bytes" else b"\x05\0\0\0"))
    ]


@pytest.mark.parametrize("length", [0, 3, 4, 7, 10_001, 2**31 - 1, 2**32 - 1])
def test_startup_lengths(core: Bench, length: int) -> None:
    """A startup packet of fewer than 8 or more than 10 000 bytes freezes the client."""
    client = core.fresh_client()
    client.say(struct.pack("!I", length), b"\0\x03\0\0")
    (event,) = core.events()
    assert event[:2] == (Event.OVERSIZE, client.id)
    assert event[2].startswith(struct.pack("!I", length))
    assert client.mode == "frozen"
    assert not core.engine.reading(client.id)


@pytest.mark.parametrize("length", [0, 3, 100, 2**31 - 1, 2**32 - 1])
def test_message_lengths(core: Bench, length: int) -> None:
    """A message longer than the limit given to proceed, or shorter than its length field, freezes the client."""
    client = core.fresh_client()
    client.say(STARTUP)
    core.events()
    core.engine.proceed(client.id, 100)
    client.say(b"p" + struct.pack("!I", length))
    assert core.events() == [(Event.OVERSIZE, client.id, b"p" + struct.pack("!I", length))]
    assert client.mode == "frozen"


def test_a_startup_packet_out_of_place(core: Bench) -> None:
    """Type 0 freezes the client at its header: the length it seems to have would be waited for in vain."""
    client = core.fresh_client()
    client.say(STARTUP)
    core.events()
    core.engine.proceed(client.id, 70_000)
    client.say(STARTUP[:5])
    assert core.events() == [(Event.OVERSIZE, client.id, STARTUP[:5])]
    assert client.mode == "frozen"


def test_the_limit_counts_the_whole_message(core: Bench) -> None:
    """A message of exactly the limit, type and length included, passes."""
    client = core.fresh_client()
    client.say(STARTUP)
    core.events()
    core.engine.proceed(client.id, 100)
    client.say(message(b"p", b"x" * 95))
    assert core.events() == [(Event.MESSAGE, client.id, ord("p"), b"x" * 95)]


def test_a_client_that_sends_ahead_is_paused(core: Bench) -> None:
    """Above 64 KiB kept behind an unanswered packet, reading stops."""
    client = core.fresh_client()
    core.engine.received(client.id, STARTUP)
    assert core.engine.reading(client.id)
    core.engine.received(client.id, b"x" * 65_537)
    assert not core.engine.reading(client.id)


def test_a_server_delivers_all_messages(core: Bench) -> None:
    """A server's complete messages come at once, in order."""
    server = core.fresh_server()
    server.say(auth(0), parameter_status("a", "b"), ready())
    assert core.events() == [
        (Event.MESSAGE, server.id, ord("R"), b"\0\0\0\0"),
        (Event.MESSAGE, server.id, ord("S"), b"a\0b\0"),
        (Event.MESSAGE, server.id, ord("Z"), b"I"),
    ]


def test_the_answer_to_an_ssl_request(core: Bench) -> None:
    """After SSLRequest the next byte is a message of its own, and nothing behind it is parsed or taken into TLS."""
    server = core.fresh_server()
    core.engine.send(server.id, SSL_REQUEST)
    assert server.heard() == SSL_REQUEST
    server.say(b"S", b"E")
    assert core.events() == [(Event.MESSAGE, server.id, ord("S"), b"")]
    assert server.facts.recv_pending == 1


def test_a_refused_ssl_request(core: Bench) -> None:
    """After N, the next send lets the server's messages be parsed again."""
    server = core.fresh_server()
    core.engine.send(server.id, SSL_REQUEST)
    server.say(b"N")
    core.events()
    core.engine.send(server.id, STARTUP)
    server.say(auth(0))
    assert core.events() == [(Event.MESSAGE, server.id, ord("R"), b"\0\0\0\0")]


def test_server_dialogue_limit(core: Bench) -> None:
    """A server's message above the dialogue limit freezes it."""
    server = core.fresh_server()
    core.engine.set_dialogue_limit(server.id, 50)
    server.say(message(b"E", b"x" * 45))
    assert core.events() == [(Event.MESSAGE, server.id, ord("E"), b"x" * 45)]
    server.say(b"E\0\0\0\x32")
    assert core.events() == [(Event.OVERSIZE, server.id, b"E\0\0\0\x32")]


def test_eof_in_dialogue(core: Bench) -> None:
    """Whoever leaves in dialogue gives CLOSED with its own reason, and the id is dead."""
    client, server = core.fresh_client(), core.fresh_server()
    client.leave()
    server.leave()
    assert core.events() == [
        (Event.CLOSED, client.id, "client unexpected eof"),
        (Event.CLOSED, server.id, "server conn crashed?"),
    ]
    with pytest.raises(KeyError):
        core.engine.send(client.id, b"x")


def test_verbs_in_the_wrong_mode(core: Bench) -> None:
    """A verb that does not fit the mode is a RuntimeError, and changes nothing."""
    client, server = core.linked()
    for verb in (
        lambda: core.engine.send(client.id, b"x"),
        lambda: core.engine.proceed(client.id, 10),
        lambda: core.engine.park(server.id),
        lambda: core.engine.unwait(client.id),
        lambda: core.engine.unhold(server.id),
    ):
        with pytest.raises(RuntimeError):
            verb()  # type: ignore[no-untyped-call]
    assert (client.mode, server.mode) == ("parked", "idle")


def test_bytes_received_before_admit_are_relayed(core: Bench) -> None:
    """What a client sent behind its login reaches the server once it is admitted."""
    server = core.server()
    client = core.fresh_client()
    client.say(STARTUP, query("select 1"))
    core.events()
    core.engine.admit(client.id, core.pool_id, ())
    assert server.heard() == query("select 1")


def test_close_flushes(core: Bench) -> None:
    """A closing connection is gone once its output is taken."""
    client = core.fresh_client()
    core.engine.close(client.id, b"goodbye")
    assert client.mode == "closing"
    assert client.heard() == b"goodbye"
    assert client.mode == "gone"
    assert core.events() == []


def test_a_client_is_announced_when_it_speaks(core: Bench) -> None:
    """ACCEPTED comes right before the first packet, also behind what others said first."""
    first, second = (Peer(core, core.engine.accept_manual(listener)) for listener in (3, 4))
    assert core.events() == []
    second.say(STARTUP)
    first.say(b"\x16")
    assert core.events() == [
        (Event.ACCEPTED, second.id, 4),
        (Event.PACKET, second.id, STARTUP[4:]),
        (Event.ACCEPTED, first.id, 3),
        (Event.DIRECT_TLS, first.id),
    ]
    core.engine.overdue(0)
    assert core.events() == []


def test_an_oversize_head_announces_too(core: Bench) -> None:
    """OVERSIZE as the first thing a client says comes behind its ACCEPTED."""
    client = Peer(core, core.engine.accept_manual(3))
    client.say(b"\xff\xff\xff\xff")
    assert [event[0] for event in core.events()] == [Event.ACCEPTED, Event.OVERSIZE]


def test_a_silent_client_is_announced_by_overdue(core: Bench) -> None:
    """A client that says nothing, or too little, is announced once by the next `overdue`; its end is then told."""
    silent, slow = (Peer(core, core.engine.accept_manual(3)) for _ in range(2))
    slow.say(STARTUP[:5])
    assert core.events() == []
    assert core.engine.overdue(core.now) == []
    assert core.events() == [(Event.ACCEPTED, silent.id, 3), (Event.ACCEPTED, slow.id, 3)]
    core.engine.overdue(core.now)
    assert core.events() == []
    silent.leave()
    assert core.events() == [(Event.CLOSED, silent.id, "client unexpected eof")]


def test_a_client_that_only_came_and_went_is_never_told(core: Bench) -> None:
    """No ACCEPTED, no CLOSED; not by a later `overdue` either."""
    client = Peer(core, core.engine.accept_manual(3))
    client.say(STARTUP[:3])
    client.leave()
    core.engine.overdue(core.now)
    assert core.events() == []
    assert client.mode == "gone"


@pytest.mark.parametrize("requests", [(SSL_REQUEST, GSSENC_REQUEST), (GSSENC_REQUEST, SSL_REQUEST)])
def test_the_engine_refuses_encryption_itself(core: Bench, requests: tuple[bytes, bytes]) -> None:
    """With `refuse_encryption` each request is answered `N` once and Python hears of nothing but the startup packet."""
    core.limits(refuse_encryption=True)
    client = Peer(core, core.engine.accept_manual(3))
    for request in requests:
        client.say(request)
        assert client.heard() == b"N"
    assert core.events() == []
    client.say(STARTUP)
    assert core.events() == [(Event.ACCEPTED, client.id, 3), (Event.PACKET, client.id, STARTUP[4:])]


def test_a_second_request_for_encryption_goes_to_python(core: Bench) -> None:
    """The engine answers SSLRequest once."""
    core.limits(refuse_encryption=True)
    client = Peer(core, core.engine.accept_manual(3))
    client.say(SSL_REQUEST)
    client.say(SSL_REQUEST)
    assert client.heard() == b"N"
    assert core.events() == [(Event.ACCEPTED, client.id, 3), (Event.PACKET, client.id, SSL_REQUEST[4:])]


def test_bytes_behind_a_request_for_encryption_go_to_python(core: Bench) -> None:
    """The engine does not answer when something stands behind the request: Python refuses such a client."""
    core.limits(refuse_encryption=True)
    client = Peer(core, core.engine.accept_manual(3))
    core.engine.received(client.id, SSL_REQUEST + STARTUP)
    assert client.heard() == b""
    assert core.events() == [(Event.ACCEPTED, client.id, 3), (Event.PACKET, client.id, SSL_REQUEST[4:])]
    assert client.facts.recv_pending == len(STARTUP)


def test_the_answer_of_the_engine_rules_out_direct_tls(core: Bench) -> None:
    """After the engine's `N` a handshake byte is a length out of bounds."""
    core.limits(refuse_encryption=True)
    client = Peer(core, core.engine.accept_manual(3))
    client.say(SSL_REQUEST)
    core.engine.received(client.id, b"\x16\x03\x01\0")
    assert core.events() == [(Event.ACCEPTED, client.id, 3), (Event.OVERSIZE, client.id, b"\x16\x03\x01\0")]


def test_a_known_client_gets_its_answers_from_python(core: Bench) -> None:
    """Once a client is announced, its requests for encryption are Python's, who knows whether TLS is on."""
    core.limits(refuse_encryption=True)
    client = core.fresh_client()
    client.say(SSL_REQUEST)
    assert client.heard() == b""
    assert core.events() == [(Event.PACKET, client.id, SSL_REQUEST[4:])]


def test_a_welcome_goes_before_what_is_relayed(core: Bench) -> None:
    """`admit` sends the welcome, then handles what the client has sent ahead."""
    core.pool()
    client = core.fresh_client()
    client.say(STARTUP, b"S\0\0\0\x04")
    core.events()
    core.engine.admit(client.id, core.pool_id, (("TimeZone", "UTC"),), 0, -1, b"welcome")
    assert client.heard() == b"welcomeZ\0\0\0\x05I"


def test_proceed_answers_first(core: Bench) -> None:
    """`proceed` sends what it is given, then lets the client go on."""
    client = core.fresh_client()
    client.say(STARTUP, message(b"p", b"x"))
    core.events()
    core.engine.proceed(client.id, 100, b"answer")
    assert client.heard() == b"answer"
    assert core.events() == [(Event.MESSAGE, client.id, ord("p"), b"x")]


def test_a_known_tuple_of_parameters_counts_as_equal(core: Bench) -> None:
    """Clients admitted with the same tuple, an equal one or a list have the same parameters."""
    core.pool()
    pairs = (("TimeZone", "CET"),)
    for given in (pairs, pairs, (("TimeZone", "CET"),), [("TimeZone", "CET")]):
        client = core.client(given)
        assert core.engine.parameters(client.id) == {"TimeZone": "CET"}
