"""An engine that only records what it is told, and a worker around it: for tests of single steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self, cast

from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings
from pgshoal.engine.contract import Engine
from pgshoal.worker.app import Worker
from pgshoal.worker.log import Log
from pgshoal.worker.records import Client, Server, ServerState, Welcome
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.worker.alone import Alone

LISTENER = 1
REPORTED = [
    ("in_hot_standby", "off"),
    ("server_version", "15.1"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("application_name", ""),
    ("session_authorization", "alice"),
]


@dataclass
class Closing:
    """What a connection was closed with."""

    data: bytes
    reason: str


class StubEngine:
    """Verbs are recorded per connection; nothing happens by itself."""

    name = "stub"

    def __init__(self) -> None:
        self.clock_us = 1_000_000
        self.sent: dict[int, bytes] = {}
        self.closed: dict[int, Closing] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.admitted: dict[int, tuple[int, dict[str, str]]] = {}
        self.connected: dict[int, Any] = {}
        self.links: dict[int, int] = {}
        self.unread: dict[int, int] = {}
        self.modes: dict[int, str] = {}
        self.unix: dict[int, tuple[int, int, int]] = {}
        self.tls_starts = True
        #: gone, though their CLOSED has not been read yet
        self.dead: set[int] = set()
        self._next = 100

    def now_us(self) -> int:
        return self.clock_us

    def new_conn(self) -> int:
        self._next += 1
        return self._next

    def addresses(self, conn: int) -> tuple[str, int, str, int]:
        return ("unix", 0, "unix", 0) if conn in self.unix else ("127.0.0.1", 40000 + conn, "127.0.0.1", 6432)

    def credentials(self, conn: int) -> tuple[int, int, int]:
        return self.unix[conn]

    def facts(self, conn: int) -> Any:
        return SimpleNamespace(recv_pending=self.unread.get(conn, 0), mode=self.modes.get(conn, "parked"))

    def _alive(self, conn: int) -> None:
        if conn in self.dead:
            raise KeyError(conn)

    def send(self, conn: int, data: bytes) -> None:
        self._alive(conn)
        assert conn not in self.closed
        self.sent[conn] = self.sent.get(conn, b"") + data

    def proceed(self, conn: int, limit: int, data: bytes = b"") -> None:
        self._alive(conn)
        self.calls.append(("proceed", conn, limit))
        if data:
            self.send(conn, data)

    def close(self, conn: int, data: bytes = b"", reason: str = "") -> None:
        self._alive(conn)
        assert conn not in self.closed
        self.closed[conn] = Closing(data, reason)

    def admit(
        self,
        conn: int,
        pool: int,
        parameters: Sequence[tuple[str, str]],
        idle_us: int = 0,
        wait_us: int = -1,
        welcome: bytes = b"",
    ) -> None:
        self.send(conn, welcome)
        self.admitted[conn] = (pool, dict(parameters))
        self.calls.append(("limits", conn, idle_us, wait_us))

    def connect(self, address: Any, options: Any) -> int:
        conn = self.new_conn()
        self.connected[conn] = address
        return conn

    def start_tls(self, conn: int, context: Any, server_name: str = "") -> bool:
        self.calls.append(("start_tls", conn, context, server_name))
        return self.tls_starts

    def server_context(self, settings: Any) -> Any:
        return ("server", settings)

    def client_context(self, settings: Any) -> Any:
        return ("client", settings)

    def add_pool(self, spec: Any) -> int:
        return self.new_conn()

    def link_of(self, conn: int) -> int:
        self._alive(conn)
        return self.links.get(conn, 0)

    def waiting_clients(self, pool: int) -> list[int]:
        return []

    def __getattr__(self, verb: str) -> Any:
        def record(*arguments: Any) -> None:
            if arguments and isinstance(arguments[0], int):
                self._alive(arguments[0])
            self.calls.append((verb, *arguments))

        return record


class Lines(Log):
    """A log whose lines a test reads as (level, text)."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        super().__init__(stderr=False)
        self.lines: list[tuple[int, str]] = []

    def write(self, level: int, text: str) -> None:
        self.lines.append((level, text))

    def texts(self) -> str:
        """All lines without their levels."""
        return "\n".join(text for _, text in self.lines)


class Bench:
    """A worker on a stub engine; the pool of app and alice has been welcomed unless `cold`."""

    def __init__(self, secrets: dict[str, Secret] | None = None, cold: bool = False, **settings: Any) -> None:
        databases = settings.pop(
            "databases", {"app": DatabaseConfig("app"), "forced": DatabaseConfig("forced", user="bob")}
        )
        autodb = settings.pop("autodb", None)
        users = settings.pop("users", {})
        fleet = settings.pop("fleet", None) or Alone()
        settings.setdefault("auth_type", "trust")
        if secrets is None:
            secrets = {name: Secret("plain", f"{name}-secret") for name in ("alice", "bob", "admin")}
        self.config = Config(
            "test.ini", Settings(**settings), databases=databases, autodb=autodb, users=users, secrets=secrets
        )
        self.engine = StubEngine()
        self.log = Lines()
        self.loop = asyncio.new_event_loop()
        self.fleet = fleet
        self.worker = Worker(self.config, cast(Engine, self.engine), self.log, self.loop, self.fleet)
        self.worker.offload = lambda work, done: done(work())  # type: ignore[method-assign]
        self.worker.grow = lambda pool: self.engine.calls.append(("grow", pool))  # type: ignore[method-assign]
        self.worker.pools.load()
        if not cold:
            self.welcome("app", "alice")

    def welcome(self, database: str, user: str) -> Any:
        """Make a pool and its welcome."""
        pools = self.worker.pools
        record, name = pools.database(database), pools.user(user)
        assert record is not None
        assert name is not None
        pool = pools.pool(record, name)
        pool.welcome = Welcome(list(REPORTED))
        return pool

    def close(self) -> None:
        """Free the loop."""
        self.worker.threads.close()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *facts: object) -> None:
        self.close()

    def event(self, number: int, *facts: Any) -> None:
        """Hand an event to the worker as its table would."""
        self.worker._table[number](*facts)

    def accept(self, unix: tuple[int, int, int] | None = None) -> Talk:
        """A client connects."""
        conn = self.engine.new_conn()
        if unix is not None:
            self.engine.unix[conn] = unix
        self.event(1, conn, LISTENER)
        return Talk(self, conn)

    def login(self, user: str = "alice", database: str = "app", **parameters: str) -> Talk:
        """A client connects and sends its startup packet."""
        talk = self.accept()
        talk.startup(user, database, 196608, **parameters)
        return talk

    def server(self, pool: Any, **more: Any) -> Server:
        """A server of a pool, as after its login."""
        conn = self.engine.new_conn()
        server = Server(
            conn,
            1,
            pool,
            ServerState.POOLED,
            0.0,
            0,
            "127.0.0.1",
            5432,
            ("127.0.0.1", 5432),
            cancel_key=b"backend!",
            **more,
        )
        self.worker.servers.by_conn[conn] = pool.servers[conn] = server
        return server


class Talk:
    """One client connection as a test speaks for it."""

    def __init__(self, bench: Bench, conn: int) -> None:
        self.bench = bench
        self.conn = conn

    def packet(self, packet: bytes) -> None:
        """A startup-framed packet, given with its length."""
        self.bench.event(3, self.conn, packet[4:])

    def startup(self, user: str = "alice", database: str = "app", protocol: int = m.PROTOCOL_3_0, **more: str) -> None:
        """The startup packet."""
        self.packet(m.startup({"user": user, "database": database, **more}, protocol))

    def message(self, packet: bytes) -> None:
        """A whole message."""
        self.bench.event(5, self.conn, packet[0], packet[5:])

    def password(self, data: bytes) -> None:
        """A password message with this content."""
        self.message(m.message(b"p", data))

    def oversize(self, header: bytes) -> None:
        """A header with a length that is not allowed."""
        self.bench.event(6, self.conn, header)

    def secured(self) -> None:
        """The handshake is done."""
        self.bench.event(8, self.conn, "TLSv1.3", "TLS_AES_256_GCM_SHA384", "postgresql", "", None)

    def gone(self, reason: str = "client unexpected eof") -> None:
        """The client leaves."""
        self.bench.event(9, self.conn, reason)

    def fault(self, key: str, detail: str = "") -> None:
        """The engine freezes the client."""
        self.bench.event(10, self.conn, key, detail)

    @property
    def got(self) -> bytes:
        """What was sent and not yet looked at."""
        return self.bench.engine.sent.pop(self.conn, b"")

    def messages(self) -> list[Message]:
        """The same as messages."""
        data, found = self.got, []
        while data:
            size = int.from_bytes(data[1:5])
            found.append(Message(chr(data[0]), data[5 : 1 + size]))
            data = data[1 + size :]
        return found

    @property
    def client(self) -> Client | None:
        """Its record if it is logged in."""
        return self.bench.worker.front.clients.get(self.conn)

    @property
    def open(self) -> bool:
        """Whether we have not closed it."""
        return self.conn not in self.bench.engine.closed

    def refused(self) -> str:
        """The text of the FATAL it was closed with, "" if it was closed without a word."""
        closing = self.bench.engine.closed[self.conn]
        if not closing.data:
            return ""
        fields = m.error_fields(closing.data[5:])
        assert fields["S"] == "FATAL"
        return fields["M"]
