"""Cancel requests between workers: the supervisor passes each to the worker in the key's seat."""

from __future__ import annotations

from typing import Protocol

from pgshoal.fleet.channel import Message
from pgshoal.fleet.children import Child
from pgshoal.policy.cancel import NOBODY, made_by, seat_of


class Roster(Protocol):
    """What of the supervisor is needed to find a worker."""

    def worker_for(self, seat: int) -> Child | None:
        """The process in a seat."""


class Cancels:
    """A duty of the supervisor: `cancel` goes to the seat that is named in the key, and the answer back.

    Nothing waits here: the worker that asks and the one that delivers have their limits.
    """

    def __init__(self, supervisor: Roster) -> None:
        self._roster = supervisor

    def attach(self, child: Child) -> None:
        """Listen to a worker."""
        child.channel.on("cancel", lambda message: self._route(child, message))

    def is_ready(self, child: Child) -> None:
        """Nothing to do."""

    def died(self, child: Child) -> None:
        """Its channel has ended, and so has every request that waited for it."""

    def _route(self, child: Child, message: Message) -> None:
        key = bytes.fromhex(message["key"])
        target = self._roster.worker_for(seat_of(key))
        if target is None or target is child or not target.ready or not made_by(key, target.generation):
            child.channel.reply(message, {"reason": NOBODY})
            return

        def answered(answer: Message | None) -> None:
            child.channel.reply(message, {"reason": NOBODY} if answer is None else answer.fields)

        target.channel.ask("cancel", answered, {"key": key.hex()})
