"""The authentication exchange with clients."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

from pgshoal.auth.secret import derive_verifier
from pgshoal.config.model import Secret
from pgshoal.worker.log import ERROR
from tests.support import messages as m
from tests.support.scram import ScramClient
from tests.worker.stub import Bench, Talk

PASSWORD = "alice-secret"
SCRAM_TEXT = derive_verifier(PASSWORD, 4096, b"0123456789abcdef").text()
MD5_TEXT = "md5" + hashlib.md5((PASSWORD + "alice").encode()).hexdigest()
SECRETS = {"plain": Secret("plain", PASSWORD), "md5": Secret("md5", MD5_TEXT), "scram": Secret("scram", SCRAM_TEXT)}


def bench(kind: str, auth_type: str) -> Bench:
    """A worker whose alice has a secret of this kind."""
    return Bench({"alice": SECRETS[kind]}, auth_type=auth_type)


def noting(worked: list[object], plain: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The same thread, with a note of what it was asked to do."""

    def offload(work: Any, done: Any) -> None:
        worked.append(work)
        plain(work, done)

    return offload


def sasl_initial(data: bytes, mechanism: str = "SCRAM-SHA-256") -> bytes:
    """The content of a SASLInitialResponse."""
    return m.text(mechanism) + struct.pack("!i", len(data)) + data


def scram(talk: Talk, password: str) -> None:
    """The whole exchange as a client does it."""
    client = ScramClient(password)
    (offer,) = talk.messages()
    assert offer.payload == struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"
    talk.password(sasl_initial(client.first()))
    (challenge,) = talk.messages()
    assert challenge.payload[:4] == struct.pack("!i", 11)
    talk.password(client.answer(challenge.payload[4:]))
    if talk.open:
        final = talk.messages()[0]
        assert final.payload[:4] == struct.pack("!i", 12)
        client.check(final.payload[4:])


def md5(talk: Talk, user: str, password: str) -> None:
    """The answer to the challenge that stands in the output."""
    (challenge,) = talk.messages()
    assert challenge.payload[:4] == struct.pack("!i", 5)
    inner = hashlib.md5((password + user).encode()).hexdigest()
    talk.password(m.text("md5" + hashlib.md5(inner.encode() + challenge.payload[4:]).hexdigest()))


@pytest.mark.parametrize("kind", SECRETS)
def test_plain_verifies_every_kind_of_secret(kind: str) -> None:
    """A cleartext password is checked against plain, md5 and SCRAM secrets."""
    with bench(kind, "plain") as b:
        talk = b.login()
        assert talk.messages()[0].payload == struct.pack("!i", 3)
        talk.password(b"alice-secret\0")
        assert talk.client is not None
        wrong = b.login()
        wrong.password(b"alice-secreT\0")
        assert wrong.refused() == "password authentication failed"


def test_an_empty_password_has_its_own_text() -> None:
    """An empty password is told apart from a wrong one."""
    with bench("plain", "plain") as b:
        talk = b.login()
        talk.password(b"\0")
        assert talk.refused() == "empty password returned by client"


@pytest.mark.parametrize("kind", ["plain", "md5"])
def test_md5_verifies_plain_and_md5_secrets(kind: str) -> None:
    """The answer to the salted challenge must fit."""
    with bench(kind, "md5") as b:
        talk = b.login()
        md5(talk, "alice", PASSWORD)
        assert talk.client is not None
        wrong = b.login()
        md5(wrong, "alice", "other")
        assert wrong.refused() == "password authentication failed"


def test_md5_with_a_scram_secret_becomes_scram() -> None:
    """That login is made with SASL instead."""
    with bench("scram", "md5") as b:
        talk = b.login()
        scram(talk, PASSWORD)
        assert talk.client is not None


@pytest.mark.parametrize("kind", ["plain", "scram"])
def test_scram_verifies_plain_and_scram_secrets(kind: str) -> None:
    """Right passwords get in, wrong ones fail with one text."""
    with bench(kind, "scram-sha-256") as b:
        talk = b.login()
        scram(talk, PASSWORD)
        assert talk.client is not None
        wrong = b.login()
        scram(wrong, "other")
        assert wrong.refused() == "SASL authentication failed"
        assert (ERROR, True) in [
            (level, text.endswith(" password authentication failed")) for level, text in b.log.lines
        ]


def test_keys_are_kept_only_from_a_stored_scram_secret() -> None:
    """The pool's own login can use them; those of a secret made up for one process would fit no server."""
    for kind, kept in (("scram", True), ("plain", False)):
        with bench(kind, "scram-sha-256") as b:
            scram(b.login(), PASSWORD)
            assert (b.worker.pools.users["alice"].scram_keys is not None) is kept


def test_scram_cannot_use_an_md5_secret() -> None:
    """The exchange fails like any other, and the log says why."""
    with bench("md5", "scram-sha-256") as b:
        talk = b.login()
        scram(talk, PASSWORD)
        assert talk.refused() == "SASL authentication failed"
        assert "SCRAM authentication failed: user has MD5 secret" in b.log.texts()


def test_a_plain_secret_is_derived_once() -> None:
    """The second login with the same secret does not go to the thread."""
    with bench("plain", "scram-sha-256") as b:
        worked: list[object] = []
        b.worker.offload = noting(worked, b.worker.offload)  # type: ignore[method-assign,assignment]
        scram(b.login(), PASSWORD)
        scram(b.login(), PASSWORD)
        assert len(worked) == 1


def test_a_client_that_leaves_while_its_secret_is_derived_is_forgotten() -> None:
    """The thread's result comes to nobody and does no harm."""
    with bench("plain", "scram-sha-256") as b:
        later: list[tuple[Any, Any]] = []

        def postpone(work: Any, done: Any) -> None:
            later.append((work, done))

        b.worker.offload = postpone  # type: ignore[method-assign]
        talk = b.login()
        talk.gone()
        ((work, done),) = later
        done(work())
        assert talk.got == b""


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
@pytest.mark.parametrize("database", ["app", "nodb"])
def test_unknown_users_get_the_same_exchange(auth_type: str, database: str) -> None:
    """Request and refusal are those of a wrong password; the text tells nothing of user or database."""
    with bench("plain", auth_type) as b:
        ghost, wrong = b.login("ghost", database), b.login("alice", database)
        for talk, name in ((ghost, "ghost"), (wrong, "alice")):
            if auth_type == "plain":
                talk.password(b"guess\0")
            elif auth_type == "md5":
                md5(talk, name, "guess")
            else:
                scram(talk, "guess")
        assert ghost.refused() == wrong.refused() != ""


def test_a_made_up_salt_stays_the_same() -> None:
    """Asked twice about a user who does not exist, the server's first message has the same salt and rounds."""
    with bench("plain", "scram-sha-256") as b:
        salts = set()
        for _ in range(2):
            talk = b.login("ghost")
            talk.messages()
            talk.password(sasl_initial(ScramClient("x").first()))
            salts.add(talk.messages()[0].payload.split(b",s=")[1])
        assert len(salts) == 1


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_an_empty_stored_secret_lets_nobody_in(auth_type: str) -> None:
    """Neither an empty password nor any other fits it."""
    with Bench({"alice": Secret("empty", "")}, auth_type=auth_type) as b:
        talk = b.login()
        if auth_type == "plain":
            talk.password(b"x\0")
        elif auth_type == "md5":
            md5(talk, "alice", "")
        else:
            scram(talk, "")
        assert talk.client is None
        assert talk.refused().endswith("authentication failed")


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_a_second_startup_packet_is_refused(auth_type: str) -> None:
    """Identity is fixed by the first one, at every step of the exchange."""
    with bench("plain", auth_type) as b:
        talk = b.login()
        talk.oversize(b"\0\0\x20\0\0")
        assert talk.refused() == "client re-sent startup pkt"
        talk = b.login()
        talk.message(b"\0" + struct.pack("!i", 8) + b"user")
        assert talk.refused() == "client re-sent startup pkt"


def test_a_second_startup_packet_within_scram_is_refused() -> None:
    """Also between the two messages of the exchange, for a database that does not exist."""
    with bench("plain", "scram-sha-256") as b:
        talk = b.login("ghost", "nodb")
        talk.password(sasl_initial(ScramClient("x").first()))
        talk.oversize(b"\0\0\x20\0\0")
        assert talk.refused() == "client re-sent startup pkt"


@pytest.mark.parametrize("kind", ["Q", "X", "P", "\x7f"])
def test_other_messages_end_the_login_without_a_word(kind: str) -> None:
    """A client that does not answer the request is closed."""
    with bench("plain", "md5") as b:
        talk = b.login()
        talk.message(m.message(kind.encode(), b"select 1\0"))
        assert talk.refused() == ""
        assert "closing because: bad packet" in b.log.texts()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"SCRAM-SHA-256",
        b"SCRAM-SHA-256\0",
        b"SCRAM-SHA-256\0\x7f\xff\xff\xff",
        b"SCRAM-SHA-256\0\xff\xff\xff\xfe",
        sasl_initial(b""),
        sasl_initial(b"n,,"),
        sasl_initial(b"n,,n=,r="),
        sasl_initial(b"p=tls-server-end-point,,n=,r=abc"),
        sasl_initial(b"n,,n=,r=" + b"x" * 1900),
    ],
)
def test_malformed_first_scram_messages_fail(first: bytes) -> None:
    """Lengths that lie, missing parts and channel binding that was not offered are authentication failures."""
    with bench("plain", "scram-sha-256") as b:
        talk = b.login()
        talk.password(first)
        assert talk.refused() == "SASL authentication failed"


@pytest.mark.parametrize("final", [b"", b"c=biws", b"c=biws,p=abc", b"c=biws,r=,p=AAAA", b"p=", b"r=x,p=" + b"A" * 44])
@pytest.mark.parametrize("user", ["alice", "ghost"])
def test_malformed_final_scram_messages_fail(final: bytes, user: str) -> None:
    """A final message without nonce or proof is a failure, for unknown users too."""
    with bench("plain", "scram-sha-256") as b:
        talk = b.login(user)
        talk.password(sasl_initial(ScramClient("x").first()))
        talk.password(final)
        assert talk.refused() == "SASL authentication failed"


def test_other_mechanisms_are_refused() -> None:
    """Only what was offered may be chosen."""
    with bench("plain", "scram-sha-256") as b:
        talk = b.login()
        talk.password(sasl_initial(b"n,,n=,r=abc", "SCRAM-SHA-256-PLUS"))
        assert talk.refused() == "client selected an invalid SASL authentication mechanism"


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_no_secret_reaches_the_log(auth_type: str) -> None:
    """Neither the stored secret nor what the client sent is in any line."""
    with bench("plain", auth_type) as b:
        b.worker.log.set_verbose(2)
        talk = b.login()
        if auth_type == "plain":
            talk.password(b"my-guess\0")
        elif auth_type == "md5":
            md5(talk, "alice", "my-guess")
        else:
            scram(talk, "my-guess")
        assert PASSWORD not in b.log.texts()
        assert "my-guess" not in b.log.texts()


def test_guesses_at_users_that_do_not_exist_cost_the_same() -> None:
    """Where users have SCRAM secrets, a cleartext guess is derived and a challenge has their number of rounds."""
    text = derive_verifier(PASSWORD, 5000, b"0123456789abcdef").text()
    with Bench({"alice": Secret("scram", text)}, auth_type="plain") as b:
        worked: list[object] = []
        b.worker.offload = noting(worked, b.worker.offload)  # type: ignore[method-assign,assignment]
        for name in ("alice", "ghost"):
            talk = b.login(name)
            talk.password(b"guess\0")
            assert talk.refused() == "password authentication failed"
        assert len(worked) == 2
    with Bench({"alice": Secret("scram", text)}, auth_type="scram-sha-256") as b:
        for name in ("alice", "ghost"):
            talk = b.login(name)
            talk.messages()
            talk.password(sasl_initial(ScramClient("x").first()))
            assert talk.messages()[0].payload.endswith(b",i=5000")


@pytest.mark.parametrize(
    ("header", "text"),
    [(b"p\0\0\xea\x6d", "SASL authentication failed"), (b"p\x7f\xff\xff\xff", "bad packet header: '707fffffff'")],
)
def test_a_scram_message_over_the_limit(header: bytes, text: str) -> None:
    """A long one is a failed authentication like any other; what no password message can be is no message."""
    with Bench({"alice": Secret("plain", "pw")}, auth_type="scram-sha-256") as bench:
        talk = bench.login()
        talk.oversize(header)
        assert talk.refused() == text


BINDING = b"hash of our certificate"
PLUS, PLAIN = "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"
BOUND = "p=tls-server-end-point,,"


def tls_login(b: Bench, user: str = "alice") -> Talk:
    """A client that has come over TLS and sent its startup packet."""
    b.worker.tls.client = object()
    talk = b.accept()
    talk.packet(b"\0\0\0\x08\x04\xd2\x16\x2f")
    assert talk.got == b"S"
    talk.secured()
    talk.startup(user)
    return talk


def attempt(talk: Talk, mechanism: str, gs2: str, binding: bytes = b"") -> bool:
    """The exchange with this mechanism, header and binding; whether the client gets in."""
    client = ScramClient(PASSWORD, gs2, binding)
    talk.got  # noqa: B018
    talk.password(sasl_initial(client.first(), mechanism))
    if talk.open:
        talk.password(client.answer(talk.messages()[0].payload[4:]))
    if talk.open:
        client.check(talk.messages()[0].payload[4:])
    return talk.client is not None


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_plus_is_offered_first_over_tls_and_only_there(user: str) -> None:
    """Everybody sees the same offer, known or not; without TLS, or without a binding, it is SCRAM alone."""
    both = struct.pack("!i", 10) + m.text(PLUS) + m.text(PLAIN) + b"\0"
    one = struct.pack("!i", 10) + m.text(PLAIN) + b"\0"
    with bench("scram", "scram-sha-256") as b:
        b.worker.tls.binding = BINDING
        assert tls_login(b, user).messages()[0].payload == both
        assert b.login(user).messages()[0].payload == one
        b.worker.tls.binding = None
        assert tls_login(b, user).messages()[0].payload == one


@pytest.mark.parametrize(
    ("mechanism", "gs2", "binding", "enters"),
    [
        (PLUS, BOUND, BINDING, True),
        (PLAIN, "n,,", b"", True),
        (PLAIN, "y,,", b"", False),
        (PLUS, BOUND, b"another certificate", False),
        (PLUS, BOUND, b"", False),
        (PLUS, "n,,", b"", False),
        (PLUS, "p=tls-unique,,", BINDING, False),
        (PLAIN, BOUND, BINDING, False),
    ],
)
def test_binding_is_verified_and_a_stripped_offer_noticed(
    mechanism: str, gs2: str, binding: bytes, enters: bool
) -> None:
    """RFC 5802: who would bind but saw no offer of it had somebody between; what is bound must be our certificate."""
    with bench("scram", "scram-sha-256") as b:
        b.worker.tls.binding = BINDING
        talk = tls_login(b)
        assert attempt(talk, mechanism, gs2, binding) is enters
        if not enters:
            assert talk.refused() == "SASL authentication failed"
        else:
            assert b.worker.pools.users["alice"].scram_keys is not None


def test_unknown_users_fail_at_the_same_step_with_plus() -> None:
    """The mock exchange is bound, too, and fails only at the proof."""
    with bench("scram", "scram-sha-256") as b:
        b.worker.tls.binding = BINDING
        for user in ("nobody", "alice"):
            talk, client = tls_login(b, user), ScramClient("wrong", BOUND, BINDING)
            talk.got  # noqa: B018
            talk.password(sasl_initial(client.first(), PLUS))
            talk.password(client.answer(talk.messages()[0].payload[4:]))
            assert talk.refused() == "SASL authentication failed"


def test_a_new_certificate_does_not_touch_connections_that_exist() -> None:
    """What is bound is the certificate of the connection's own handshake."""
    with bench("scram", "scram-sha-256") as b:
        b.worker.tls.binding = BINDING
        talk = tls_login(b)
        b.worker.tls.binding = b"hash of the next certificate"
        assert attempt(talk, PLUS, BOUND, BINDING)
        assert attempt(tls_login(b), PLUS, BOUND, b"hash of the next certificate")


def test_plus_without_an_offer_is_no_mechanism() -> None:
    """Outside TLS nobody can choose it."""
    with bench("scram", "scram-sha-256") as b:
        b.worker.tls.binding = BINDING
        talk = b.login()
        assert not attempt(talk, PLUS, BOUND, BINDING)
        assert talk.refused() == "client selected an invalid SASL authentication mechanism"
