"""How a worker speaks to its fleet, and the same face alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from pgshoal.fleet.channel import Channel, Message
from pgshoal.worker.link import FleetLink, Place
from tests.worker.alone import Alone, only_ledger
from tests.worker.bench import QuietLog


class Line:
    """A link whose other end is a channel of the test."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        ours, theirs = socket.socketpair()
        self.log = QuietLog()
        self.channel = Channel(ours, self.loop, lambda: None)
        self.link = FleetLink(Place(2, 5, 9, 4, b"s" * 32), only_ledger(), self.channel, self.log)
        self.other = Channel(theirs, self.loop, lambda: None)
        self.settled = 0
        self.link.settle = self._settle

    def _settle(self) -> None:
        self.settled += 1

    def pass_on(self) -> None:
        """Let both ends hear what was said."""

        async def turns() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def close(self) -> None:
        """Both ends."""
        self.channel.close()
        self.other.close()
        self.link.ledger.close()
        self.loop.close()


@pytest.fixture
def line() -> Iterator[Line]:
    """One line."""
    made = Line()
    yield made
    made.close()


def test_a_worker_knows_its_place(line: Line) -> None:
    """What `boot` has told."""
    link = line.link
    assert (link.number, link.seat, link.generation, link.workers, link.key_secret) == (2, 5, 9, 4, b"s" * 32)


def test_the_worker_settles_after_each_message_and_answer(line: Line) -> None:
    """What a handler did is carried out by the engine at once."""
    heard: list[Message] = []
    line.link.on("x", heard.append)
    line.other.send("x")
    line.pass_on()
    assert (len(heard), line.settled) == (1, 1)
    line.other.on("question", lambda message: line.other.reply(message, {"answer": 6}))
    answers: list[Message | None] = []
    line.link.ask("question", answers.append)
    line.pass_on()
    assert [answer["answer"] for answer in answers if answer is not None] == [6]
    assert line.settled == 2


def test_a_handler_that_fails_costs_one_message(line: Line) -> None:
    """It is logged with its traceback, the next message is heard."""
    heard: list[Message] = []

    def fail(message: Message) -> None:
        heard.append(message)
        raise ZeroDivisionError

    line.link.on("x", fail)
    line.other.send("x")
    line.other.send("x")
    line.pass_on()
    assert len(heard) == 2
    assert line.settled == 2
    assert line.log.has("internal error at 'x' of the supervisor")
    assert line.log.has("ZeroDivisionError")


def test_an_answer_nobody_waits_for(line: Line) -> None:
    """After `forget` it is dropped."""
    asked: list[Message] = []
    line.other.on("question", asked.append)
    answers: list[Message | None] = []
    line.link.forget(line.link.ask("question", answers.append))
    line.pass_on()
    line.other.reply(asked[0])
    line.pass_on()
    assert answers == []


def test_alone_servers_are_gone_as_soon_as_they_are_buried() -> None:
    """There is nobody to wait for."""
    alone = Alone()
    heard: list[int] = []
    alone.on("gone", lambda message: heard.append(message["server"]))
    alone.send("bury", {"server": 4, "busy": False})
    assert heard == [4]
    assert alone.sent == [("bury", {"server": 4, "busy": False})]


def test_alone_nobody_else_answers() -> None:
    """Questions to all workers have no parts and no results."""
    alone = Alone()
    found: list[Message | None] = []
    alone.ask("gather", found.append, {"what": "POOLS"})
    alone.ask("act", found.append)
    assert [answer.fields for answer in found if answer is not None] == [{"parts": []}, {"results": []}]
