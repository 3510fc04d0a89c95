"""Clients on the Unix socket whose account says who they are."""

from __future__ import annotations

import os
import pwd

import pytest

from tests.e2e.conftest import MakePooler
from tests.e2e.test_hba import IN, hba, logged, told

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

__all__ = ["hba"]
ME = pwd.getpwuid(os.geteuid()).pw_name
REJECTED = "unix socket login rejected"


def test_the_account_must_have_the_name(hba: MakePooler) -> None:
    """The user of the same name gets in and nobody else; a password is not asked for."""
    pooler = hba("local all all peer\nhost all all all peer\n", userlist={ME: "x", "alice": "x"})
    assert told(pooler, ME, unix=True) == IN
    assert told(pooler, "alice", unix=True) == REJECTED
    assert told(pooler, ME) == REJECTED


def test_an_account_without_a_user(hba: MakePooler) -> None:
    """A name the pooler does not know is rejected in the same words."""
    pooler = hba("local all all peer\n", userlist={"alice": "x"})
    assert told(pooler, ME, unix=True) == REJECTED


@pytest.mark.parametrize(
    ("ident", "alice", "bob"),
    [
        (f"m {ME} alice\nm nobody bob\n", IN, REJECTED),
        (f"m {ME} all\n", IN, IN),
        (f"m /^{ME[:1]}(.*)$ b\\1\nm {ME} alice", IN, REJECTED),
        ("m nobody all\n", REJECTED, REJECTED),
    ],
)
def test_maps(hba: MakePooler, ident: str, alice: str, bob: str) -> None:
    """A map says which users the account may be; its own name is not enough then."""
    pooler = hba("local all all peer map=m\n", ident, userlist={ME: "x", "alice": "x", "bob": "x"})
    assert told(pooler, "alice", unix=True) == alice
    assert told(pooler, "bob", unix=True) == bob
    if ident != f"m {ME} all\n":
        assert told(pooler, ME, unix=True) == REJECTED
        logged(pooler, "ident map m cannot be matched")


def test_queries(hba: MakePooler) -> None:
    """The session works like any other."""
    pooler = hba("local all all peer map=m\n", f"m {ME} alice\n")
    assert pooler.query("select current_user::text", host=pooler.socket_dir) == [("alice",)]
