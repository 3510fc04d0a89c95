"""An undertaker with workers that are only channels, a ledger that only counts, and a log that only listens."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence

from pgshoal.config.model import Config, DatabaseConfig, Settings
from pgshoal.fleet.channel import Channel
from pgshoal.fleet.children import Child
from pgshoal.fleet.undertaker import Undertaker
from pgshoal.worker.log import Log
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.postgres import Postgres

PATIENCE_S = 20.0


class Heard(Log):
    """Keeps every line."""

    def __init__(self) -> None:
        super().__init__(stderr=False)
        self.lines: list[str] = []

    def write(self, level: int, text: str) -> None:
        """One line."""
        self.lines.append(text)


class Counting:
    """What was given back for the dead, and which seats are free."""

    def __init__(self) -> None:
        self.given: Counter[tuple[int, int]] = Counter()
        self.left: dict[int, int] = {}
        self.freed: list[int] = []
        self.all_free = asyncio.Event()

    def give_for(self, seat: int, rows: Sequence[int]) -> None:
        """Note it."""
        assert seat not in self.freed
        self.given.update((seat, row) for row in rows)

    def settle(self, seat: int, left: Mapping[int, int]) -> None:
        """Note when nothing is left."""
        self.left = dict(left)
        if not left:
            self.freed.append(seat)
            self.all_free.set()


class Graveyard:
    """The supervisor, as far as an undertaker sees it."""

    def __init__(self, settings: Settings | None = None, *entries: DatabaseConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = Heard()
        self.config = Config("", settings or Settings(), {entry.name: entry for entry in entries})
        self.ledger = Counting()
        self.undertaker = Undertaker(self)

    async def __aenter__(self) -> Graveyard:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.undertaker.close()
        await asyncio.sleep(0)  # cancelled tasks end


class Mortal:
    """One worker, as far as an undertaker sees it."""

    def __init__(self, yard: Graveyard, seat: int = 0) -> None:
        self.yard = yard
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours, yard.loop, lambda: None)
        self.child = Child(0, seat, 1, 4711, Channel(theirs, yard.loop, lambda: None), 0.0)
        self.gone: asyncio.Queue[int] = asyncio.Queue()
        self.channel.on("gone", lambda message: self.gone.put_nowait(message["server"]))
        self.socks: list[socket.socket] = []
        yard.undertaker.attach(self.child)

    async def lend(
        self,
        server: int,
        client: FakeClient,
        rows: list[int],
        key: bytes = b"",
        tls: bool = False,
        database: str = "app",
    ) -> None:
        """Put a connection into escrow; wait until it is there."""
        peer = client.socket.getpeername()
        host, port = peer[:2] if isinstance(peer, tuple) else peer.rsplit("/.s.PGSQL.", 1)
        facts = {"server": server, "rows": rows, "host": host, "port": int(port), "tls": tls}
        facts["database"] = database
        self.channel.send("escrow", facts, fd=client.socket.fileno())
        if key:
            self.channel.send("backend", {"server": server, "key": key.hex()})
        self.socks.append(client.socket)
        await self.heard()

    async def heard(self) -> None:
        """Wait until the supervisor has handled all that was sent."""
        done = asyncio.Event()
        self.child.channel.on("mark", lambda message: done.set())
        self.channel.send("mark")
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()

    async def die(self) -> None:
        """As after kill -9: the kernel closes every descriptor, the supervisor reaps."""
        self.channel.close()
        for sock in self.socks:
            sock.close()
        self.child.channel.close()
        self.yard.undertaker.died(self.child)

    async def next_gone(self) -> int:
        """The next server that is said to be gone."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.gone.get()

    def close(self) -> None:
        """Both ends."""
        self.channel.close()
        self.child.channel.close()


def backend(server: Postgres, sql: str = "", tls: ssl.SSLContext | None = None, unix: bool = False) -> FakeClient:
    """A logged-in connection, with a query under way that nobody reads the answer of."""
    address = f"{server.socket_dir}/.s.PGSQL.{server.port}" if unix else (server.host, server.port)
    client = FakeClient(address)
    if tls is not None:
        client.send(m.SSL_REQUEST)
        assert client.read_bytes(1) == b"S"
        client.socket = tls.wrap_socket(client.socket)
    client.login("alice", "app")
    if sql:
        client.send(m.query(sql))
    return client


def pid_of(client: FakeClient) -> int:
    """The backend's process id."""
    return int.from_bytes(client.key[:4])


def lives(server: Postgres, pid: int) -> bool:
    """Whether pg_stat_activity shows it."""
    return bool(server.query(f"select 1 from pg_stat_activity where pid = {pid}"))
