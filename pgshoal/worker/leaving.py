"""How a worker ends: at once, when all clients or servers of the fleet are gone, or when another has taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pgshoal.errors import refuse
from pgshoal.worker import clients
from pgshoal.worker.janitor import PERIOD_S
from pgshoal.worker.listeners import LAST_ACCEPT_S

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.pause import ShutdownMode


class Leaving:
    """Hears `stop`, `shutdown` and `drain`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        worker.fleet.on("stop", lambda message: worker.stop(int(message["code"])))
        worker.fleet.on("shutdown", self.shutdown)
        worker.fleet.on("drain", self.drain)
        self._deadline_us = 0

    def shutdown(self, message: Message) -> None:
        """SHUTDOWN WAIT_FOR_…: the supervisor ends the fleet when all workers are empty."""
        self.worker.pause.shutdown(cast("ShutdownMode", message["mode"]))

    def drain(self, message: Message) -> None:
        """Another process has our number: accept no more, and end when the last client has left, or at the deadline."""
        worker = self.worker
        worker.listeners.leave()
        worker.draining = True
        self._deadline_us = worker.engine.now_us() + round(float(message["deadline_s"]) * 1e6)
        worker.moving.leave()
        # Clients that were accepted and have said nothing yet are known to the engine alone; soon the janitor asks it.
        worker.loop.call_later(LAST_ACCEPT_S + 2 * PERIOD_S, self._tick)

    def _tick(self) -> None:
        worker = self.worker
        worker.moving.leave()
        if not worker.front.connections():
            worker.stop(0)
            return
        if worker.engine.now_us() >= self._deadline_us:
            self._tell_all()
            worker.settle()
            worker.loop.call_later(0.2, worker.stop, 0)
            return
        worker.loop.call_later(0.05, self._tick)

    def _tell_all(self) -> None:
        gone = refuse("server_shutting_down", sqlstate="57P01")
        for pool in self.worker.pools.of_database(None):
            clients.close_pool(self.worker, pool, gone)
