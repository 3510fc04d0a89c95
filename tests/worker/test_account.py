"""Stepping down from root to the account of `user`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal import __version__
from pgshoal.demo.account import unprivileged
from pgshoal.worker import account
from pgshoal.worker.account import Way

STEP_DOWN = """
import os, sys
from pgshoal.worker import account
sys.path.insert(0, {closed!r})
sys.argv = ["pgshoal", "--version"]
account.become({name!r})
print("still here", os.getuid())
"""


def test_an_account_that_does_not_exist() -> None:
    """It is named."""
    with pytest.raises(LookupError, match="could not find user 'no-such-account' to switch to"):
        account.become("no-such-account")


def test_an_account_that_only_root_could_become(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not root is told so; to become who one is already needs nothing."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError) as error:
        account.become("root")
    assert str(error.value) == "failed to assume identity of user 'root': Operation not permitted"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account.become("root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can step down")
def test_a_program_that_only_root_reaches_starts_anew(tmp_path: Path) -> None:
    """As the account, with the same arguments; everything is found past the closed folder."""
    closed = tmp_path / "closed" / "modules"
    closed.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    who = unprivileged()
    assert who is not None
    code = STEP_DOWN.format(closed=str(closed), name=who.name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"pgshoal {__version__}\n", 0), done.stderr


def test_what_is_in_reach_needs_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """We reach ourselves; a folder that cannot be entered or an interpreter that is gone are noticed."""
    assert account.within_reach(account.folders())
    assert not account.within_reach(["/nowhere"])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert not account.within_reach([])


def test_a_way_that_is_not_used_leaves_nothing_open() -> None:
    """Its descriptors are closed."""
    before = len(os.listdir("/proc/self/fd"))
    way = Way()
    assert len(os.listdir("/proc/self/fd")) > before
    way.close()
    assert len(os.listdir("/proc/self/fd")) == before
