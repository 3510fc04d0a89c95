"""Clients whose password is judged outside, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pgshoal.auth import ldap, pam
from pgshoal.auth.outside import Answer
from pgshoal.config.hba import parse_hba
from pgshoal.config.ldap import LdapOptions
from pgshoal.config.model import Secret
from pgshoal.worker.server_login import credential
from tests.support import messages as m
from tests.worker.stub import Bench, Talk

NO = Answer(False, "it says no")
YES = Answer(True)


class Outside(Bench):
    """A worker whose questions wait until the test answers them."""

    def __init__(self, auth_type: str = "ldap", hba: str = "", **settings: Any) -> None:
        super().__init__(
            {"alice": Secret("plain", "on-file"), "bob": Secret("empty", "")}, auth_type=auth_type, **settings
        )
        self.asked: list[tuple[Callable[[Answer], None], Callable[[], bool]]] = []
        self.questions: list[Callable[[], Answer]] = []
        self.full = False
        self.worker.config = replace(
            self.worker.config, ldap=LdapOptions(("127.0.0.1",), prefix="x"), hba=parse_hba(hba, "hba.conf").rules
        )
        self.worker.ask_outside = self._ask  # type: ignore[method-assign,assignment]

    def _ask(self, question: Any, done: Callable[[Answer], None], wanted: Callable[[], bool]) -> bool:
        if not self.full:
            self.asked.append((done, wanted))
            self.questions.append(question)
        return not self.full

    def typed(self, user: str = "alice", database: str = "app", password: str = "typed") -> Talk:
        """A client that has sent its password."""
        talk = self.login(user, database)
        assert talk.messages()[-1].payload == b"\0\0\0\x03"
        talk.password(m.text(password))
        return talk

    def answer(self, answer: Answer) -> None:
        """To the oldest question."""
        self.asked.pop(0)[0](answer)


@pytest.mark.parametrize(
    ("auth_type", "text"), [("ldap", "LDAP authentication failed"), ("pam", "PAM authentication failed")]
)
def test_the_answer_decides(auth_type: str, text: str) -> None:
    """A yes lets in, a no does not, whoever the user is; only the log learns why."""
    with Outside(auth_type) as b:
        for user in ("alice", "bob", "carol"):
            talk = b.typed(user)
            assert talk.open
            assert talk.client is None
            b.answer(YES)
            assert talk.client is not None
            assert talk.client.user.name == user
        wrong = b.typed("ghost")
        b.answer(NO)
        assert wrong.refused() == text
        assert "it says no" in b.log.texts()
        assert "typed" not in b.log.texts()


def test_nobody_is_told_apart_before_the_answer() -> None:
    """Known and unknown users, databases that exist and others: for each a password is asked, and the question made."""
    with Outside() as b:
        for user in ("alice", "ghost"):
            for database in ("app", "nowhere"):
                b.typed(user, database)
        assert len(b.asked) == 4
        assert "no such user" not in b.log.texts()


def test_the_typed_password_logs_in_to_the_server() -> None:
    """It beats what is on file; the one typed last counts; it is kept for its database only."""
    with Outside() as b:
        for password in ("first", "second"):
            b.typed("alice", password=password)
            b.answer(YES)
        pools = b.worker.pools
        pool = pools.by_key["app", "alice"]
        assert credential(b.worker.config, pool) == Secret("plain", "second")
        assert "second" not in repr(pool.user)
        other = pools.pool(pools.databases["forced"], pool.user)
        assert credential(b.worker.config, other) != Secret("plain", "second")


@pytest.mark.parametrize("password", ["md5" + "0" * 32, "SCRAM-SHA-256$1:YQ==$a:b"])
def test_a_password_that_looks_like_a_verifier_is_a_password(password: str) -> None:
    """What was typed is never taken for a stored form of something else."""
    with Outside() as b:
        b.typed("alice", password=password)
        b.answer(YES)
        assert credential(b.worker.config, b.worker.pools.by_key["app", "alice"]) == Secret("plain", password)


def test_a_wrong_password_is_not_kept() -> None:
    """The servers go on with the one before."""
    with Outside() as b:
        b.typed("alice", password="right")
        b.answer(YES)
        b.typed("alice", password="guess")
        b.answer(NO)
        assert credential(b.worker.config, b.worker.pools.by_key["app", "alice"]) == Secret("plain", "right")


def test_another_proof_ends_the_use_of_a_typed_password() -> None:
    """Who comes in by trust or a secret uses what is on file, if there is any."""
    with Outside() as b:
        for user in ("alice", "carol"):
            b.typed(user, password="typed")
            b.answer(YES)
        b.worker.config = replace(b.worker.config, settings=replace(b.worker.config.settings, auth_type="trust"))
        assert b.login("alice").client is not None
        assert credential(b.worker.config, b.worker.pools.by_key["app", "alice"]) == Secret("plain", "on-file")
        assert credential(b.worker.config, b.worker.pools.by_key["app", "carol"]) == Secret("plain", "typed")


def test_an_answer_that_comes_too_late() -> None:
    """The client has gone, or was refused meanwhile: nothing happens, and a question not yet asked is not wanted."""
    with Outside() as b:
        talk = b.typed()
        (_, wanted) = b.asked[0]
        assert wanted()
        talk.gone()
        assert not wanted()
        b.answer(YES)
        assert talk.client is None
        assert b.worker.front.clients == {}


def test_a_client_that_died_in_the_same_wake() -> None:
    """Its CLOSED is still to be read when the answer comes."""
    with Outside() as b:
        for answer in (YES, NO):
            talk = b.typed()
            b.engine.dead.add(talk.conn)
            b.answer(answer)
            talk.gone()


def test_nothing_more_is_read_meanwhile() -> None:
    """A second startup packet or password in the meantime ends the login."""
    with Outside() as b:
        talk = b.typed()
        talk.password(m.text("another"))
        assert not talk.open
        b.answer(YES)
        assert talk.client is None


def test_an_empty_password_makes_no_question() -> None:
    """A directory would let it in as nobody."""
    with Outside() as b:
        talk = b.login()
        talk.password(b"\0")
        assert talk.refused() == "empty password returned by client"
        assert b.asked == []


def test_a_reload_between_request_and_password() -> None:
    """If there is no directory any more, nobody else is asked in its place."""
    with Outside() as b:
        talk = b.login()
        b.worker.config = replace(b.worker.config, ldap=None)
        talk.password(m.text("typed"))
        assert talk.refused() == "LDAP authentication failed"
        assert b.asked == []


@pytest.mark.parametrize(("auth_type", "module"), [("ldap", ldap), ("pam", pam)])
def test_what_is_asked(monkeypatch: pytest.MonkeyPatch, auth_type: str, module: Any) -> None:
    """The user of the startup packet, the password as it came; a question that breaks is a no, without details."""
    given: list[tuple[Any, ...]] = []

    def authenticate(*arguments: Any) -> Answer:
        given.append(arguments)
        raise RuntimeError("geheim")

    monkeypatch.setattr(module, "authenticate", authenticate)
    with Outside(auth_type, client_login_timeout=7.0) as b:
        b.typed("carol", password="geheim")
        assert b.questions[0]() == Answer(False, "internal error: RuntimeError")
        if auth_type == "ldap":
            assert given == [(b.worker.config.ldap, "carol", b"geheim", 7.0)]
        else:
            assert given == [("carol", b"geheim", "127.0.0.1")]


def test_too_many_questions() -> None:
    """The client is refused, and the log says why."""
    with Outside() as b:
        b.full = True
        assert b.typed().refused() == "LDAP authentication failed"
        assert "too many logins wait for LDAP" in b.log.texts()


def test_what_is_missing_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options, library or PAM no password is asked for."""
    with Outside() as b:
        b.worker.config = replace(b.worker.config, ldap=None)
        assert b.login().refused() == "auth_ldap_options is null"
        monkeypatch.setattr(ldap, "is_available", lambda: False)
        assert b.login().refused() == "ldap is not supported by this build"
    monkeypatch.setattr(pam, "is_available", lambda: False)
    with Outside("pam") as b:
        assert b.login().refused() == "PAM authentication failed"


def test_the_console_is_for_those_on_its_lists() -> None:
    """A name that is not on one is not asked about."""
    with Outside(admin_users=("admin",)) as b:
        for name in ("alice", "carol"):
            assert b.login(name, "pgbouncer").refused() == "not allowed"
        guess = b.typed("admin", "pgbouncer")
        b.answer(NO)
        assert guess.refused() == "LDAP authentication failed"


def test_users_of_auth_query_and_pam_do_not_mix() -> None:
    """With both it is not clear who decides; a line of an hba file with ldap makes no lookup."""
    with Outside("pam", auth_user="bob") as b:
        assert b.login("carol").refused() == "bouncer config error"
    with Outside("hba", "host all all all ldap ldapprefix=x", auth_user="bob") as b:
        talk = b.typed("carol")
        b.answer(YES)
        assert talk.client is not None


def test_a_line_with_bad_options_lets_nobody_in() -> None:
    """Not even to a later line."""
    with Outside("hba", "host all all all ldap ldapprefx=x\nhost all all all trust") as b:
        talk = b.typed()
        assert talk.refused() == "LDAP authentication failed"
        assert b.asked == []


def test_users_known_only_outside_are_counted() -> None:
    """max_user_client_connections and max_db_client_connections hold for them."""
    with Outside(max_user_client_connections=1) as b:
        first, second = b.typed("carol"), b.typed("carol")
        b.answer(YES)
        b.answer(YES)
        assert first.client is not None
        assert second.refused() == "client connections exceeded (max_user_client_connections)"
        first.gone()
        third = b.typed("carol")
        b.answer(YES)
        assert third.client is not None
        assert third.client.user.client_connections == 1
    with Outside(max_db_client_connections=1) as b:
        b.typed("carol")
        assert b.login("dora").refused() == "client connections exceeded (max_db_client_connections)"
