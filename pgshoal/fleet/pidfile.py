"""The file that names the running supervisor; another living one is a reason not to start."""

from __future__ import annotations

import os
from pathlib import Path

from pgshoal.worker.log import Log


class Fatal(Exception):
    """The fleet cannot start; the text is for the log."""


class Pidfile:
    """Checked when it is made, written when all sockets are open, removed at the end."""

    def __init__(self, path: str, log: Log, ours: bool = False) -> None:
        """`ours`: this process has written it, before it became this program."""
        self.path = Path(path) if path else None
        self.written = ours and self.path is not None
        if ours or self.path is None or not self.path.exists():
            return
        if _alive(self.path):
            raise Fatal(f"pidfile '{path}' exists, another instance running?")
        log.log("stale pidfile, removing")
        self.path.unlink()

    def write(self) -> None:
        """After this the file is ours."""
        if self.path is None:
            return
        try:
            with self.path.open("x") as file:
                file.write(f"{os.getpid()}\n")
        except OSError as error:
            raise Fatal(f"could not open pidfile '{self.path}': {error.strerror}") from error
        self.written = True

    def remove(self) -> None:
        """At the end; somebody else's file is left alone."""
        if self.path is not None and self.written:
            self.path.unlink(missing_ok=True)


def _alive(path: Path) -> bool:
    try:
        pid = int(path.read_text().strip())
    except (OSError, ValueError):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # In a container the process before us often had our number.
    return pid > 0 and pid != os.getpid()
