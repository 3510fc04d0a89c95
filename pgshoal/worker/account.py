"""Switches the process to the account of the `user` setting, for good."""

from __future__ import annotations

import errno
import os
import pwd
import sys
from collections.abc import Sequence


def become(name: str, program: str = "pgshoal") -> None:
    """Drop root; raises LookupError if there is no such account, OSError without the right to become it.

    If only root can enter the interpreter's folder, `program` starts anew as the account: it finds its files through
    descriptors opened before, which pass through every exec and so serve the workers too.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"could not find user '{name}' to switch to") from None
    if entry.pw_uid == os.geteuid():
        return
    if os.geteuid() != 0:
        raise PermissionError(f"failed to assume identity of user '{name}': {os.strerror(errno.EPERM)}")
    way = Way()
    # Looked for while everything can be seen.
    places = folders()
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    if within_reach(places):
        way.close()
    else:
        way.execute(["-m", program, *sys.argv[1:]])


def folders() -> list[str]:
    """Where this interpreter imports from."""
    return [entry for entry in dict.fromkeys(sys.path) if os.path.isdir(entry)]


def within_reach(places: Sequence[str]) -> bool:
    """Whether the account we are now can execute this same interpreter and import from all these places."""
    needed = [sys.base_prefix, *places]
    return os.access(sys.executable, os.X_OK) and all(os.access(place, os.R_OK | os.X_OK) for place in needed)


class Way:
    """The interpreter and every folder it imports from, open under names that lead past closed folders."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._program = self._open(sys.executable, os.O_RDONLY)
        home = self._open(sys.base_prefix)
        libraries = [f"{home}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self._environment = {
            "PYTHONHOME": home,
            "PYTHONPATH": os.pathsep.join(self._open(folder) for folder in folders()),
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        }

    def _open(self, path: str, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> str:
        fd = os.open(os.path.realpath(path), flags)
        self._fds.append(fd)
        return f"/proc/self/fd/{fd}"

    def close(self) -> None:
        """Not needed."""
        for fd in self._fds:
            os.close(fd)

    def execute(self, arguments: Sequence[str]) -> None:
        """Run the interpreter with these arguments in this process; does not return."""
        for fd in self._fds:
            os.set_inheritable(fd, True)
        os.execve(self._program, [self._program, *arguments], {**os.environ, **self._environment})
