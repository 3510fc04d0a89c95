"""Any order of clients, answers, deaths and looks keeps every account of every worker true."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pgshoal.worker.records import Pool
from tests.support import messages as m
from tests.worker.bench import Bench
from tests.worker.neighbours import Neighbours

STEPS = 150
ACTS = ("login", "ask", "ask", "answer", "answer", "answer", "leave", "die", "gone", "look", "time")


def pools(bench: Bench) -> list[Pool]:
    """All pools of a worker."""
    return list(bench.worker.pools.by_id.values())


class Story:
    """A fleet, and what its clients are doing."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.limit = dice.choice((1, 2, 3, 5))
        self.size = dice.choice((1, 2, 4))
        settings: dict[str, Any] = {
            "max_db_connections": self.limit,
            "default_pool_size": self.size,
            "reserve_pool_size": dice.choice((0, 1)),
            "reserve_pool_timeout": 1.0,
            "min_pool_size": dice.choice((0, 0, 1)),
            "server_idle_timeout": dice.choice((0, 3)),
            "server_lifetime": dice.choice((0, 5, 3600)),
            "server_login_retry": 0.5,
            "pool_mode": dice.choice(("transaction", "session")),
            "server_reset_query": "",
            "query_wait_timeout": 0,
            "client_login_timeout": 0,
        }
        self.fleet = Neighbours(dice.choice((1, 2, 3)), static=dice.random() < 0.2, **settings)
        for fleet in self.fleet.fleets:
            fleet.prompt = False
        self.clients: list[list[int]] = [[] for _ in self.fleet.benches]

    def step(self) -> None:
        """One thing happens in one worker."""
        at = self.dice.randrange(len(self.fleet.benches))
        bench, clients = self.fleet[at], self.clients[at]
        servers = list(bench.worker.servers.by_conn)
        act = self.dice.choice(
            ("login", "ask", "ask", "answer", "answer", "answer", "leave", "die", "gone", "look", "time")
        )
        if act == "login" and len(clients) < 6:
            clients.append(bench.login(self.dice.choice(("alice", "bob"))))
        elif act == "ask" and clients:
            self._ask(bench, self.dice.choice(clients))
        elif act == "answer" and servers:
            self._serve(bench, self.dice.choice(servers))
        elif act == "leave" and clients:
            bench.leave(clients.pop(self.dice.randrange(len(clients))))
        elif act == "die" and servers and self.dice.random() < 0.3:
            bench.leave(self.dice.choice(servers))
        elif act == "gone":
            self.fleet.fleets[at].end()
            bench.worker.settle()
        elif act == "look":
            bench.worker.growth.recheck()
            bench.worker.giving.rung()
        elif act == "time":
            self.fleet.pass_time(self.dice.choice((0.01, 0.1, 0.5)))
        for bench, clients in zip(self.fleet.benches, self.clients, strict=True):
            clients[:] = [client for client in clients if client in bench.worker.front.clients]

    def _ask(self, bench: Bench, client: int) -> None:
        bench.heard(client)
        if client not in bench.worker.front.unwelcomed and bench.engine.facts(client).mode == "parked":
            bench.say(client, m.query("select 1"))

    def _serve(self, bench: Bench, server: int) -> None:
        record = bench.worker.servers.by_conn[server]
        if record.state.value == "new":
            bench.welcome(server)
        elif bench.engine.facts(server).mode == "linked" and bench.engine.facts(server).queue_length:
            bench.heard(server)
            bench.answer(server)

    def check(self) -> None:
        """What must be true at any moment."""
        for bench in self.fleet.benches:
            worker = bench.worker
            ledger, escrow = worker.budget.ledger, worker.escrow
            for pool in pools(bench):
                live = len(pool.servers) + worker.servers.resolving[pool.id]
                assert ledger.own(pool.rows.pool) == live + escrow.dying(pool.rows.pool)
                limits = worker.budget.limits(pool)
                assert ledger.used(pool.rows.pool) <= limits.with_reserve()
                assert ledger.used(pool.rows.database) <= limits.database
            everybody = worker.admissions._everybody
            assert ledger.own(everybody) == len(worker.front.clients) + len(worker.front.logins)
        assert not any(bench.log.has("internal error") for bench in self.fleet.benches)

    def finish(self) -> None:
        """Everybody goes, all backends end: nothing is left. Before that, whoever asks is served."""
        for _ in range(60):
            for fleet, bench in zip(self.fleet.fleets, self.fleet.benches, strict=True):
                fleet.end()
                for server in list(bench.worker.servers.by_conn):
                    if bench.alive(server):
                        self._serve(bench, server)
            self.fleet.pass_time(0.4)
            self.check()
        waiting = [bench.worker.growth._has_waiting(p) for bench in self.fleet.benches for p in pools(bench)]
        assert not any(waiting)
        for bench, clients in zip(self.fleet.benches, self.clients, strict=True):
            for client in clients:
                bench.leave(client)
            for server in list(bench.worker.servers.by_conn):
                bench.leave(server)
        for fleet in self.fleet.fleets:
            fleet.end()
        self.check()
        for bench in self.fleet.benches:
            for pool in pools(bench):
                assert bench.worker.budget.ledger.own(pool.rows.database) == 0


@pytest.mark.parametrize("seed", range(25))
def test_accounts_stay_true(seed: int) -> None:
    """No limit is exceeded, each worker's slots are its servers and those about to end, and all are served."""
    story = Story(seed)
    try:
        for _ in range(STEPS):
            story.step()
            story.check()
        if story.fleet[0].worker.config.settings.pool_mode == "transaction":
            story.finish()
    finally:
        story.fleet.close()
