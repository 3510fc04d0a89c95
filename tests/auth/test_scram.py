"""Tests for both roles of pgshoal.auth.scram: the RFC's example, each other, and every refusal."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgshoal.auth.failed import AuthFailed, BadMechanism
from pgshoal.auth.keys import KeyCache
from pgshoal.auth.scram import MESSAGE_MAX, SCRAM, SCRAM_PLUS, ScramClient, ScramServer, ScramState, offered
from pgshoal.auth.secret import (
    Keys,
    Verifier,
    decode64,
    derive_keys,
    derive_verifier,
    mock_verifier,
)
from tests.auth.exchange import play
from tests.support.scram import ScramClient as OtherClient

# RFC 7677 section 3.
RFC_SALT = decode64(b"W22ZaJ0SNY7soEsUEjb6gQ==") or b""
RFC_CLIENT_NONCE = b"rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

BINDING = b"certificate hash"
# Few rounds keep the tests quick; nothing here depends on their number.
PENCIL = derive_verifier("pencil", 3, b"0123456789abcdef")
STORED = replace(PENCIL, stored=True)


def new_client(cbind: bytes | None = None, password: str = "pencil") -> ScramClient:
    """A client that is offered what a server with this binding offers."""
    return ScramClient(password, offered(cbind), cbind)


def after_first(server: ScramServer) -> bytes:
    """The server's first message to a client whose nonce is `abc`."""
    return server.feed(b"n,,n=,r=abc")


# The RFC's example


def test_server_follows_the_rfc_example() -> None:
    """RFC 7677: the server's two messages are those of the example."""
    server = ScramServer(derive_verifier("pencil", 4096, RFC_SALT), nonce=RFC_SERVER_NONCE)
    assert server.feed(RFC_CLIENT_FIRST) == RFC_SERVER_FIRST
    assert server.feed(RFC_CLIENT_FINAL) == RFC_SERVER_FINAL
    assert server.done


def test_client_follows_the_rfc_example() -> None:
    """RFC 7677: the client's two messages are those of the example, and the server's signature satisfies it."""
    client = ScramClient("pencil", [SCRAM], user="user", nonce=RFC_CLIENT_NONCE)
    assert client.start() == RFC_CLIENT_FIRST
    assert client.feed(RFC_SERVER_FIRST) is None
    work = client.needs_work()
    assert work is not None
    assert client.resume(work()) == RFC_CLIENT_FINAL
    assert not client.done
    assert client.feed(RFC_SERVER_FINAL) == b""
    assert client.done


# Both roles against each other


@pytest.mark.parametrize("cbind", [None, BINDING])
def test_roles_agree_with_and_without_channel_binding(cbind: bytes | None) -> None:
    """The right password succeeds; with something to bind to, the client picks PLUS."""
    client = new_client(cbind)
    server = ScramServer(PENCIL, client.mechanism, cbind)
    play(client, server)
    assert client.done
    assert server.done
    assert client.mechanism == (SCRAM if cbind is None else SCRAM_PLUS)


def test_wrong_password_fails_at_the_server() -> None:
    """A proof made from another password is refused, and the exchange is over."""
    server = ScramServer(PENCIL)
    with pytest.raises(AuthFailed) as caught:
        play(new_client(password="pen"), server)
    assert caught.value.reason == "password authentication failed"
    assert server.state is ScramState.FAILED


def test_client_written_by_others_is_served() -> None:
    """A client built from the RFC alone logs in and accepts our signature."""
    server = ScramServer(PENCIL)
    other = OtherClient("pencil")
    other.check(server.feed(other.answer(server.feed(other.first()))))
    assert server.done


def test_keys_of_a_stored_secret_log_in_elsewhere() -> None:
    """After a login with a stored SCRAM secret, the recovered keys alone satisfy another server with that secret."""
    first = ScramServer(STORED)
    play(new_client(), first)
    assert first.keys == derive_keys("pencil", STORED.salt, STORED.iterations)
    second = ScramServer(STORED)
    client = ScramClient(first.keys, [SCRAM])
    play(client, second)
    assert second.done
    assert client.needs_work() is None


def test_keys_of_an_ad_hoc_secret_are_not_handed_out() -> None:
    """Keys under our own salt fit no other server, so a plain secret yields none."""
    server = ScramServer(PENCIL)
    play(new_client(), server)
    assert server.keys is None


def test_no_keys_before_or_after_a_failure() -> None:
    """A failed login leaves no keys behind."""
    server = ScramServer(STORED)
    with pytest.raises(AuthFailed):
        play(new_client(password="x"), server)
    assert server.keys is None


def test_unknown_user_runs_the_same_exchange_and_fails() -> None:
    """The mock exchange looks like a real one up to the proof and keeps its salt between attempts."""
    firsts = []
    for _ in range(2):
        server = ScramServer(mock_verifier("nobody", b"key", 4096), nonce=b"fixed")
        firsts.append(after_first(server))
        with pytest.raises(AuthFailed) as caught:
            server.feed(b"c=biws,r=abcfixed,p=" + b"A" * 43 + b"=")
        assert caught.value.reason == "password authentication failed"
    assert firsts[0] == firsts[1]
    assert firsts[0].startswith(b"r=abcfixed,s=")
    assert firsts[0] != after_first(ScramServer(mock_verifier("noone", b"key", 4096), nonce=b"fixed"))


def test_mock_verifier_fails_even_the_right_proof() -> None:
    """A verifier marked as mock cannot be satisfied, whatever its keys are."""
    mock = Verifier(PENCIL.iterations, PENCIL.salt, PENCIL.stored_key, PENCIL.server_key, mock=True)
    with pytest.raises(AuthFailed):
        play(new_client(), ScramServer(mock))


# The server's refusals


def test_client_that_sees_no_binding_offer_is_accepted() -> None:
    """The flag y is fine where none was offered, and a sign of an attack where one was."""
    assert ScramServer(PENCIL).feed(b"y,,n=,r=abc").startswith(b"r=abc")
    with pytest.raises(AuthFailed):
        ScramServer(PENCIL, SCRAM, BINDING).feed(b"y,,n=,r=abc")


@pytest.mark.parametrize(
    ("mechanism", "cbind", "message"),
    [
        (SCRAM, None, b"p=tls-server-end-point,,n=,r=abc"),
        (SCRAM, BINDING, b"p=tls-server-end-point,,n=,r=abc"),
        (SCRAM_PLUS, BINDING, b"p=tls-unique,,n=,r=abc"),
        (SCRAM_PLUS, BINDING, b"n,,n=,r=abc"),
        (SCRAM_PLUS, BINDING, b"y,,n=,r=abc"),
    ],
)
def test_binding_must_match_the_mechanism(mechanism: str, cbind: bytes | None, message: bytes) -> None:
    """Binding without PLUS, PLUS without binding, and other binding types are refused."""
    with pytest.raises(AuthFailed):
        ScramServer(PENCIL, mechanism, cbind).feed(message)


def test_binding_to_another_certificate_is_refused() -> None:
    """A client that saw another certificate than ours is not talking to us directly."""
    with pytest.raises(AuthFailed):
        play(new_client(b"other certificate"), ScramServer(PENCIL, SCRAM_PLUS, BINDING))


def test_mechanisms_that_were_not_offered_are_refused() -> None:
    """PLUS needs something to bind to; unknown names are refused with a type of their own."""
    for mechanism in (SCRAM_PLUS, "SCRAM-SHA-1", ""):
        with pytest.raises(BadMechanism):
            ScramServer(PENCIL, mechanism)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"n,,n=", b"n,,n=,", b"n,,n=,r=", b"n,,r=abc", b"n,a=x,n=,r=abc", b"n,,m=x,n=,r=abc",
        b"x,,n=,r=abc", b"n,,n=,r=a\xffc", b"n,,n=,r=a c", b"n,,n=,r=abc\0", b"p=,,n=,r=abc", b"n,,n=,r=abc\x7f",
        b"n,,n=,r=" + b"a" * MESSAGE_MAX,
    ],
)  # fmt: skip
def test_malformed_first_messages_fail(message: bytes) -> None:
    """A first message off the grammar, or too long, is a failed login."""
    with pytest.raises(AuthFailed):
        ScramServer(PENCIL).feed(message)


def test_extensions_and_user_names_are_ignored() -> None:
    """Attributes after the nonce and any user name in the exchange change nothing."""
    assert ScramServer(PENCIL, nonce=b"N").feed(b"n,,n=evil,r=abc,x=1").startswith(b"r=abcN,")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"c=biws", b"c=biws,r=abcN", b"c=biws,p=AAAA", b"c=biws,,p=AAAA", b"p=AAAA", b",p=", b"c=,r=abcN,p=AAAA",
        b"c=biws,r=abcX,p=AAAA", b"c=biws,r=abcNN,p=AAAA", b"c=eSws,r=abcN,p=AAAA", b"c=biws,r=abcN,p=",
        b"c=biws,r=abcN,p=AAAA", b"c=biws,r=abcN,p=!!!!", b"c=biws,r=abcN,p=" + b"A" * 44, b"r=abcN,c=biws,p=AAAA",
        b"c=biws,r=abcN,p=\xff\xff", b"c=biws,r=abcN,p=" + b"A" * MESSAGE_MAX,
    ],
)  # fmt: skip
@pytest.mark.parametrize("verifier", [PENCIL, mock_verifier("nobody", b"k", 3)])
def test_malformed_final_messages_fail(message: bytes, verifier: Verifier) -> None:
    """CVE-2026-19888, CVE-2026-6664: a final message without nonce, or broken otherwise, is a failed login."""
    server = ScramServer(verifier, nonce=b"N")
    after_first(server)
    with pytest.raises(AuthFailed):
        server.feed(message)
    assert server.state is ScramState.FAILED


def test_nothing_is_accepted_after_the_end() -> None:
    """A third message, or any after a failure, is refused and undoes success."""
    server = ScramServer(PENCIL)
    play(new_client(), server)
    with pytest.raises(AuthFailed):
        server.feed(b"n,,n=,r=abc")
    assert not server.done


def test_initial_response_without_data_gets_an_empty_challenge() -> None:
    """A client that waits for a challenge may send its first message next."""
    server = ScramServer(PENCIL)
    assert server.feed(None) == b""
    assert after_first(server).startswith(b"r=abc")
    with pytest.raises(AuthFailed):
        server.feed(None)


# The client's refusals


def test_client_without_binding_tells_the_server_whether_it_could() -> None:
    """Without TLS the flag is n; with TLS and no PLUS on offer it is y; PLUS without TLS is not taken."""
    assert ScramClient("x", [SCRAM]).start().startswith(b"n,,")
    assert ScramClient("x", [SCRAM], BINDING).start().startswith(b"y,,")
    plain = ScramClient("x", [SCRAM_PLUS, SCRAM])
    assert plain.mechanism == SCRAM
    assert plain.start().startswith(b"n,,")


@pytest.mark.parametrize("mechanisms", [[], ["GS2-KRB5"], [SCRAM_PLUS]])
def test_server_without_a_usable_mechanism_is_refused(mechanisms: list[str]) -> None:
    """A server that offers nothing we can do ends the login."""
    with pytest.raises(BadMechanism):
        ScramClient("x", mechanisms)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"r=N", b"r=N,s=AAAA,i=1", b"r=X123,s=AAAA,i=1", b"r=N1,s=,i=1", b"r=N1,s=!,i=1", b"r=N1,s=AAA,i=1",
        b"r=N1,s=AAAA,i=0", b"r=N1,s=AAAA,i=-1", b"r=N1,s=AAAA,i=1000001", b"r=N1,s=AAAA,i=99999999999999999999",
        b"r=N1,s=AAAA,i=1_0", b"r=N1,s=AAAA,i=", b"r=N1,s=AAAA,i=\xd9\xa1", b"m=x,r=N1,s=AAAA,i=1",
        b"r=N1\xff,s=AAAA,i=1", b"r=N" + b"1" * 65_536 + b",s=AAAA,i=1", b"e=other-error", b"r=N1,s=AAAA,i=1\0",
    ],
)  # fmt: skip
def test_malformed_server_first_messages_fail(message: bytes) -> None:
    """CVE-2026-6665, CVE-2026-6669: endless nonces, huge iteration counts and broken messages fail cleanly."""
    client = ScramClient("pencil", [SCRAM], nonce=b"N")
    with pytest.raises(AuthFailed):
        client.feed(message)
    assert client.needs_work() is None


def test_largest_iteration_count_waits_for_its_work_outside() -> None:
    """CVE-2026-6669: a million rounds are legal but are handed out as work, not done in the exchange."""
    client = ScramClient("pencil", [SCRAM], nonce=b"N")
    assert client.feed(b"r=N1,s=AAAA,i=1000000") is None
    assert client.needs_work() is not None
    assert client.state is ScramState.WORK


def test_work_does_not_touch_the_exchange() -> None:
    """The work may run in a thread while the login is given up: running it changes no state."""
    client = ScramClient("pencil", [SCRAM], nonce=b"N")
    client.feed(b"r=N1,s=AAAA,i=2")
    work = client.needs_work()
    assert work is not None
    with pytest.raises(AuthFailed):
        client.feed(b"v=AAAA")
    assert work() == derive_keys("pencil", b"\0\0\0", 2)
    assert client.state is ScramState.FAILED
    with pytest.raises(AuthFailed):
        client.resume(work())


@pytest.mark.parametrize("message", [b"", b"v=", b"v=AAAA", b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"v=\xff"])
def test_server_that_does_not_prove_itself_is_refused(message: bytes) -> None:
    """A wrong, broken or missing server signature fails the login."""
    client = new_client()
    server = ScramServer(PENCIL)
    assert client.feed(server.feed(client.start())) is None
    work = client.needs_work()
    assert work is not None
    client.resume(work())
    with pytest.raises(AuthFailed):
        client.feed(message)
    assert not client.done


def test_user_names_are_escaped() -> None:
    """Commas and equal signs in a name cannot add attributes."""
    assert ScramClient("x", [SCRAM], user="a=b,c", nonce=b"N").start() == b"n,,n=a=3Db=2Cc,r=N"


def test_remembered_keys_spare_the_work() -> None:
    """After one success with a cache, the next login to the same salt needs no derivation; a failure is not kept."""
    cache = KeyCache()
    with pytest.raises(AuthFailed):
        play(ScramClient("wrong", [SCRAM], cache=cache), ScramServer(PENCIL))
    assert cache.salted("wrong", PENCIL.salt, PENCIL.iterations) is None
    play(ScramClient("pencil", [SCRAM], cache=cache), ScramServer(PENCIL))
    again = ScramClient("pencil", [SCRAM], cache=cache)
    assert again.feed(ScramServer(PENCIL).feed(again.start())) is not None


def test_secrets_do_not_show_in_representations() -> None:
    """Keys and verifiers may be printed by a debugger or a log without giving anything away."""
    assert repr(Keys(b"secret", b"secret")) == "Keys(...)"
    assert "key" not in repr(PENCIL)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_client_messages_raise_nothing_but_auth_failed(first: bytes, final: bytes) -> None:
    """The server role lets no other exception out, whatever the client sends."""
    for opening in (first, b"n,,n=,r=" + first, b"n,,n=,r=abc"):
        server = ScramServer(PENCIL, nonce=b"N")
        with suppress(AuthFailed):
            server.feed(opening)
            server.feed(b"c=biws,r=abcN," + final if opening.endswith(b"=abc") else final)
        assert not server.done


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_server_messages_raise_nothing_but_auth_failed(first: bytes, final: bytes) -> None:
    """The client role lets no other exception out, whatever the server sends."""
    for opening in (first, b"r=N" + first, b"r=N1,s=" + first + b",i=1", b"r=N1,s=AAAA,i=" + first, b"r=N1,s=AAAA,i=1"):
        client = ScramClient("pencil", [SCRAM], nonce=b"N")
        with suppress(AuthFailed):
            if client.feed(opening) is None:
                client.resume(Keys(bytes(32), bytes(32)))
            client.feed(final)
        assert not client.done


def test_every_truncation_of_the_final_message_fails() -> None:
    """The example's final message, cut at any byte, logs nobody in."""
    verifier = derive_verifier("pencil", 4096, RFC_SALT)
    for size in range(len(RFC_CLIENT_FINAL)):
        server = ScramServer(verifier, nonce=RFC_SERVER_NONCE)
        server.feed(RFC_CLIENT_FIRST)
        with pytest.raises(AuthFailed):
            server.feed(RFC_CLIENT_FINAL[:size])
