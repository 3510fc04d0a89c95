"""Asking a real PAM stack."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pgshoal.auth import pam
from pgshoal.auth.outside import Answer
from tests.support.pam import PASSWORDS, PamStack


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[PamStack]:
    """A service file of our own; nothing of the system's is touched."""
    with PamStack() as made:
        monkeypatch.setenv(pam.FOLDER_VARIABLE, str(made.folder))
        yield made


def test_right_and_wrong(stack: PamStack) -> None:
    """The right password fits; others and unknown users do not, and no password is in the reason."""
    assert pam.is_available()
    assert pam.authenticate("alice", PASSWORDS["alice"].encode(), "10.1.1.1") == Answer(True)
    for user, password in (("alice", "wrong-guess"), ("ghost", PASSWORDS["alice"])):
        found = pam.authenticate(user, password.encode(), "10.1.1.1")
        assert not found.fits
        assert found.why.startswith(f"pam_authenticate failed for user {user}: ")
        assert password not in found.why
    assert stack.asked() == ["alice 10.1.1.1", "alice 10.1.1.1", "ghost 10.1.1.1"]


def test_an_account_that_may_not_be_used(stack: PamStack) -> None:
    """The password is right, and the account step says no."""
    found = pam.authenticate("late", PASSWORDS["late"].encode(), "h")
    assert not found.fits
    assert found.why.startswith("pam_acct_mgmt failed for user late: ")


@pytest.mark.parametrize("password", [b"", b"\0", b"alice-pam\0"])
def test_empty_passwords_are_not_asked_about(stack: PamStack, password: bytes) -> None:
    """Nor are those that C would cut."""
    assert pam.authenticate("alice", password, "h") == Answer(False, "empty password")
    assert pam.authenticate("alice\0root", b"x", "h") == Answer(False, "empty password")
    assert stack.asked() == []


def test_a_stack_that_asks_for_more_than_a_password(stack: PamStack) -> None:
    """What is prompted with echo is not the password, so it is not given."""
    (stack.folder / "pgbouncer").write_text("auth required pam_ftp.so ignore\nauth required pam_deny.so\n")
    assert not pam.authenticate("alice", b"alice-pam", "h").fits


def test_without_a_service_file_nobody_gets_in(stack: PamStack) -> None:
    """An empty folder is no open door."""
    (stack.folder / "pgbouncer").unlink()
    assert not pam.authenticate("alice", PASSWORDS["alice"].encode(), "h").fits


def test_many_at_once(stack: PamStack) -> None:
    """Each question has a handle of its own, and gets its own answer."""
    guesses = [PASSWORDS["alice"] if number % 2 else "wrong" for number in range(24)]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda guess: pam.authenticate("alice", guess.encode(), "h").fits, guesses)
    assert list(found) == [guess == PASSWORDS["alice"] for guess in guesses]
