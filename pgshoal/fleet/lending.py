"""While a number has no process, the worker with the fewest clients accepts from its sockets too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor


class Lending:
    """Who has which socket beside its own."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._lent: dict[int, Child] = {}  # by the listening socket's id

    def lend(self, number: int) -> None:
        """A number has lost its process."""
        fleet = self._supervisor
        serving = [child for child in fleet.others(None) if not child.draining]
        if not serving:
            return
        borrower = min(serving, key=lambda child: child.vitals.get("clients", 0))
        for listening in fleet.sockets.own(number):
            self._lent[listening.id] = borrower
            fleet.give(borrower, "lend", listening)

    def take_back(self, number: int) -> None:
        """The number has a process that serves."""
        for listening in self._supervisor.sockets.own(number):
            borrower = self._lent.pop(listening.id, None)
            if borrower is not None:
                borrower.channel.send("unlend", {"listener": listening.id})
        if self._supervisor.up:
            self._lend_rest()

    def _lend_rest(self) -> None:
        """Numbers that found nobody to lend to at their time."""
        for post in self._supervisor.posts:
            own = self._supervisor.sockets.own(post.number)
            served = post.child is not None and post.child.ready
            if not served and not any(one.id in self._lent for one in own):
                self.lend(post.number)

    def died(self, child: Child) -> None:
        """A worker is gone, with what it had borrowed: lend that to another."""
        lost = [ident for ident, borrower in self._lent.items() if borrower is child]
        numbers = {one.number for one in self._supervisor.sockets.all if one.id in lost}
        for ident in lost:
            del self._lent[ident]
        for number in numbers:
            if number is not None:
                self.lend(number)
