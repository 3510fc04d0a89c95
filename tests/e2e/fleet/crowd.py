"""A crowd of short-lived raw clients, and a monitor that counts the backends PostgreSQL has for them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress

from tests.support import messages as m
from tests.support.postgres import Postgres

SAMPLE_S = 0.005
CLIENT_LIMIT_S = 40.0


class Monitor(threading.Thread):
    """Samples pg_stat_activity over a direct connection: how many backends of a database there are at most."""

    def __init__(self, pg: Postgres, dbname: str = "app") -> None:
        super().__init__(daemon=True)
        self._connection = pg.connect()
        self._dbname = dbname
        self._ending = threading.Event()
        self.seen: Counter[int] = Counter()
        #: (when, count) of every sample, by time.monotonic
        self.samples: list[tuple[float, int]] = []

    def count(self) -> int:
        """The backends now; each query is a snapshot of its own."""
        asked = "select count(*) from pg_stat_activity where datname = %s and backend_type = 'client backend'"
        row = self._connection.execute(asked, (self._dbname,)).fetchone()
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


class Client:
    """One client of the crowd; `run` says how it ended: served, reset (by itself), lost, or what it was told."""

    def __init__(self, address: tuple[str, int], user: str = "alice", dbname: str = "app") -> None:
        self._address = address
        self._startup = m.startup({"user": user, "database": dbname})

    async def run(self, sql: str, reset_after_s: float | None = None) -> str:
        """Connect, ask once and leave; or reset the connection in the middle."""
        try:
            async with asyncio.timeout(CLIENT_LIMIT_S):
                return await self._run(sql, reset_after_s)
        except TimeoutError:
            return "never answered"
        except ConnectionRefusedError:
            return "refused"
        except (OSError, asyncio.IncompleteReadError):
            return "lost"

    async def _run(self, sql: str, reset_after_s: float | None) -> str:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(self._startup)
            told = await self._until_ready(reader)
            if told:
                return told
            writer.write(m.query(sql))
            if reset_after_s is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(reset_after_s):
                        return await self._until_ready(reader) or "served"
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return "reset"
            return await self._until_ready(reader) or "served"
        finally:
            writer.transport.abort()

    @staticmethod
    async def _until_ready(reader: asyncio.StreamReader) -> str:
        """The text of an error that came before, or ""."""
        told = ""
        while True:
            kind, length = struct.unpack("!cI", await reader.readexactly(5))
            payload = await reader.readexactly(length - 4)
            if kind == b"Z":
                return told
            if kind == b"E":
                fields = m.error_fields(payload)
                told = fields["M"]
                if fields["S"] in ("FATAL", "PANIC"):
                    return told
