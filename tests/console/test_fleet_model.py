"""Any order of commands, deaths, stops and late workers leaves a fleet whose workers stand alike."""

from __future__ import annotations

import random
from typing import cast

import pytest

from pgshoal.config.model import DatabaseConfig
from pgshoal.fleet.relay import GATHER_LIMIT_S
from pgshoal.worker.records import Server
from tests.console.desk import Desk, ask, busy
from tests.console.fleet import End
from tests.support import messages as m
from tests.worker.stub import Talk

#: Commands that wait come more often: what happens meanwhile is what matters here.
COMMANDS = (
    *("pause", "pause app", "wait_close", "reconnect", "resume", "resume app") * 4,
    "pause", "resume", "pause app", "resume app", "pause auto", "resume auto", "disable app", "enable app",
    "disable auto", "enable auto", "kill", "kill app", "reconnect", "wait_close", "wait_close app",
    "kill_client 999999",
    "set max_client_conn=77", "set default_pool_size=5", "set nonsense=1", "set client_tls_sslmode=require",
    "set client_tls_sslmode=disable", "show pools", "show lists",
)  # fmt: skip
WORKERS_MAX = 4
STEPS = 120


class Fleet:
    """A fleet in one process; see tests/console/fleet.py."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        first = Desk(autodb=DatabaseConfig("*"), server_tls_sslmode="disable")
        self.head = first.head
        self.desks = [first, first.another(), first.another()]
        self.all = [*self.desks]
        self.servers: list[tuple[Desk, Server]] = []
        #: sessions that wait for an answer
        self.waiting: list[tuple[Desk, Talk]] = []

    def settle(self) -> None:
        """Everything that may go on goes on: then everybody is answered, and all stand alike."""
        for desk in self.desks:
            cast(End, desk.worker.fleet).go_on()
            if not desk.child.ready:
                self.head.serve(desk.child)
        self.head.loop.run(GATHER_LIMIT_S)
        while self.servers:
            self.end_of_server()
        self._collect()
        assert self.waiting == []
        assert self.head.relay._acts == {}
        assert [cast(End, child.channel)._asked for child in self.head.children] == [{}] * len(self.head.children)
        for desk in self.desks:
            self._stands(desk)

    def _stands(self, desk: Desk) -> None:
        worker, state = desk.worker, self.head.state
        assert worker.pause.everything == state["paused"]
        databases = worker.pools.databases
        assert {name for name, one in databases.items() if one.paused} == set(state["paused_databases"])
        assert {name for name, one in databases.items() if one.disabled} == set(state["disabled_databases"])
        assert worker.pause.waiters == []
        assert desk.console.orders._waiters == {}
        assert worker.config.settings == self.head.config.settings

    def _collect(self) -> None:
        """Sessions that were answered are ready for the next command; those that died are gone."""
        for desk, talk in list(self.waiting):
            if desk not in self.desks or talk.conn not in desk.console.sessions:
                self.waiting.remove((desk, talk))
            elif found := talk.messages():
                assert [message.kind for message in found].count("Z") == 1
                self.waiting.remove((desk, talk))

    def _serving(self) -> list[Desk]:
        return [desk for desk in self.desks if desk.child.ready and not cast(End, desk.worker.fleet).stopped]

    # -- what happens

    def step(self) -> None:
        """Something, if it is possible now."""
        names = ("command", "vanish", "cancel", "begin", "end_of_server", "stop", "go_on", "die", "start", "serve")
        (name,) = self.dice.choices(names, (12, 2, 2, 6, 3, 1, 3, 1, 2, 3))
        getattr(self, name)()
        self._collect()

    def command(self) -> None:
        """A session of its own for each command."""
        if found := self._serving():
            desk = self.dice.choice(found)
            talk = desk.session()
            if ask(talk, self.dice.choice(COMMANDS)) == []:
                self.waiting.append((desk, talk))

    def _awake(self) -> list[tuple[Desk, Talk]]:
        return [(desk, talk) for desk, talk in self.waiting if not cast(End, desk.worker.fleet).stopped]

    def vanish(self) -> None:
        """An admin is gone."""
        if found := self._awake():
            desk, talk = self.dice.choice(found)
            self.waiting.remove((desk, talk))
            talk.gone()

    def cancel(self) -> None:
        """Ctrl-C."""
        if found := self._awake():
            desk, talk = self.dice.choice(found)
            desk.accept().packet(m.cancel_request(desk.worker.front.consoles[talk.conn].cancel_key))

    def begin(self) -> None:
        """A client of app begins a transaction, if it may."""
        desk = self.dice.choice(self.desks)
        if ("app", "alice") not in desk.worker.pools.by_key:
            desk.welcome("app", "alice")
        if not desk.worker.pools.paused(desk.pool()):
            self.servers.append((desk, busy(desk)))

    def end_of_server(self) -> None:
        """It ends, and its server with it."""
        if self.servers:
            desk, server = self.servers.pop(self.dice.randrange(len(self.servers)))
            if desk in self.desks and server.conn in desk.worker.servers.by_conn:
                desk.worker.servers.gone(server, "server conn crashed?")

    def stop(self) -> None:
        """SIGSTOP."""
        cast(End, self.dice.choice(self.desks).worker.fleet).stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        cast(End, self.dice.choice(self.desks).worker.fleet).go_on()

    def die(self) -> None:
        """SIGKILL."""
        if len(self.desks) > 1:
            desk = self.dice.choice(self.desks)
            self.desks.remove(desk)
            self.head.die(desk.child)

    def start(self) -> None:
        """One more, which may take its time."""
        if len(self.desks) < WORKERS_MAX:
            desk = self.desks[0].another(ready=self.dice.random() < 0.5)
            self.desks.append(desk)
            self.all.append(desk)

    def serve(self) -> None:
        """One has come up."""
        late = [desk for desk in self.desks if not desk.child.ready]
        if late:
            self.head.serve(self.dice.choice(late).child)


@pytest.mark.parametrize("seed", range(30))
def test_all_stand_alike(seed: int) -> None:
    """And everybody who asked was answered once, whatever came in between."""
    fleet = Fleet(random.Random(seed))
    try:
        for _ in range(STEPS):
            fleet.step()
        fleet.settle()
    finally:
        for desk in fleet.all:
            desk.close()
