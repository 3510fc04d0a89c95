"""Restart of all workers, number by number: the new process serves before the old one stops to accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

#: How long clients of an old process may go on, if nobody says otherwise.
DEADLINE_S: Final = 30.0
#: A new process that does not serve by then is given up.
START_LIMIT_S: Final = 30.0
#: No seat is free: servers of dead workers are still awaited.
SEAT_PAUSE_S: Final = 0.2

#: Called with what is wrong, "" if all is well.
Done = Callable[[str], None]


class Rolling:
    """One restart at a time."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._fleet = supervisor
        self._left: list[int] = []
        self._done: Done | None = None
        self._deadline_s = DEADLINE_S
        self._new: Child | None = None
        self._until_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a restart is under way."""
        return self._done is not None

    def begin(self, deadline_s: float, done: Done) -> None:
        """Replace all workers; `done` when each number is served by a new process."""
        fleet = self._fleet
        if self.busy:
            done("a restart is under way")
        elif fleet.upgrading.busy:
            done("an upgrade is under way")
        elif not fleet.up or fleet.state["shutdown"] or fleet.exit_code is not None:
            done("the fleet is starting or shutting down")
        else:
            fleet.log.log(f"restarting {fleet.workers} workers one by one")
            self._left = list(range(fleet.workers))
            self._done, self._deadline_s = done, deadline_s
            self._next()

    def _next(self) -> None:
        if not self._left:
            self._end("")
            return
        self._until_s = self._fleet.now_s() + START_LIMIT_S
        self._start(self._left[0])

    def _start(self, number: int) -> None:
        fleet = self._fleet
        post = fleet.posts[number]
        if not self.busy:
            return
        if post.child is None:
            # It died a moment ago, and is replaced as it is.
            self._left.pop(0)
            self._next()
            return
        post.successor = self._new = fleet.start(number)
        if self._new is None:
            if fleet.now_s() > self._until_s:
                self._end(f"worker {number} could not be started again")
            else:
                fleet.loop.call_later(SEAT_PAUSE_S, self._start, number)
            return
        fleet.loop.call_later(START_LIMIT_S, self._overdue, self._new)

    def _overdue(self, child: Child) -> None:
        if child is self._new:
            self._fleet.log.error(f"worker {child.number} (pid {child.pid}) does not come up, killing it")
            self._fleet.kill(child)

    # -- what the supervisor says

    def is_ready(self, child: Child, old: Child | None) -> None:
        """A process serves; `old` is the one before it, if that lives."""
        if old is not None and old is not child:
            old.draining = old.told = True
            old.channel.send("drain", {"deadline_s": self._deadline_s})
            self._fleet.log.log(f"worker {child.number} is now pid {child.pid}; pid {old.pid} drains")
        if child is self._new:
            self._new = None
            self._left.pop(0)
            self._next()

    def died(self, child: Child) -> None:
        """A process is gone."""
        if child is self._new:
            self._new = None
            self._end(f"worker {child.number} could not be started again; the others were left as they are")

    def stop(self) -> None:
        """The fleet ends."""
        if self.busy:
            self._end("the fleet is shutting down")

    def _end(self, wrong: str) -> None:
        done, self._done = self._done, None
        self._new = None  # may still come up, and then serves like any other
        self._left.clear()
        if wrong:
            self._fleet.log.error(f"restart: {wrong}")
        if done is not None:
            done(wrong)
