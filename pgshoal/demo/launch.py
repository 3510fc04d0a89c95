"""Runs the pooler under another account, also when only root can enter the interpreter's folder.

`python -m pgshoal.demo.launch ACCOUNT FILE` opens the interpreter and every folder it imports from while it is still
root, becomes the account, and then executes the same interpreter again. The processes that the pooler starts find all
of it through the same descriptors, which pass through every exec.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pgshoal.demo.account import die_with_parent, named


def reachable(path: str, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> str:
    """A name of the path that leads through an open descriptor and so past closed folders."""
    fd = os.open(os.path.realpath(path), flags)
    os.set_inheritable(fd, True)
    return f"/proc/self/fd/{fd}"


def interpreter() -> tuple[str, dict[str, str]]:
    """The program and the environment that start this same interpreter, whoever we are by then."""
    program = reachable(sys.executable, os.O_RDONLY)
    home = reachable(sys.base_prefix)
    folders = [reachable(entry) for entry in dict.fromkeys(sys.path) if os.path.isdir(entry)]
    libraries = [f"{home}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return program, {
        "PYTHONHOME": home,
        "PYTHONPATH": os.pathsep.join(folders),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
    }


def run_as(account_name: str, arguments: Sequence[str]) -> None:
    """Become the account and run Python with these arguments; does not return."""
    account = named(account_name)
    program, environment = interpreter()
    os.chdir("/")
    account.become()
    die_with_parent()
    os.execve(program, [program, *arguments], {**os.environ, **environment})


if __name__ == "__main__":
    run_as(sys.argv[1], ["-m", "pgshoal", "run", *sys.argv[2:]])
