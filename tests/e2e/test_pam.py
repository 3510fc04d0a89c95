"""Clients whose password PAM judges."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pgshoal.auth.pam import FOLDER_VARIABLE
from tests.e2e.conftest import MakePooler, until
from tests.e2e.test_hba import IN, logged, sent_password, told
from tests.support.pam import PASSWORDS, PamStack
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

FAILED = "PAM authentication failed"


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[PamStack]:
    """A service file of our own; nothing of the system's is touched."""
    with PamStack() as made:
        monkeypatch.setenv(FOLDER_VARIABLE, str(made.folder))
        yield made


def test_who_gets_in(make: MakePooler, stack: PamStack) -> None:
    """Whom PAM knows, with the right password and an account in order; auth_file does not matter."""
    pooler = make(auth_type="pam", userlist={"bob": "bob-secret"})
    secret = PASSWORDS["plain_user"]
    assert pooler.query("select current_user::text", user="plain_user", password=secret) == [("plain_user",)]
    assert told(pooler, "carol", password=PASSWORDS["carol"]) == IN
    assert told(pooler, "carol", password="wrong") == FAILED
    assert told(pooler, "bob", password="bob-secret") == FAILED
    assert told(pooler, "late", password=PASSWORDS["late"]) == FAILED
    assert told(pooler, "carol", password="") == "empty password returned by client"
    assert stack.asked()[0] == "plain_user 127.0.0.1"
    logged(pooler, "pam_authenticate failed for user carol: ")
    logged(pooler, "pam_acct_mgmt failed for user late: ")
    assert not any(password in pooler.log_text() for password in PASSWORDS.values())


def test_the_console(make: MakePooler, stack: PamStack) -> None:
    """Its lists decide first, then PAM."""
    pooler = make(auth_type="pam", admin_users="alice")
    assert pooler.admin("SHOW VERSION", user="alice", password=PASSWORDS["alice"])
    assert told(pooler, "carol", "pgbouncer", password=PASSWORDS["carol"]) == "not allowed"


def test_not_together_with_auth_user(make: MakePooler, stack: PamStack, pg15: Postgres) -> None:
    """Two ways to find out who a user is are one too many."""
    pooler = make(auth_type="pam", auth_user=pg15.superuser)
    assert told(pooler, "carol", "app", password=PASSWORDS["carol"]) == "bouncer config error"
    assert stack.asked() == []


def test_a_stack_that_hangs(make: MakePooler, stack: PamStack) -> None:
    """Clients wait no longer than client_login_timeout, sessions go on, and the pooler ends when told."""
    pooler = make(auth_type="pam", client_login_timeout=2)
    with pooler.connect(user="plain_user", password=PASSWORDS["plain_user"]) as conn:
        stack.hang(True)
        comers = [sent_password(pooler, "carol", PASSWORDS["carol"]) for _ in range(12)]
        assert conn.execute("select 1").fetchall() == [(1,)]
        for each in comers:
            with each:
                assert b"client_login_timeout" in each.recv(1000)
        stack.hang(False)
        until(lambda: told(pooler, "carol", password=PASSWORDS["carol"]) == IN, "PAM answers again")
        stack.hang(True)
        before = len(stack.asked())
        last = sent_password(pooler, "carol", PASSWORDS["carol"])
        until(lambda: len(stack.asked()) > before, "the question")
    with last:
        pooler.signal(signal.SIGINT)
        assert pooler.wait() == 0
    stack.hang(False)
