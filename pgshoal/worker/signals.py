"""The signals of a running pooler, with PgBouncer's meaning and log lines."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from pgshoal.errors import Refused
from pgshoal.worker.reload import reload

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker


def install(worker: Worker) -> None:
    """Connect each signal with what it does; they arrive as ordinary callbacks of the loop."""
    actions: dict[signal.Signals, Callable[[Worker], None]] = {
        signal.SIGHUP: hangup,
        signal.SIGTERM: terminate,
        signal.SIGINT: interrupt,
        signal.SIGQUIT: quit_now,
        signal.SIGUSR1: pause,
        signal.SIGUSR2: resume,
    }
    for number, action in actions.items():
        worker.loop.add_signal_handler(number, _run, worker, action)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _run(worker: Worker, action: Callable[[Worker], None]) -> None:
    action(worker)
    worker.settle()


def hangup(worker: Worker) -> None:
    """SIGHUP: a failed reload changes nothing and is only logged."""
    worker.log.log("got SIGHUP, re-reading config")
    reload(worker)


def terminate(worker: Worker) -> None:
    """SIGTERM: wait for all clients; a second one, or one during any shutdown, ends at once."""
    if worker.shutdown:
        worker.log.log("got SIGTERM while shutting down, fast exit")
        worker.pause.shutdown("now")
        return
    worker.log.log("got SIGTERM, shutting down, waiting for all clients disconnect")
    worker.notify("STOPPING=1")
    worker.pause.shutdown("clients")


def interrupt(worker: Worker) -> None:
    """SIGINT: wait for all servers."""
    if worker.shutdown:
        worker.log.log("got SIGINT while shutting down, fast exit")
        worker.pause.shutdown("now")
        return
    worker.log.log("got SIGINT, shutting down, waiting for all servers connections to be released")
    worker.notify("STOPPING=1")
    worker.pause.shutdown("servers")


def quit_now(worker: Worker) -> None:
    """SIGQUIT: end at once."""
    worker.log.log("got SIGQUIT, fast exit")
    worker.notify("STOPPING=1")
    worker.pause.shutdown("now")


def pause(worker: Worker) -> None:
    """SIGUSR1: PAUSE."""
    try:
        worker.pause.pause(None, lambda reached: None)
    except Refused:
        worker.log.log("got SIGUSR1, but already paused/suspended")
    else:
        worker.log.log("got SIGUSR1, pausing all activity")


def resume(worker: Worker) -> None:
    """SIGUSR2: RESUME."""
    if worker.shutdown:
        worker.log.log("got SIGUSR2 while shutting down, ignoring")
    elif not worker.pause.everything:
        worker.log.log("got SIGUSR2, but not paused/suspended")
    else:
        worker.log.log("got SIGUSR2, continuing from PAUSE")
        worker.pause.resume(None)
