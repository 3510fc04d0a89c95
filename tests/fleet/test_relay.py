"""The supervisor's part of one console, against workers that only listen."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from pgshoal.config.model import Config, DatabaseConfig, Settings
from pgshoal.fleet.channel import Message
from pgshoal.fleet.relay import GATHER_LIMIT_S
from pgshoal.worker.stats import Totals
from tests.console.fleet import Head, Link
from tests.worker.stub import Lines


class Hands:
    """A supervisor and workers that keep what they are asked."""

    def __init__(self, count: int, **more: Any) -> None:
        config = Config("test.ini", Settings(), {"app": DatabaseConfig("app")}, **more)
        self.head = Head(config, Lines())
        self.links = [self.head.start() for _ in range(count)]
        self.asked: list[tuple[int, Message]] = []
        self.answers: list[dict[str, Any] | None] = []
        for link in self.links:
            for verb in ("gather", "act", "abandon", "welcome"):
                link.on(verb, lambda message, link=link: self.asked.append((link.number, message)))  # type: ignore[misc]

    def ask(self, link: Link, verb: str, **fields: Any) -> int:
        """A request of a worker."""
        return link.ask(verb, lambda answer: self.answers.append(None if answer is None else _plain(answer)), fields)

    def order(self, link: Link, command: str, argument: str = "", **more: Any) -> int:
        """A command for all."""
        return self.ask(link, "act", command=command, argument=argument, **more)

    def who(self, verb: str) -> list[int]:
        """The workers that heard of something, in order."""
        return [number for number, message in self.asked if message.verb == verb]

    def reply(self, number: int, **fields: Any) -> None:
        """A worker answers the last request to it."""
        message = [message for worker, message in self.asked if worker == number and message.verb in ("act", "gather")][
            -1
        ]
        self.links[number].reply(message, fields)


def _plain(answer: Message) -> dict[str, Any]:
    return {name: value for name, value in answer.fields.items() if name != "re"}


def test_gather_asks_all_others() -> None:
    """The one who asks has its own rows; the parts say whose they are."""
    hands = Hands(3)
    hands.ask(hands.links[1], "gather", what="POOLS")
    assert hands.who("gather") == [0, 2]
    hands.reply(2, rows=[["b", 1]])
    assert hands.answers == []
    hands.reply(0, rows=[["a", 1]])
    parts = [{"seat": 0, "number": 0, "rows": [["a", 1]]}, {"seat": 2, "number": 2, "rows": [["b", 1]]}]
    assert hands.answers == [{"parts": parts, "missing": []}]


def test_gather_has_a_limit() -> None:
    """After it the answer names who is missing; it comes once."""
    hands = Hands(3)
    hands.ask(hands.links[0], "gather", what="POOLS")
    hands.reply(1, rows=[])
    hands.head.loop.run(GATHER_LIMIT_S)
    assert [answer and answer["missing"] for answer in hands.answers] == [[2]]
    hands.reply(2, rows=[])
    assert len(hands.answers) == 1


def totals(answer: dict[str, Any] | None) -> int:
    """The queries of an answer about STATS."""
    assert answer is not None
    return sum(row[3] for part in answer["parts"] for row in part["rows"])


def test_no_total_goes_back() -> None:
    """A worker that dies while it is asked, before or after its answer, or never answers, is counted once."""
    hands = Hands(4)
    counts = [0] * len(astuple(Totals()))
    for link in hands.links[1:]:
        counts[2] = 10
        link.send("totals", {"databases": {"app": counts}})
    hands.ask(hands.links[0], "gather", what="STATS")
    hands.reply(1, rows=[["app", *counts]])
    answered, dies = hands.head.children[1], hands.head.children[2]
    hands.head.die(answered)
    hands.head.die(dies)
    hands.head.loop.run(GATHER_LIMIT_S)
    assert [totals(answer) for answer in hands.answers] == [30]


def test_all_hear_a_command_in_one_order() -> None:
    """The one who asks too, so that two commands at once cannot cross."""
    hands = Hands(3)
    hands.order(hands.links[2], "PAUSE", "app")
    hands.order(hands.links[0], "DISABLE", "app")
    heard = [(number, message["command"]) for number, message in hands.asked]
    assert heard == [(n, "PAUSE") for n in range(3)] + [(n, "DISABLE") for n in range(3)]
    assert hands.head.state["paused_databases"] == hands.head.state["disabled_databases"] == ["app"]
    for number in range(3):
        hands.reply(number)
    assert hands.answers == [{"reached": True}]


@pytest.mark.parametrize(
    ("replies", "answer"),
    [
        (({"reached": True}, {"reached": True}), {"reached": True}),
        (({"reached": True}, {"reached": False}), {"reached": False}),
        (({"error": "console_no_such_database"}, {"reached": True}), {"reached": True}),
        (({"error": "console_no_such_database"}, {"error": "x"}), {"error": "console_no_such_database"}),
        # One that failed has not done it, and whoever asked must know.
        (({"reached": True}, {"error": "internal_error"}), {"error": "internal_error"}),
    ],
)
def test_the_answer_of_all(replies: tuple[dict[str, Any], dict[str, Any]], answer: dict[str, Any]) -> None:
    """Reached if all have reached it; an error if all have one, or one of them failed."""
    hands = Hands(2)
    hands.order(hands.links[0], "PAUSE", "app")
    for number, fields in enumerate(replies):
        hands.reply(number, **fields)
    assert hands.answers == [answer]


def test_what_is_refused_is_heard_by_nobody() -> None:
    """But the log has it, as PgBouncer's has, unless the name is missing."""
    hands = Hands(2)
    for command, argument in (("RESUME", ""), ("PAUSE", "nix"), ("KILL", "pgbouncer"), ("ENABLE", "")):
        hands.order(hands.links[0], command, argument)
    keys = ["not_paused", "console_no_such_database", "cannot_touch_admin_db", "database_required"]
    assert hands.answers == [{"error": key} for key in keys]
    assert hands.asked == []
    issued = ["RESUME command issued", "PAUSE 'nix' command issued", "KILL 'pgbouncer' command issued"]
    assert [text for _, text in hands.head.log.lines] == issued


def test_names_that_a_worker_has_registered() -> None:
    """RESUME and ENABLE make no entries, but know those of the worker that asks, and those that were paused."""
    hands = Hands(2, autodb=DatabaseConfig("*"))
    for command, registered in (("RESUME", False), ("ENABLE", False), ("RESUME", True)):
        hands.order(hands.links[0], command, "auto", registered=registered)
    assert [answer and answer["error"] for answer in hands.answers] == [
        "console_no_such_database", "console_no_such_database", "database_not_paused",
    ]  # fmt: skip
    hands.order(hands.links[0], "PAUSE", "auto")
    hands.order(hands.links[1], "RESUME", "auto")
    assert hands.head.state["paused_databases"] == []
    assert hands.who("act") == [0, 1, 0, 1]


def test_abandon_reaches_those_who_still_wait() -> None:
    """With the numbers they know; the one who abandons is not answered."""
    hands = Hands(3)
    number = hands.order(hands.links[0], "WAIT_CLOSE")
    hands.reply(1, reached=True)
    hands.links[0].send("abandon", {"act": number})
    assert hands.who("abandon") == [0, 2]
    ids = [message["id"] for worker, message in hands.asked if message.verb == "act" and worker != 1]
    assert [message["act"] for _, message in hands.asked if message.verb == "abandon"] == ids
    hands.reply(0, reached=True)
    hands.reply(2, reached=True)
    assert hands.answers == []
    hands.links[0].send("abandon", {"act": number})
    assert len(hands.who("abandon")) == 2


def test_a_dead_worker_abandons() -> None:
    """What its sessions waited for; only its own."""
    hands = Hands(3)
    hands.order(hands.links[0], "WAIT_CLOSE")
    hands.order(hands.links[1], "WAIT_CLOSE")
    hands.head.die(hands.head.children[0])
    assert hands.who("abandon") == [1, 2]


def test_a_client_that_was_found() -> None:
    """Ends the search; if nobody has it, all were asked."""
    hands = Hands(3)
    hands.order(hands.links[0], "KILL_CLIENT", "5")
    hands.reply(2)
    assert hands.answers == [{"reached": True}]
    hands.order(hands.links[0], "KILL_CLIENT", "6")
    for number in range(3):
        assert len(hands.answers) == 1
        hands.reply(number, error="client_not_found")
    assert hands.answers[1] == {"error": "client_not_found"}


def test_welcomes_go_to_the_others_and_to_those_who_come() -> None:
    """The last word counts; RECONNECT and a changed entry forget them, for new workers too."""
    hands = Hands(3)
    told = {"database": "app", "user": "alice", "parameters": [["TimeZone", "UTC"]]}
    hands.links[1].send("welcome", told)
    hands.links[1].send("welcome", {**told, "user": "bob"})
    assert hands.who("welcome") == [0, 2, 0, 2]
    assert hands.head.state["welcomes"] == [told, {**told, "user": "bob"}]
    hands.links[0].send("welcome", {**told, "user": "bob", "parameters": None})
    assert hands.head.state["welcomes"] == [told]
    hands.order(hands.links[0], "RECONNECT", "app")
    assert hands.head.state["welcomes"] == []
    heard = len(hands.who("welcome"))
    hands.links[0].send("welcome", {**told, "parameters": None})
    assert len(hands.who("welcome")) == heard


def test_a_request_nobody_knows() -> None:
    """Is answered, so that nobody waits for ever."""
    hands = Hands(1)
    hands.ask(hands.links[0], "ask", command="fly")
    assert hands.answers == [{"error": "no such request"}]


def test_commands_without_a_session() -> None:
    """A signal's PAUSE is no command of the console: it leaves no such line."""
    hands = Hands(2)
    results: list[dict[str, Any]] = []
    hands.head.relay.order("PAUSE", "", results.append)
    assert hands.head.state["paused"]
    assert hands.head.log.lines == []
    hands.order(hands.links[0], "RESUME")
    assert hands.head.log.texts() == "RESUME command issued"


def test_a_resume_during_a_kill() -> None:
    """Stands, although a worker that was slow has met the database when it carried out the KILL."""
    hands = Hands(2, autodb=DatabaseConfig("*"))
    hands.order(hands.links[0], "KILL")
    kills = [message for _, message in hands.asked]
    hands.order(hands.links[0], "RESUME", "app")
    for link, message in zip(hands.links, kills, strict=True):
        link.reply(message, {"databases": ["app", "auto"]})
    assert hands.head.state["paused_databases"] == ["auto"]
    last = hands.asked[-1][1]
    assert (last["command"], last["argument"]) == ("PAUSE", "auto")


def test_an_abandoned_kill() -> None:
    """Is done all the same, and nobody is answered."""
    hands = Hands(2, autodb=DatabaseConfig("*"))
    number = hands.order(hands.links[0], "KILL")
    hands.links[0].send("abandon", {"act": number})
    for link, (_, message) in zip(hands.links, list(hands.asked), strict=True):
        link.reply(message, {"databases": ["app", "auto"]})
    assert hands.head.state["paused_databases"] == ["app", "auto"]
    assert hands.answers == []
