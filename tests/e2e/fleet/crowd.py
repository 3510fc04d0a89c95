"""A crowd of short-lived raw clients, and a monitor that counts the backends PostgreSQL has for them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support import messages as m
from tests.support.postgres import Postgres

SAMPLE_S = 0.005
CLIENT_LIMIT_S = 40.0


class Monitor(threading.Thread):
    """Samples pg_stat_activity over a direct connection: how many backends of a database there are at most."""

    def __init__(self, pg: Postgres, dbname: str = "app", user: str = "") -> None:
        super().__init__(daemon=True)
        self._connection = pg.connect()
        self._about = (dbname, user, user)
        self._ending = threading.Event()
        self.seen: Counter[int] = Counter()
        #: (when, count) of every sample, by time.monotonic
        self.samples: list[tuple[float, int]] = []

    def count(self) -> int:
        """The backends now; each query is a snapshot of its own."""
        asked = (
            "select count(*) from pg_stat_activity"
            " where datname = %s and backend_type = 'client backend' and (%s = '' or usename = %s)"
        )
        row = self._connection.execute(asked, self._about).fetchone()
        return 0 if row is None else int(row[0])

    def run(self) -> None:
        """Until `end`."""
        while not self._ending.is_set():
            count = self.count()
            self.seen[count] += 1
            self.samples.append((time.monotonic(), count))
            time.sleep(SAMPLE_S)

    def end(self) -> int:
        """Stops; the most that was seen."""
        self._ending.set()
        self.join()
        self._connection.close()
        return max(self.seen, default=0)

    def __enter__(self) -> Monitor:
        self.start()
        return self

    def __exit__(self, *facts: object) -> None:
        if self.is_alive():
            self.end()


class Refused(Exception):
    """The pooler has said why."""


class Session:
    """A raw session that may stay; `seat` says which worker has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.seat = -1

    @classmethod
    async def open(cls, address: tuple[str, int], user: str = "alice", dbname: str = "app") -> Session:
        """Logged in; Refused if not."""
        session = cls(*await asyncio.open_connection(*address))
        try:
            session._writer.write(m.startup({"user": user, "database": dbname}))
            await session._until_ready()
        except BaseException:
            session.close()
            raise
        return session

    async def ask(self, sql: str) -> None:
        """One query and its whole answer; Refused if that is an error."""
        self._writer.write(m.query(sql))
        await self._until_ready()

    def close(self, reset: bool = False) -> None:
        """Leave without a word."""
        if reset:
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _until_ready(self) -> None:
        told = ""
        while True:
            kind, length = struct.unpack("!cI", await self._reader.readexactly(5))
            payload = await self._reader.readexactly(length - 4)
            if kind == b"K":
                self.seat = payload[0]
            elif kind == b"E":
                fields = m.error_fields(payload)
                told = fields["M"]
                if fields["S"] in ("FATAL", "PANIC"):
                    raise Refused(told)
            elif kind == b"Z" and told:
                raise Refused(told)
            elif kind == b"Z":
                return


async def visit(address: tuple[str, int], sql: str, reset_after_s: float | None = None, user: str = "alice") -> str:
    """Connect, ask once and leave, or reset in the middle: served, reset, lost, refused, or what the pooler says."""
    try:
        async with asyncio.timeout(CLIENT_LIMIT_S):
            session = await Session.open(address, user)
            try:
                async with asyncio.timeout(reset_after_s):
                    await session.ask(sql)
            except TimeoutError:
                if reset_after_s is None:
                    raise
                session.close(reset=True)
                return "reset"
            finally:
                session.close()
            return "served"
    except Refused as refused:
        return str(refused)
    except TimeoutError:
        return "never answered"
    except ConnectionRefusedError:
        return "refused"
    except (OSError, asyncio.IncompleteReadError):
        return "lost"


@asynccontextmanager
async def settled(
    address: tuple[str, int], wanted: dict[int, int], user: str = "alice"
) -> AsyncIterator[dict[int, list[Session]]]:
    """Sessions in chosen workers, as many per seat as wanted; they leave at the end."""
    kept: dict[int, list[Session]] = {seat: [] for seat in wanted}
    spare: list[Session] = []
    try:
        for _ in range(500):
            if all(len(kept[seat]) == count for seat, count in wanted.items()):
                break
            session = await Session.open(address, user)
            mine = kept.get(session.seat)
            (spare if mine is None or len(mine) == wanted[session.seat] else mine).append(session)
        assert {seat: len(found) for seat, found in kept.items()} == wanted
        await leave(spare)
        yield kept
    finally:
        await leave([*spare, *(session for found in kept.values() for session in found)])


async def leave(sessions: list[Session]) -> None:
    """All of them, without a word."""
    for session in sessions:
        session.close()
    await asyncio.sleep(0.02)  # a transport needs a turn of the loop to end
