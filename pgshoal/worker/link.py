"""What a worker knows of its fleet and how it speaks to it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pgshoal.fleet.channel import Message
from pgshoal.fleet.ledger import Ledger

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Channel, Done, Handler
    from pgshoal.worker.log import Log


@dataclass(slots=True)
class Place:
    """A worker's place in the fleet, as `boot` tells it."""

    number: int = 0
    seat: int = 0
    generation: int = 1
    workers: int = 1
    key_secret: bytes = b"\0" * 32
    #: settings of the command line
    overrides: dict[str, str] = field(default_factory=dict)
    quiet: bool = False
    #: what the fleet was told before: paused, paused_databases, disabled_databases, welcomes, shutdown
    state: dict[str, Any] = field(default_factory=dict)


class Fleet(Protocol):
    """What a worker asks of its fleet. Handlers and answers come on the worker's loop, each followed by a settle."""

    place: Place
    ledger: Ledger

    @property
    def number(self) -> int: ...

    @property
    def seat(self) -> int: ...

    @property
    def generation(self) -> int: ...

    @property
    def workers(self) -> int: ...

    @property
    def key_secret(self) -> bytes: ...

    @property
    def state(self) -> dict[str, Any]: ...

    @property
    def backlog(self) -> int:
        """Messages that the supervisor was not ready to take yet."""

    @property
    def asking(self) -> int:
        """Requests that were not answered yet."""

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        """Tell the supervisor; `fd` stays the caller's."""

    def ask(
        self, verb: str, done: Done, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1
    ) -> int:
        """A request; `done` gets the answer, or None if the supervisor is gone. Its number serves `forget`."""

    def reply(self, request: Message, fields: Mapping[str, Any] | None = None, blob: bytes = b"") -> None:
        """Answer what the supervisor asked."""

    def on(self, verb: str, handler: Handler) -> None:
        """Who hears of messages of this kind."""

    def forget(self, number: int) -> None:
        """The answer is not wanted any more."""


class Placed:
    """The parts both have."""

    def __init__(self, place: Place, ledger: Ledger) -> None:
        self.place = place
        self.ledger = ledger

    @property
    def number(self) -> int:
        return self.place.number

    @property
    def seat(self) -> int:
        return self.place.seat

    @property
    def generation(self) -> int:
        return self.place.generation

    @property
    def workers(self) -> int:
        return self.place.workers

    @property
    def key_secret(self) -> bytes:
        return self.place.key_secret

    @property
    def state(self) -> dict[str, Any]:
        return self.place.state


class FleetLink(Placed):
    """The worker's end of the channel. A handler that fails is logged: one message is lost, not the worker."""

    def __init__(self, place: Place, ledger: Ledger, channel: Channel, log: Log) -> None:
        super().__init__(place, ledger)
        self._channel = channel
        self._log = log
        #: the worker's `settle`
        self.settle: Callable[[], None] = lambda: None

    @property
    def backlog(self) -> int:
        return self._channel.backlog

    @property
    def asking(self) -> int:
        return self._channel.asking

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        self._channel.send(verb, fields, blob, fd)

    def ask(
        self, verb: str, done: Done, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1
    ) -> int:
        return self._channel.ask(verb, lambda answer: self._handle(verb, done, answer), fields, blob, fd)

    def reply(self, request: Message, fields: Mapping[str, Any] | None = None, blob: bytes = b"") -> None:
        self._channel.reply(request, fields, blob)

    def on(self, verb: str, handler: Handler) -> None:
        self._channel.on(verb, lambda message: self._handle(verb, handler, message))

    def forget(self, number: int) -> None:
        self._channel.forget(number)

    def _handle(self, verb: str, handler: Callable[[Any], None], message: Message | None) -> None:
        try:
            handler(message)
        except Exception:
            self._log.error(f"internal error at '{verb}' of the supervisor: {traceback.format_exc()}")
        self.settle()
