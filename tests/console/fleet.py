"""A fleet in one process: a supervisor without processes, and workers whose channels are queues."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from pgshoal.config.model import Config
from pgshoal.fleet.channel import Done, Handler, Message
from pgshoal.fleet.children import Child
from pgshoal.fleet.ledger import Ledger
from pgshoal.fleet.relay import Relay
from pgshoal.fleet.supervisor import Supervisor
from pgshoal.worker.link import Place
from tests.worker import alone
from tests.worker.stub import Lines


class Post:
    """Delivers what was sent, in order, before the outermost sender goes on."""

    def __init__(self) -> None:
        self._letters: deque[Callable[[], None]] = deque()
        self._busy = False

    def put(self, letter: Callable[[], None]) -> None:
        """Deliver, or queue while others are being delivered."""
        self._letters.append(letter)
        if not self._busy:
            self._busy = True
            while self._letters:
                self._letters.popleft()()
            self._busy = False


class End:
    """One end of a channel; what it says must survive JSON."""

    def __init__(self, post: Post) -> None:
        self.peer: End
        self.open = True
        #: letters pile up at the other end of one that is stopped
        self.stopped = False
        self.heard: list[Message] = []
        self._kept: list[Message] = []
        self._post = post
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[int, Done] = {}
        self._number = 0

    def on(self, verb: str, handler: Handler) -> None:
        """Who hears of messages of this kind."""
        self._handlers[verb] = handler

    def send(self, verb: str, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1) -> None:
        """To the other end."""
        message = Message(verb, json.loads(json.dumps(dict(fields or {}))), blob)
        if self.open:
            self._post.put(lambda: self.peer.hear(message))

    def ask(
        self, verb: str, done: Done, fields: Mapping[str, Any] | None = None, blob: bytes = b"", fd: int = -1
    ) -> int:
        """A request."""
        self._number += 1
        number = self._number
        if self.open:
            self._asked[number] = done
            self.send(verb, {**(fields or {}), "id": number}, blob)
        else:
            self._post.put(lambda: done(None))
        return number

    def reply(self, request: Message, fields: Mapping[str, Any] | None = None, blob: bytes = b"") -> None:
        """Its answer."""
        self.send("", {**(fields or {}), "re": request["id"]}, blob)

    def forget(self, number: int) -> None:
        """The answer is not wanted."""
        self._asked.pop(number, None)

    def hear(self, message: Message) -> None:
        """A letter has come."""
        if self.stopped:
            self._kept.append(message)
            return
        self.heard.append(message)
        if "re" in message.fields:
            done = self._asked.pop(message["re"], None)
            if done is not None:
                done(message)
        elif message.verb in self._handlers:
            self._handlers[message.verb](message)

    def go_on(self) -> None:
        """After a stop."""
        self.stopped = False
        kept, self._kept = self._kept, []
        for message in kept:
            self.hear(message)

    def close(self) -> None:
        """The other process is dead."""
        self.open = False
        asked, self._asked = list(self._asked.values()), {}
        for done in asked:
            done(None)


class PlantedError(Exception):
    """A bug that a test has put into a worker."""


class Link(End):
    """A worker's end, with its place in the fleet."""

    def __init__(self, post: Post, place: Place, ledger: Ledger) -> None:
        super().__init__(post)
        self.place = place
        self.ledger = ledger
        self.number, self.seat, self.generation = place.number, place.seat, place.generation
        self.workers, self.key_secret, self.state = place.workers, place.key_secret, place.state

    def on(self, verb: str, handler: Handler) -> None:
        """The real one lives on after a bug, and logs it; here only those that are expected may pass."""

        def heard(message: Message) -> None:
            with suppress(PlantedError):
                handler(message)

        super().on(verb, heard)


class Timer:
    """What `call_later` gives."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.over = False

    def cancel(self) -> None:
        """Never."""
        self.over = True


class Clock:
    """The supervisor's loop: timers run when a test says so."""

    def __init__(self, post: Post) -> None:
        self.timers: dict[float, list[Timer]] = {}
        self._post = post

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Kept by its delay."""
        timer = Timer(lambda: callback(*args))
        self.timers.setdefault(delay_s, []).append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """After what is being delivered."""
        self._post.put(callback)

    def run(self, delay_s: float) -> None:
        """All timers of this delay come due."""
        for timer in self.timers.pop(delay_s, []):
            if not timer.over:
                timer.callback()


@dataclass(eq=False)
class Number:
    """A post of the supervisor."""

    number: int
    restarts: int = 0


@dataclass
class Head:
    """The supervisor as its relay sees it."""

    config: Config
    log: Lines
    post: Post = field(default_factory=Post)
    overrides: dict[str, str] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    posts: list[Number] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rolling: list[tuple[float | None, Callable[[str], None]]] = field(default_factory=list)
    clock_s: float = 100.0

    def __post_init__(self) -> None:
        self.state: dict[str, Any] = {"welcomes": []}
        self.loop = Clock(self.post)
        self.ledger = Ledger.create(8)
        alone.MADE.append(self.ledger)
        self.dying: Counter[int] = Counter()
        self.undertaker = SimpleNamespace(dying_rows=lambda: self.dying)
        self.relay = Relay(cast(Supervisor, self))

    def others(self, child: Child | None) -> list[Child]:
        """All that serve, but this one."""
        return [one for one in self.children if one is not child and one.ready]

    def now_s(self) -> float:
        """Set by the test."""
        return self.clock_s

    def notify(self, state: str) -> None:
        """systemd."""
        self.told.append(state)

    def shutdown(self, mode: str) -> None:
        """As the supervisor does, without an end."""
        self.ended.append(mode)
        if mode == "now":
            for child in self.children:
                child.channel.send("stop", {"code": 0})
        elif self.state["shutdown"] not in (mode, "servers"):
            self.state["shutdown"] = mode
            for child in self.children:
                child.channel.send("shutdown", {"mode": mode})

    def restart(self, deadline_s: float | None, done: Callable[[str], None]) -> None:
        """Kept until a test says how it went."""
        self.rolling.append((deadline_s, done))

    def upgrade(self, done: Callable[[str], None]) -> None:
        """The same."""
        self.rolling.append((None, done))

    # -- for tests

    def start(self, ready: bool = True) -> Link:
        """A new worker's end of the channel; `ready` it serves at once."""
        seat = len(self.children)
        number = len(self.posts)
        self.posts.append(Number(number))
        self.ledger.occupy(seat, number)
        state = json.loads(json.dumps(self.state))
        link = Link(self.post, Place(number, seat, seat + 1, 4, state=state), self.seated(seat))
        ours = End(self.post)
        ours.peer, link.peer = link, ours
        child = Child(number, seat, seat + 1, 1000 + seat, cast(Any, ours), self.clock_s - 5, engine="stub")
        self.children.append(child)
        self.relay.attach(child)
        if ready:
            self.serve(child)
        return link

    def seated(self, seat: int) -> Ledger:
        """The ledger as a worker has it."""
        return Ledger.attach(self.ledger.fd, self.ledger.bells, seat)

    def serve(self, child: Child) -> None:
        """It is ready."""
        child.ready = True
        self.relay.is_ready(child)

    def die(self, child: Child) -> None:
        """Its process is dead, and those who wait for it have heard so."""
        self.children.remove(child)
        end = cast(End, child.channel)
        end.peer.open = False
        end.close()
        self.relay.died(child)
