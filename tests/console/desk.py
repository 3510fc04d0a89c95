"""A console over workers whose engines only record: what a test of one command needs."""

from __future__ import annotations

import struct
from typing import Any, Self

from pgshoal.config.model import Config, Secret, Settings
from pgshoal.console.session import AdminConsole
from pgshoal.engine.contract import ConnFacts, PoolCounts, PoolStats
from pgshoal.worker.leaving import Leaving
from pgshoal.worker.records import Server
from tests.console.fleet import Head
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.worker.stub import Bench, Lines, Talk

NO_CONFIG = Config("test.ini", Settings())
IDLE = ConnFacts("parked", 0, 0, 0, "", 0, 0, 0, 0, 0, False)
EMPTY = PoolCounts(0, 0, 0, 0, 0, 0, 0, 0)


class Desk(Bench):
    """The worker, its console, and the facts its engine answers with."""

    def __init__(self, head: Head | None = None, ready: bool = True, **settings: Any) -> None:
        """The first worker of a fleet of its own, or one more of the fleet of `head`."""
        self._settings = dict(settings)
        settings.setdefault("admin_users", ("admin",))
        settings.setdefault("stats_users", ("stats",))
        names = ("alice", "bob", "admin", "stats")
        lines = Lines() if head is None else head.log
        self.head = Head(NO_CONFIG, lines) if head is None else head
        secrets = {name: Secret("plain", f"{name}-secret") for name in names}
        super().__init__(secrets, fleet=self.head.start(ready=False), **settings)
        self.log = self.worker.log = lines
        self.child = self.head.children[-1]
        if head is None:
            self.head.config = self.config
        else:
            self.config = self.worker.config = head.relay.reconfigure.bootable()
        self.worker.pause.adopt(self.worker.fleet.state)
        Leaving(self.worker)
        self.console = self.worker.console = AdminConsole(self.worker)
        self.facts: dict[int, ConnFacts] = {}
        self.counts: dict[int, PoolCounts] = {}
        self.totals: dict[int, PoolStats] = {}
        self.parameters: dict[int, dict[str, str]] = {}
        answers = {
            "facts": lambda conn: self.facts.get(conn, IDLE),
            "pool_counts": lambda pool: self.counts.get(pool, EMPTY),
            "pool_stats": lambda pool: self.totals.get(pool, PoolStats()),
            "parameters": lambda conn: self.parameters.get(conn, {}),
            "memory": lambda: [("own_cache", 7, 2, 0), ("client_cache", 100, 3, 2)],
            "take": lambda conn: False,
            "events": list,
            "pending": lambda: False,
        }
        self.engine.__dict__.update(answers)
        if ready:
            self.head.serve(self.child)

    def another(self, ready: bool = True) -> Desk:
        """One more worker of the same fleet."""
        return Desk(self.head, ready, **self._settings)

    def __enter__(self) -> Self:
        return self

    def session(self, user: str = "admin", **parameters: str) -> Talk:
        """A console session whose welcome has been read."""
        talk = self.login(user, "pgbouncer", **parameters)
        assert talk.messages()[-1] == Message("Z", b"I")
        return talk

    def pool(self) -> Any:
        """The pool of app and alice."""
        return self.worker.pools.by_key["app", "alice"]


def busy(desk: Desk) -> Server:
    """A server of app and alice that some client uses."""
    return desk.server(desk.pool())


def ask(talk: Talk, text: str) -> list[Message]:
    """A command and its whole answer; nothing while it waits."""
    talk.message(m.query(text))
    return talk.messages()


def tag(talk: Talk, text: str) -> str:
    """The command tag, or the text of the error, of an answer that ends with ReadyForQuery."""
    *_, last, ready = ask(talk, text)
    assert ready == Message("Z", b"I")
    return words(last)


def words(message: Message) -> str:
    """What a CommandComplete, an ErrorResponse or a NoticeResponse says."""
    if message.kind == "C":
        return message.payload.rstrip(b"\0").decode()
    return m.error_fields(message.payload)["M"]


def columns(message: Message) -> list[tuple[str, int]]:
    """(name, type oid) of a RowDescription."""
    assert message.kind == "T"
    at, found = 2, []
    for _ in range(struct.unpack_from("!H", message.payload)[0]):
        end = message.payload.index(0, at)
        _, _, oid, *_ = struct.unpack_from("!IHIhiH", message.payload, end + 1)
        found.append((message.payload[at:end].decode(), oid))
        at = end + 19
    return found


def values(message: Message) -> list[str | None]:
    """The values of a DataRow."""
    assert message.kind == "D"
    at, found = 2, list[str | None]()
    for _ in range(struct.unpack_from("!H", message.payload)[0]):
        (size,) = struct.unpack_from("!i", message.payload, at)
        at += 4
        found.append(None if size < 0 else message.payload[at : at + size].decode())
        at += max(size, 0)
    return found


def rows(talk: Talk, text: str) -> list[dict[str, str | None]]:
    """The rows of a SHOW."""
    head, *body, complete, ready = ask(talk, text)
    assert words(complete) == "SHOW"
    assert ready.kind == "Z"
    names = [name for name, _ in columns(head)]
    return [dict(zip(names, values(row), strict=True)) for row in body]
