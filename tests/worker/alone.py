"""A worker's fleet without anybody else, for tests: one ledger with one seat, and a supervisor that says yes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pgshoal.fleet.channel import Message
from pgshoal.fleet.ledger import Ledger
from pgshoal.worker.link import Place, Placed

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Done, Handler

#: Made since the last test; their descriptors are closed at its end.
MADE: list[Ledger] = []


def only_ledger() -> Ledger:
    """A ledger of one worker, in seat 0."""
    ledger = Ledger.create(1)
    MADE.append(ledger)
    ledger.set_fleet(1, False)
    ledger.occupy(0, 0)
    ledger.seat = 0
    return ledger


#: What an only worker is answered.
_ANSWERS: Final[Mapping[str, dict[str, Any]]] = {"gather": {"parts": []}, "act": {"results": []}}


class Alone(Placed):
    """A fleet of one without a supervisor, for tests: servers are gone as soon as they are buried."""

    def __init__(self, place: Place | None = None, ledger: Ledger | None = None) -> None:
        super().__init__(place or Place(), ledger or only_ledger())
        self.handlers: dict[str, Handler] = {}
        #: (verb, fields) of everything that was said
        self.sent: list[tuple[str, dict[str, Any]]] = []
        #: the blob of each of these
        self.blobs: list[bytes] = []
        self._requests = 0
        self.backlog = self.asking = 0

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        self.sent.append((verb, dict(fields or {})))
        self.blobs.append(blob)
        if verb == "bury":
            self.hear("gone", server=self.sent[-1][1]["server"])

    def ask(
        self, verb: str, done: Done, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1
    ) -> int:
        self.sent.append((verb, dict(fields or {})))
        self.blobs.append(blob)
        self._requests += 1
        done(Message("", dict(_ANSWERS.get(verb, {}))))
        return self._requests

    def reply(self, request: Message, fields: Mapping[str, Any] | None = None, blob: bytes = b"") -> None:
        self.sent.append((f"re {request.verb}", dict(fields or {})))
        self.blobs.append(blob)

    def on(self, verb: str, handler: Handler) -> None:
        self.handlers[verb] = handler

    def forget(self, number: int) -> None:
        """All has been answered."""

    def hear(self, verb: str, **fields: Any) -> None:
        """As if the supervisor had said so."""
        handler = self.handlers.get(verb)
        if handler is not None:
            handler(Message(verb, fields))
