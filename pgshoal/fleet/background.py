"""Leaves the terminal as daemons do: two forks, a session of its own, nothing on standard input and output."""

from __future__ import annotations

import os

_STANDARD = (0, 1, 2)


class Background:
    """The process that was started waits until its grandchild listens or has ended, so that it returns no sooner.

    Its exit status is 0 in both cases, as PgBouncer's, which does not wait: what goes wrong then is for the log.
    """

    def __init__(self) -> None:
        self._waiting = -1

    def enter(self) -> None:
        """Return in the grandchild. Threads, loops and sockets must not be there yet."""
        until_up, self._waiting = os.pipe()
        child = os.fork()
        if child:
            os.close(self._waiting)
            os.waitpid(child, 0)
            os.read(until_up, 1)
            # Nothing of this process is left to be cleaned up: all of it belongs to the grandchild.
            os._exit(0)
        os.close(until_up)
        os.setsid()
        # Who leads a session may come by a terminal; its child cannot.
        if os.fork():
            os._exit(0)
        _forget_terminal()

    def is_up(self) -> None:
        """The sockets listen and the pidfile is written: whoever waits may go on."""
        if self._waiting >= 0:
            os.close(self._waiting)
            self._waiting = -1


def fill_standard() -> None:
    """Whoever has started us with standard input or output closed must not find a log file or a socket there."""
    for fd in _STANDARD:
        try:
            os.fstat(fd)
        except OSError:
            _put_nothing(fd)


def _forget_terminal() -> None:
    for fd in _STANDARD:
        _put_nothing(fd)


def _put_nothing(fd: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    if nothing == fd:
        os.set_inheritable(fd, True)
        return
    os.dup2(nothing, fd)
    os.close(nothing)
