"""A crowd of clients that ask for their own words until told to stop, and what must hold when it has left."""

from __future__ import annotations

import random
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import psutil

from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient, LoginRefused
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

USERS = ("alice", "bob")
#: What is too long for one read of anybody.
LONG_BYTES = 40_000
#: What a client may see or be told when servers or networks fail: the end of its connection, or one of these texts.
TOLD = re.compile(
    r"Closed|Connection\w+Error|BrokenPipeError|SSL\w*Error"
    r"|server conn crashed\?|server closed|query_wait_timeout|client_login_timeout( \(server down\))?"
    r"|server login has been failing, cached error: .* \(server_login_retry\)"
    r"|terminating connection (due to|because of) .*|the database system is .*"
)


class Crowd:
    """`with Crowd(pooler, ["app"]) as crowd:`; `wrong` must stay empty, `lost` counts connections that ended.

    `address` is another way to the pooler, `tls` what half of the clients ask for; `long` allows long answers.
    """

    def __init__(
        self,
        pooler: Pooler,
        databases: Sequence[str],
        size: int = 8,
        *,
        address: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
        long: bool = False,
        wait_s: float = 20,
    ) -> None:
        self.databases, self.long, self.tls, self.wait_s = databases, long, tls, wait_s
        self.address = address or (pooler.host, pooler.port)
        self.answered = 0
        self.lost: Counter[str] = Counter()
        self.wrong: list[object] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(number,)) for number in range(size)]

    def _live(self, number: int) -> None:
        dice = random.Random(number)
        while not self._stop.is_set():
            try:
                with FakeClient(self.address, wait_s=self.wait_s) as client:
                    if self.tls is not None and dice.random() < 0.5:
                        client.encrypt(self.tls)
                    client.login(dice.choice(USERS), dice.choice(self.databases))
                    for turn in range(dice.randrange(1, 30)):
                        self._ask(client, f"{number}:{turn}:{dice.random()}", dice)
            except (OSError, Closed) as error:
                self.lost[type(error).__name__] += 1
            except LoginRefused as refused:
                self.lost[refused.fields.get("M", "")] += 1
                time.sleep(0.02)

    def _ask(self, client: FakeClient, word: str, dice: random.Random) -> None:
        if self.long and dice.random() < 0.3:
            word = word.ljust(LONG_BYTES, ".")
        sql = f"select '{word}'"
        asked = m.query(sql)
        if dice.random() < 0.3:
            asked = m.parse("same", sql) + m.bind("same") + m.execute() + m.close("S", "same") + m.SYNC
        parts = [m.query("begin"), asked, m.query("commit")] if dice.random() < 0.3 else [asked]
        client.send(*parts)
        for part in parts:
            found = client.read_until("ZE")
            if found[-1].kind == "E":
                raise LoginRefused(m.error_fields(found[-1].payload))
            rows = [message.payload[6:].decode() for message in found if message.kind == "D"]
            if rows != ([word] if part == asked else []):
                self.wrong.append((word, found))
        self.answered += 1

    @property
    def strange(self) -> Counter[str]:
        """What nobody should have seen; a client that was never answered is among it."""
        return Counter({text: count for text, count in self.lost.items() if not TOLD.fullmatch(text)})

    def more(self, count: int = 20) -> None:
        """Until so many more have been answered."""
        wanted = self.answered + count
        until(lambda: self.answered >= wanted, f"{count} more answers; ended: {self.lost}")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        if error is None:
            assert not any(thread.is_alive() for thread in self._threads)
            assert self.wrong == []


def settled(pooler: Pooler, *clusters: Postgres) -> None:
    """Nobody is left, and what the console says of servers is what PostgreSQL says; no error of ours was logged."""
    until(lambda: {r["list"]: r["items"] for r in pooler.admin("SHOW LISTS")}["used_clients"] == 1, "all clients gone")
    asked = "select count(*) from pg_stat_activity where usename in ('alice', 'bob')"

    def same() -> bool:
        servers = len(pooler.admin("SHOW SERVERS"))
        counted = sum(row["current_connections"] for row in pooler.admin("SHOW DATABASES"))
        workers = map(psutil.Process, pooler.worker_pids())
        sockets = [c for worker in workers for c in worker.net_connections() if c.status == "ESTABLISHED"]
        pooled = sum(row[key] for row in pooler.admin("SHOW POOLS") for key in row if key.startswith("sv_"))
        backends = sum(int(pg.query(asked)[0][0]) for pg in clusters)
        return servers == counted == pooled == backends and len(sockets) <= servers + 1

    until(same, "as many servers as the server has backends")
    left = ("cl_active", "cl_waiting", "sv_active", "sv_login", "sv_tested", "sv_being_canceled")
    for row in pooler.admin("SHOW POOLS"):
        assert row["database"] == "pgbouncer" or not any(row[key] for key in left), row
    assert "internal error" not in pooler.log_text()
    assert "Traceback" not in pooler.log_text()
