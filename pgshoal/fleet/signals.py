"""The signals of a running fleet, with PgBouncer's meaning and log lines."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgshoal.fleet.supervisor import Supervisor


def install(supervisor: Supervisor) -> None:
    """Connect each signal with what it does; they arrive as ordinary callbacks of the loop."""
    actions: dict[signal.Signals, Callable[[Supervisor], None]] = {
        signal.SIGHUP: hangup,
        signal.SIGTERM: terminate,
        signal.SIGINT: interrupt,
        signal.SIGQUIT: quit_now,
        signal.SIGUSR1: pause,
        signal.SIGUSR2: resume,
    }
    for number, action in actions.items():
        supervisor.loop.add_signal_handler(number, action, supervisor)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Where a parent had it ignored, dead workers would vanish before they are asked how they ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # An upgrade leaves them blocked until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, list(actions))


def hangup(supervisor: Supervisor) -> None:
    """SIGHUP: a failed reload changes nothing and is only logged."""
    supervisor.log.log("got SIGHUP, re-reading config")
    supervisor.reload()


def terminate(supervisor: Supervisor) -> None:
    """SIGTERM: wait for all clients; a second one, or one during any shutdown, ends at once."""
    if supervisor.state["shutdown"]:
        supervisor.log.log("got SIGTERM while shutting down, fast exit")
        supervisor.shutdown("now")
        return
    supervisor.log.log("got SIGTERM, shutting down, waiting for all clients disconnect")
    supervisor.notify("STOPPING=1")
    supervisor.shutdown("clients")


def interrupt(supervisor: Supervisor) -> None:
    """SIGINT: wait for all servers."""
    if supervisor.state["shutdown"]:
        supervisor.log.log("got SIGINT while shutting down, fast exit")
        supervisor.shutdown("now")
        return
    supervisor.log.log("got SIGINT, shutting down, waiting for all servers connections to be released")
    supervisor.notify("STOPPING=1")
    supervisor.shutdown("servers")


def quit_now(supervisor: Supervisor) -> None:
    """SIGQUIT: end at once."""
    supervisor.log.log("got SIGQUIT, fast exit")
    supervisor.notify("STOPPING=1")
    supervisor.shutdown("now")


def pause(supervisor: Supervisor) -> None:
    """SIGUSR1: PAUSE."""
    if supervisor.state["paused"]:
        supervisor.log.log("got SIGUSR1, but already paused")
    else:
        supervisor.log.log("got SIGUSR1, pausing all activity")
        supervisor.order("PAUSE")


def resume(supervisor: Supervisor) -> None:
    """SIGUSR2: RESUME."""
    if supervisor.state["shutdown"]:
        supervisor.log.log("got SIGUSR2 while shutting down, ignoring")
    elif not supervisor.state["paused"]:
        supervisor.log.log("got SIGUSR2, but not paused")
    else:
        supervisor.log.log("got SIGUSR2, continuing from PAUSE")
        supervisor.order("RESUME")
