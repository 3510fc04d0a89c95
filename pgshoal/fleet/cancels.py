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

    def heirs(self, seat: int) -> list[Child]:
        """Those to whom clients of the seat have moved."""


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
        seat = seat_of(key)
        maker = self._roster.worker_for(seat)
        found = [maker] if maker is not None and maker.ready and made_by(key, maker.generation) else []
        found += [heir for heir in self._roster.heirs(seat) if heir not in found]
        self._try(child, message, [one for one in found if one is not child])

    def _try(self, child: Child, message: Message, targets: list[Child]) -> None:
        """One after another, until one knows the key."""
        if not targets:
            child.channel.reply(message, {"reason": NOBODY})
            return

        def answered(answer: Message | None) -> None:
            if answer is None or answer.fields.get("reason") == NOBODY:
                self._try(child, message, targets[1:])
            else:
                child.channel.reply(message, answer.fields)

        targets[0].channel.ask("cancel", answered, {"key": message["key"]})
