"""The account that servers run under when we are root: PostgreSQL refuses to start as root, and a pooler should."""

from __future__ import annotations

import ctypes
import functools
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PREFERRED = ("postgres", "nobody")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent(by: signal.Signals = signal.SIGQUIT) -> None:
    """Asks the kernel to end this process at once when its parent is killed and can no longer stop it itself.

    SIGQUIT means an immediate stop to PostgreSQL and to poolers. The wish is lost when the account changes.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, by)


@dataclass(frozen=True)
class Account:
    """One unprivileged account, as the kernel knows it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    def own(self, path: Path) -> None:
        """Gives a path, and everything below it, to this account."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)
        if path.is_dir() and not path.is_symlink():
            for child in path.iterdir():
                self.own(child)

    def become(self) -> None:
        """Turns this process into the account for good; only what is already open or imported stays reachable."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.environ.update(HOME="/", USER=self.name, LOGNAME=self.name)


def named(name: str) -> Account:
    """The account of that name; KeyError when the machine has none."""
    entry = pwd.getpwnam(name)
    return Account(name, entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)))


def unprivileged() -> Account | None:
    """The account to run servers under, or None when we are not root and simply stay who we are."""
    if os.geteuid() != 0:
        return None
    for name in PREFERRED:
        try:
            return named(name)
        except KeyError:
            continue
    raise RuntimeError(
        f"running as root, and this machine has none of the accounts {', '.join(PREFERRED)} to run servers under"
    )


def spawn(
    argv: Sequence[str | Path],
    account: Account | None,
    *,
    stdout: IO[Any] | int | None = None,
    stderr: IO[Any] | int | None = subprocess.STDOUT,
    env: Mapping[str, str] | None = None,
    end_by: signal.Signals = signal.SIGQUIT,
) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own, so that Ctrl-C reaches only us and we decide the order of stopping.

    When we are killed it gets the signal `end_by`.
    """
    who: dict[str, Any] = {}
    if account is not None:
        who = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}
        env = {"HOME": "/", "USER": account.name, **(env or {})}  # root's own settings are out of its reach
    return subprocess.Popen(
        [str(a) for a in argv],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(env or {})},
        cwd="/",
        start_new_session=True,
        preexec_fn=functools.partial(die_with_parent, end_by),
        **who,
    )


def run(argv: Sequence[str | Path], account: Account | None, *, env: Mapping[str, str] | None = None) -> str:
    """Runs a program to its end and returns its standard output; a failure raises RuntimeError with the last lines."""
    child = spawn(argv, account, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        out, err = child.communicate()
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        tail = "\n".join((out + err).decode(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"{Path(argv[0]).name} ended with status {child.returncode}\n{tail}")
    return out.decode(errors="replace")


def can_run(program: Path, account: Account | None) -> bool:
    """Whether the account reaches and executes the program (a folder only root can enter stops it)."""
    try:
        run([program, "--version"], account)
    except (OSError, RuntimeError):
        return False
    return True


def copy_for(folder: Path, target: Path) -> Path:
    """Copies a folder of programs to a place that others can read, keeping links and modes."""
    shutil.copytree(folder, target, symlinks=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
    return target
