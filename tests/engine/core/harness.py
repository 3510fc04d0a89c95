"""Drives an engine by the driver "manual": pools, clients and servers with short names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pgshoal.engine.contract import ConnFacts, Engine, EngineLimits, Event, PoolMode, PoolSpec, SocketOptions

START_US = 1_000_000
STARTUP = b"\0\0\0\x08\0\x03\0\0"
IDLE = b"Z\0\0\0\x05I"
BLOCK = b"Z\0\0\0\x05T"
FAILED = b"Z\0\0\0\x05E"


def make_python() -> Engine:
    """The twin."""
    from pgshoal.engine.python import PythonEngine

    return PythonEngine("manual")


def make_native() -> Engine:
    """The compiled engine."""
    from pgshoal.engine.native import NativeEngine

    engine: Engine = NativeEngine("manual")
    return engine


MAKERS: dict[str, Callable[[], Engine]] = {"python": make_python, "native": make_native}


class Peer:
    """One connection as its peer sees it."""

    def __init__(self, bench: Bench, conn: int) -> None:
        self.bench = bench
        self.id = conn

    def say(self, *messages: bytes) -> None:
        """Sends bytes, as a whole or byte by byte."""
        data = b"".join(messages)
        if self.bench.cut == "whole":
            self.bench.engine.received(self.id, data)
            return
        for at in range(len(data)):
            try:
                self.bench.engine.received(self.id, data[at : at + 1])
            except KeyError:
                return

    def heard(self) -> bytes:
        """Takes what was sent to it."""
        return self.bench.engine.output(self.id)

    def leave(self) -> None:
        """Closes its side."""
        self.bench.engine.received_eof(self.id)

    @property
    def facts(self) -> ConnFacts:
        """How the engine sees it."""
        return self.bench.engine.facts(self.id)

    @property
    def mode(self) -> str:
        """Its mode; "gone" when the engine knows it no more."""
        try:
            return self.facts.mode
        except KeyError:
            return "gone"


class Bench:
    """An engine with one pool made on first use."""

    def __init__(self, kind: str, cut: str) -> None:
        self.kind = kind
        self.cut = cut
        self.engine = MAKERS[kind]()
        self.engine.set_now(START_US)
        self.now = START_US
        self.pool_id = 0

    def limits(self, **values: Any) -> None:
        """Sets process-wide limits."""
        self.engine.set_limits(EngineLimits(**values))

    def pool(self, mode: PoolMode = PoolMode.TRANSACTION, prepared: int = 10, **more: Any) -> int:
        """Makes the pool that peers join from now on."""
        self.pool_id = self.engine.add_pool(PoolSpec(mode=mode, max_prepared_statements=prepared, **more))
        return self.pool_id

    def fresh_client(self) -> Peer:
        """A client that has just connected; its event is taken."""
        conn = self.engine.accept_manual(7)
        self.engine.overdue(0)
        assert (Event.ACCEPTED, conn, 7) in self.events()
        return Peer(self, conn)

    def client(self, parameters: Sequence[tuple[str, str]] = (), idle_us: int = 0, wait_us: int = -1) -> Peer:
        """An admitted client."""
        peer = self.fresh_client()
        self.engine.received(peer.id, STARTUP)
        self.events()
        self.engine.admit(peer.id, self.pool_id or self.pool(), parameters, idle_us, wait_us)
        return peer

    def fresh_server(self) -> Peer:
        """A server that has just connected; its event is taken."""
        conn = self.engine.connect(("127.0.0.1", 5432), SocketOptions())
        self.engine.connected_manual(conn)
        assert (Event.CONNECTED, conn) in self.events()
        return Peer(self, conn)

    def server(self, parameters: Sequence[tuple[str, str]] = ()) -> Peer:
        """An enrolled server."""
        peer = self.fresh_server()
        self.engine.enroll(peer.id, self.pool_id or self.pool(), parameters)
        return peer

    def linked(self, *messages: bytes) -> tuple[Peer, Peer]:
        """A client and a server; the client has said `messages` and the server has heard them."""
        server = self.server()
        client = self.client()
        if messages:
            client.say(*messages)
            assert server.heard() == b"".join(messages)
        return client, server

    def events(self) -> list[tuple[Any, ...]]:
        """Takes all events."""
        return [(Event(event[0]), *event[1:]) for event in self.engine.events()]

    def tick(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += int(seconds * 1_000_000)
        self.engine.set_now(self.now)

    def overdue(self) -> list[tuple[int, str]]:
        """Who is past a limit now."""
        return sorted(self.engine.overdue(self.now))
