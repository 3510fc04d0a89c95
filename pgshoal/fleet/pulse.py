"""Every second each worker is asked how it does; one that has not answered for half a minute is killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pgshoal.fleet.hygiene import reap_strangers

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

PERIOD_S: Final = 1
#: Counted in periods of ours, so that a supervisor which was stopped itself does not blame its workers.
SILENCE_MAX_S: Final = 30


class Pulse:
    """The pings."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._timer: asyncio.TimerHandle | None = None
        self._asked: set[Child] = set()

    def begin(self) -> None:
        """Until `close`."""
        self._timer = self._supervisor.loop.call_later(PERIOD_S, self.begin)
        for child in list(self._supervisor.children):
            self._beat(child)
        reap_strangers({child.pid for child in self._supervisor.children} | self._supervisor.assistants)
        self._supervisor.log.flush()

    def close(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, child: Child) -> None:
        child.silent_s += PERIOD_S
        if child.silent_s > SILENCE_MAX_S:
            fleet = self._supervisor
            fleet.log.error(
                f"worker {child.number} (pid {child.pid}) has not answered for {SILENCE_MAX_S} s, killing it"
            )
            fleet.kill(child)
        elif child.ready and child not in self._asked:
            self._asked.add(child)
            child.channel.ask("ping", lambda answer: self._answered(child, answer))

    def _answered(self, child: Child, answer: Message | None) -> None:
        self._asked.discard(child)
        if answer is not None:
            child.silent_s = 0
            child.vitals = {name: int(value) for name, value in answer.fields.items() if name != "re"}
