"""A crowd of clients that ask for their own words until told to stop, and what must hold when it has left."""

from __future__ import annotations

import random
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


class Crowd:
    """`with Crowd(pooler, ["app"]) as crowd:`; `wrong` must stay empty, `lost` counts connections that ended."""

    def __init__(self, pooler: Pooler, databases: Sequence[str], size: int = 8) -> None:
        self.pooler, self.databases = pooler, databases
        self.answered = 0
        self.lost: Counter[str] = Counter()
        self.wrong: list[object] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(number,)) for number in range(size)]

    def _live(self, number: int) -> None:
        dice = random.Random(number)
        while not self._stop.is_set():
            try:
                with FakeClient((self.pooler.host, self.pooler.port), wait_s=20) as client:
                    client.login(dice.choice(USERS), dice.choice(self.databases))
                    for turn in range(dice.randrange(1, 30)):
                        self._ask(client, f"{number}:{turn}:{dice.random()}", dice)
            except (OSError, Closed) as error:
                self.lost[type(error).__name__] += 1
            except LoginRefused as refused:
                self.lost[refused.fields.get("M", "")] += 1
                time.sleep(0.02)

    def _ask(self, client: FakeClient, word: str, dice: random.Random) -> None:
        block = dice.random() < 0.3
        sql = f"select '{word}'"
        parts = [m.query("begin"), m.query(sql), m.query("commit")] if block else [m.query(sql)]
        client.send(*parts)
        for part in parts:
            found = client.read_until("ZE")
            if found[-1].kind == "E":
                raise LoginRefused(m.error_fields(found[-1].payload))
            if part == m.query(sql) and not found[1].payload.endswith(word.encode()):
                self.wrong.append((word, found))
        self.answered += 1

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


def settled(pooler: Pooler, pg: Postgres) -> None:
    """Nobody is left, and what the console says of servers is what the server says; no error of ours was logged."""
    until(lambda: {r["list"]: r["items"] for r in pooler.admin("SHOW LISTS")}["used_clients"] == 1, "all clients gone")
    asked = "select count(*) from pg_stat_activity where usename in ('alice', 'bob')"

    def same() -> bool:
        servers = len(pooler.admin("SHOW SERVERS"))
        counted = sum(row["current_connections"] for row in pooler.admin("SHOW DATABASES"))
        workers = map(psutil.Process, pooler.worker_pids())
        sockets = [c for worker in workers for c in worker.net_connections() if c.status == "ESTABLISHED"]
        return servers == counted == int(pg.query(asked)[0][0]) and len(sockets) <= servers + 1

    until(same, "as many servers as the server has backends")
    left = ("cl_active", "cl_waiting", "sv_active", "sv_login", "sv_tested", "sv_being_canceled")
    for row in pooler.admin("SHOW POOLS"):
        assert row["database"] == "pgbouncer" or not any(row[key] for key in left), row
    assert "internal error" not in pooler.log_text()
    assert "Traceback" not in pooler.log_text()
