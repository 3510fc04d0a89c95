"""How a worker ends: at once, when all clients or servers of the fleet are gone, or when another has taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pgshoal.errors import refuse
from pgshoal.worker import clients
from pgshoal.worker.janitor import PERIOD_S
from pgshoal.worker.listeners import LAST_ACCEPT_S

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.pause import ShutdownMode

#: How often clients are asked to move, and the end is looked for.
TICK_S: Final = 0.05
#: For the last packets to the clients that are told.
LAST_WORDS_S: Final = 0.2
#: How long a request to the supervisor may hold up the end.
ANSWER_LIMIT_US: Final = 60_000_000


class Leaving:
    """Hears `stop`, `shutdown` and `drain`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        worker.fleet.on("stop", lambda message: worker.stop(int(message["code"])))
        worker.fleet.on("shutdown", self.shutdown)
        worker.fleet.on("drain", self.drain)
        self._deadline_us = self._known_us = 0

    def shutdown(self, message: Message) -> None:
        """SHUTDOWN WAIT_FOR_…: the supervisor ends the fleet when all workers are empty."""
        self.worker.pause.shutdown(cast("ShutdownMode", message["mode"]))

    def drain(self, message: Message) -> None:
        """Another process has our number: accept no more, and end when the last client has left, or at the deadline."""
        worker = self.worker
        worker.listeners.leave()
        worker.draining = True
        now_us = worker.engine.now_us()
        self._deadline_us = now_us + round(float(message["deadline_s"]) * 1e6)
        # Clients that were accepted and have said nothing yet are known to the engine alone; soon the janitor asks it.
        self._known_us = now_us + round((LAST_ACCEPT_S + 2 * PERIOD_S) * 1e6)
        self._tick()

    def _tick(self) -> None:
        worker = self.worker
        worker.moving.leave()
        now_us = worker.engine.now_us()
        if not worker.front.connections() and now_us >= self._known_us:
            worker.stop(0)
            return
        # A console may wait for the end of the very restart that this is a part of.
        if now_us >= self._deadline_us + (ANSWER_LIMIT_US if worker.fleet.asking else 0):
            self._tell_all()
            worker.settle()
            worker.loop.call_later(LAST_WORDS_S, worker.stop, 0)
            return
        worker.loop.call_later(TICK_S, self._tick)

    def _tell_all(self) -> None:
        gone = refuse("server_shutting_down", sqlstate="57P01")
        for pool in self.worker.pools.of_database(None):
            clients.close_pool(self.worker, pool, gone)
