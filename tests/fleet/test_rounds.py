"""One question to several workers: who answers, who dies, and who is not waited for."""

from __future__ import annotations

from pgshoal.config.model import Config, Settings
from pgshoal.fleet.channel import Message
from pgshoal.fleet.rounds import Round
from tests.console.fleet import Head, Link
from tests.worker.stub import Lines


class Hall:
    """Workers that keep questions until they are told to answer."""

    def __init__(self, count: int) -> None:
        self.head = Head(Config("test.ini", Settings()), Lines())
        self.links = [self.head.start() for _ in range(count)]
        self.questions: list[tuple[Link, Message]] = []
        for link in self.links:
            link.on("what", lambda message, link=link: self.questions.append((link, message)))  # type: ignore[misc]
        self.done: list[Round] = []

    def ask(self, **more: object) -> Round:
        """A question to all."""
        asked = Round(self.head.children, "what", {}, self.done.append, **more)  # type: ignore[arg-type]
        asked.begin()
        return asked

    def answer(self, number: int) -> None:
        """One worker answers."""
        for link, message in self.questions:
            if link.number == number:
                link.reply(message, {"from": number})


def numbers(asked: Round) -> list[int]:
    """Who has answered."""
    return [answer["from"] for _, answer in asked.answers]


def test_all_answer() -> None:
    """It is done with the last answer, once."""
    hall = Hall(3)
    asked = hall.ask()
    for number in (2, 0, 1):
        assert hall.done == []
        hall.answer(number)
    assert hall.done == [asked]
    assert numbers(asked) == [2, 0, 1]
    asked.finish()
    assert len(hall.done) == 1


def test_nobody_is_there() -> None:
    """It is done at once."""
    hall = Hall(0)
    assert hall.done == [hall.ask()]


def test_the_dead_are_not_waited_for() -> None:
    """Their part is missing from the answers, and that is all."""
    hall = Hall(2)
    asked = hall.ask()
    hall.answer(0)
    hall.head.die(hall.head.children[1])
    assert hall.done == [asked]
    assert (numbers(asked), asked.missing) == ([0], [])


def test_time_is_over() -> None:
    """Who still owes an answer is named, and an answer that comes later goes nowhere."""
    hall = Hall(3)
    asked = hall.ask()
    hall.answer(1)
    asked.finish()
    assert [child.number for child in asked.missing] == [0, 2]
    hall.answer(0)
    assert numbers(asked) == [1]
    assert len(hall.done) == 1


def test_one_answer_may_be_enough() -> None:
    """Then the others are not waited for."""
    hall = Hall(3)
    asked = hall.ask(heard=lambda child, answer: answer["from"] == 1)
    hall.answer(0)
    assert hall.done == []
    hall.answer(1)
    assert hall.done == [asked]


def test_given_up() -> None:
    """Nobody is told anything; the numbers of open requests are those the workers know."""
    hall = Hall(2)
    asked = hall.ask()
    open_ones = asked.forget()
    assert [message["id"] for _, message in hall.questions] == list(open_ones.values())
    hall.answer(0)
    hall.answer(1)
    assert hall.done == []
