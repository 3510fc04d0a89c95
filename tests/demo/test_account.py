"""Servers run under an account that is not root, and programs that account cannot reach are copied for it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal.demo.account import can_run, copy_for, run, spawn, unprivileged

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


@pytest.fixture
def closed_program(tmp_path: Path) -> Path:
    """A program in a folder that only its owner can enter."""
    folder = tmp_path / "closed"
    folder.mkdir()
    program = folder / "hello"
    program.write_text("#!/bin/sh\nid -u\n")
    program.chmod(0o700)
    folder.chmod(0o700)
    return program


@as_root
def test_spawned_programs_run_under_the_account() -> None:
    """Root's child has the account's user id, and a home folder that is not root's."""
    account = unprivileged()
    assert account is not None
    assert account.uid != 0
    words = run(["/bin/sh", "-c", 'echo "$(id -u) $HOME"'], account).split()
    assert words == [str(account.uid), "/"]


@as_root
def test_a_closed_folder_is_noticed_and_copied(closed_program: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A program behind a closed folder does not run for the account; its copy elsewhere does."""
    account = unprivileged()
    assert account is not None
    assert not can_run(closed_program, account)
    public = tmp_path_factory.getbasetemp()
    before = [(p, p.stat().st_mode) for p in (public, *list(public.parents)[:2]) if p != Path("/tmp")]
    for path, mode in before:
        path.chmod(mode | 0o111)
    try:
        copied = copy_for(closed_program.parent, public / "open-copy") / closed_program.name
        assert run([copied], account).strip() == str(account.uid)
    finally:
        for path, mode in before:
            path.chmod(mode)


def test_a_failing_program_tells_its_last_words() -> None:
    """The error carries the exit status and what the program printed."""
    with pytest.raises(RuntimeError, match=r"status 3\nno disk"):
        run(["/bin/sh", "-c", "echo no disk >&2; exit 3"], None)


def test_spawned_programs_are_out_of_reach_of_the_terminal() -> None:
    """A child is the leader of a session of its own, so Ctrl-C reaches us alone."""
    child = spawn(["/bin/sleep", "30"], None, stdout=subprocess.DEVNULL)
    try:
        assert os.getsid(child.pid) == child.pid
    finally:
        child.kill()
        child.wait()


def test_children_do_not_outlive_a_killed_parent() -> None:
    """When the parent is killed without a chance to clean up, the kernel ends what it had spawned."""
    code = "from pgshoal.demo.account import spawn; print(spawn(['/bin/sleep', '60'], None).pid, flush=True); input()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    watch = os.pidfd_open(child)
    try:
        parent.kill()
        parent.communicate()
        assert select.select([watch], [], [], 20)[0] == [watch]
    finally:
        os.close(watch)
