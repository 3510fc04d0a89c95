"""Signals are for the supervisor: a worker ignores those that reach the whole terminal or control group."""

from __future__ import annotations

import signal
from typing import Final

#: What an operator or the terminal may send to every process of the fleet.
FOR_THE_SUPERVISOR: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def ignore() -> None:
    """Leave them to the supervisor. It starts workers with these signals blocked, so none comes too early."""
    for number in (*FOR_THE_SUPERVISOR, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_SUPERVISOR)
