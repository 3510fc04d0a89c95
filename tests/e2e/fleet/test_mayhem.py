"""Kills, restarts, upgrades and reloads at random, under load: afterwards all accounts are right."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress

import psycopg

from tests.e2e.conftest import MakePooler, backends, until
from tests.e2e.fleet.load import zombies
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

MAYHEM_S = float(os.environ.get("PGSHOAL_MAYHEM_S", "8"))
CROWD = 8


class Crowd:
    """Clients that come back whenever they are cut off, and never see another's answer."""

    def __init__(self, pooler: Pooler) -> None:
        self._pooler = pooler
        self._over = False
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._live, args=(number,)) for number in range(CROWD)]
        for thread in self._threads:
            thread.start()

    def _live(self, number: int) -> None:
        while not self._over:
            try:
                with self._pooler.connect() as client:
                    self._work(client, number)
            except psycopg.OperationalError:
                self.done["cut off"] += 1

    def _work(self, client: psycopg.Connection[object], number: int) -> None:
        for turn in range(200):
            if self._over:
                return
            with client.transaction():
                found = client.execute("select %s::int, %s::int", (number, turn)).fetchone()
            if found != (number, turn):
                self.wrong.append(f"{found} instead of {(number, turn)}")
            self.done["transactions"] += 1

    def end(self) -> None:
        """All go home."""
        self._over = True
        for thread in self._threads:
            thread.join()


def strike(pooler: Pooler, what: str, dice: random.Random) -> None:
    """One event."""
    if what == "kill":
        if pids := pooler.worker_pids():
            with suppress(ProcessLookupError):
                os.kill(dice.choice(pids), signal.SIGKILL)
    elif what == "hangup":
        pooler.signal(signal.SIGHUP)
    else:
        with suppress(psycopg.Error):  # one at a time, and the console may be cut off
            pooler.admin(what)


def test_accounts_are_right_after_mayhem(pg15: Postgres, make: MakePooler) -> None:
    """The supervisor lives, all numbers are served, and the ledger says what is there."""
    pooler = make(workers=3, auth_type="trust", default_pool_size=4, log_connections=0, log_disconnections=0)
    crowd = Crowd(pooler)
    dice = random.Random(11)
    orders = []
    end = time.monotonic() + MAYHEM_S
    while time.monotonic() < end:
        what = dice.choice(["kill", "kill", "RESTART 2", "UPGRADE", "RELOAD", "hangup"])
        orders.append(threading.Thread(target=strike, args=(pooler, what, random.Random(dice.random()))))
        orders[-1].start()
        time.sleep(dice.uniform(0.05, 0.8))
    for order in orders:
        order.join()
    crowd.end()
    assert pooler.running
    assert crowd.wrong == []
    assert crowd.done["transactions"] > 0
    until(lambda: len(pooler.worker_pids()) == 3 and not zombies(pooler), "three workers and no zombie")
    until(lambda: settled(pg15, pooler), "the ledger counts what is there")
    log = pooler.log_text()
    assert "internal error" not in log
    assert "garbage" not in log
    assert "Traceback" not in log


def settled(pg: Postgres, pooler: Pooler) -> bool:
    """Whether the ledger, the console and the server agree, and nobody but this console is left."""
    used = {row["kind"]: row["used"] for row in pooler.admin("SHOW LEDGER")}
    servers = len([row for row in pooler.admin("SHOW SERVERS") if row["database"] == "app"])
    return bool(used["clients"] == 1 and used.get("pool", 0) == servers == backends(pg, "alice"))
