"""A whole worker on the twin without sockets: the test moves the clock and speaks for clients and servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pgshoal.config.ini import connection_string
from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings, UserConfig
from pgshoal.engine.python import PythonEngine
from pgshoal.worker.app import Worker
from pgshoal.worker.log import Log
from tests.support import messages as m
from tests.worker.alone import Alone

__all__ = ["Bench", "DatabaseConfig", "Secret", "UserConfig", "connection_string"]

PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "application_name": "", "TimeZone": "UTC"}


class QuietLog(Log):
    """Keeps lines instead of writing them."""

    def __init__(self) -> None:
        super().__init__(stderr=False)
        self.lines: list[str] = []

    def write(self, level: int, text: str) -> None:
        """Kept."""
        self.lines.append(text)

    def has(self, text: str) -> bool:
        """Whether any line contains it."""
        return any(text in line for line in self.lines)


class StillLoop:
    """The little of a loop a worker asks for, without time."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        """Never called: `Bench.pass_time` is the clock."""
        return StillTimer()

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """The bell: nobody rings it."""

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """At once."""
        callback()

    def create_task(self, coroutine: Any) -> Any:
        """No look-ups in these tests."""
        coroutine.close()
        raise AssertionError("a look-up was begun")


class StillTimer:
    """What call_later gives."""

    def cancel(self) -> None:
        """Nothing to cancel."""


class LocalEngine(PythonEngine):
    """The twin, with addresses for its connections."""

    def __init__(self) -> None:
        super().__init__("manual")

    def addresses(self, conn: int) -> tuple[str, int, str, int]:
        """TCP on loopback."""
        return ("127.0.0.1", 40000 + conn, "127.0.0.1", 6432)


class Bench:
    """`bench.login()` gives a client, `bench.new_servers()` the connections to servers that were begun since."""

    def __init__(
        self,
        databases: dict[str, str] | None = None,
        users: dict[str, UserConfig] | None = None,
        autodb: str | None = None,
        fleet: Alone | None = None,
        **settings: Any,
    ) -> None:
        entries = databases or {"app": ""}
        self.engine = LocalEngine()
        self.engine.set_now(1_000_000)
        config = Config(
            "test.ini",
            Settings(**{"auth_type": "trust", "pool_mode": "transaction", "server_check_query": "", **settings}),
            {name: entry(name, text) for name, text in entries.items()},
            entry("*", autodb) if autodb is not None else None,
            users or {},
            secrets={name: Secret("plain", "x") for name in ("alice", "bob", "carol")},
        )
        self.log = QuietLog()
        loop: Any = StillLoop()
        self.fleet = fleet or Alone()
        self.worker = Worker(config, self.engine, self.log, loop, self.fleet)
        self.worker.start()
        self._seen: set[int] = set()
        self._keys = itertools.count(1)

    # -- time

    def pass_time(self, seconds: float) -> None:
        """One tick of the janitor after that much time."""
        self.engine.set_now(self.engine.now_us() + round(seconds * 1e6))
        self.worker.janitor.tick()
        self.worker.drain()

    # -- clients

    def login(self, user: str = "alice", dbname: str = "app") -> int:
        """A client that has sent its startup packet."""
        conn = self.engine.accept_manual(1)
        self.worker.drain()
        self.say(conn, m.startup({"user": user, "database": dbname}))
        return conn

    def say(self, conn: int, *data: bytes) -> None:
        """Bytes from a client or a server."""
        self.engine.received(conn, b"".join(data))
        self.worker.drain()

    def leave(self, conn: int) -> None:
        """The peer closes."""
        self.engine.received_eof(conn)
        self.worker.drain()

    def heard(self, conn: int) -> bytes:
        """What was sent to a client or server since; b"" for one that is gone."""
        try:
            return self.engine.output(conn)
        except KeyError:
            return b""

    def error(self, conn: int) -> str:
        """The text of the error a client got, "" for none."""
        heard = self.heard(conn)
        at = heard.find(b"E\0\0")
        return heard[at:].partition(b"\0M")[2].partition(b"\0")[0].decode() if at >= 0 else ""

    # -- servers

    def new_servers(self) -> list[int]:
        """Connections to servers begun since the last call."""
        fresh = [conn for conn in self.worker.servers.by_conn if conn not in self._seen]
        self._seen.update(fresh)
        return fresh

    def connect(self, conn: int) -> None:
        """The TCP connection is up."""
        self.engine.connected_manual(conn)
        self.worker.drain()

    def welcome(self, conn: int, **changed: str) -> None:
        """A trusting server's whole login."""
        self.connect(conn)
        if self.heard(conn)[4:8] == b"\x04\xd2\x16\x2f":
            self.say(conn, b"N")
            self.heard(conn)
        states = [m.parameter_status(k, v) for k, v in {**PARAMETERS, **changed}.items()]
        key = m.message(b"K", next(self._keys).to_bytes(4) + b"\0\0\0\1")
        self.say(conn, m.auth(0), *states, key, m.ready())

    def serve(self, count: int = 1) -> list[int]:
        """Logs in all servers that were begun, which must be that many."""
        fresh = self.new_servers()
        assert len(fresh) == count, fresh
        for conn in fresh:
            self.welcome(conn)
        return fresh

    def alive(self, conn: int) -> bool:
        """Whether the worker still knows a server."""
        return conn in self.worker.servers.by_conn

    def answer(self, conn: int, status: str = "I") -> None:
        """A server ends a query."""
        self.say(conn, m.command_complete("SELECT 1"), m.ready(status))


def entry(name: str, text: str) -> DatabaseConfig:
    """A [databases] line, short: numbers stay numbers, the host is loopback."""
    given: dict[str, Any] = {}
    for key, value in connection_string(text):
        given[key] = int(value) if value.isdigit() and key not in ("user", "password") else value
    if "password" in given:
        given["password"] = Secret("plain", str(given["password"]))
    hosts = tuple(str(given.pop("host", "127.0.0.1")).split(","))
    return DatabaseConfig(name, hosts=hosts, **given)


def close(bench: Bench) -> None:
    """Ends the worker's thread."""
    bench.worker.close()
