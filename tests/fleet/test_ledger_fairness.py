"""A fleet in slow motion: whole seconds of load on one limit, without a clock, counted slot by slot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pgshoal.fleet.ledger import Kind, Ledger, Want
from pgshoal.policy.budget import LOOK_AGAIN_US

MS = 1000
CONNECT_MS, BURIAL_MS = 5, 2


@dataclass(eq=False)
class Server:
    """Until when it is connecting, busy or leaving; or since when it is idle."""

    state: str
    at_ms: int
    marked: bool = False


@dataclass
class Load:
    """So many clients of a worker, each with transactions and pauses of this length, from some time on."""

    clients: int
    query_ms: int
    pause_ms: int
    from_ms: int = 1
    until_ms: int = 1 << 30


@dataclass
class Worker:
    """A worker with its servers and its waiting line: [since when each client waits]."""

    ledger: Ledger
    load: Load
    limit: int
    row: int = 0
    queue: list[int] = field(default_factory=list)
    coming: list[int] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    served: int = 0
    opened: int = 0
    worst_ms: int = 0

    def __post_init__(self) -> None:
        self.row = self.ledger.row(Kind.DATABASE, "d")
        self.coming = [self.load.from_ms] * self.load.clients

    def step(self, now_ms: int) -> None:
        """One millisecond."""
        if now_ms % 300 == 1:
            self.ledger.beat(now_ms * MS)
        self.queue += [at for at in self.coming if at <= now_ms < self.load.until_ms]
        self.coming = [at for at in self.coming if at > now_ms]
        for server in list(self.servers):
            self._advance(server, now_ms)
        self._open(now_ms)
        if now_ms * MS % LOOK_AGAIN_US == 0:
            self._give_way(now_ms)

    def _advance(self, server: Server, now_ms: int) -> None:
        if server.state != "idle" and now_ms >= server.at_ms:
            if server.state == "leaving":
                self.servers.remove(server)
                self.ledger.give([self.row])
                return
            server.state, server.at_ms = ("leaving", now_ms + BURIAL_MS) if server.marked else ("idle", now_ms)
        if server.state == "idle" and self.queue:
            since_ms = self.queue.pop(0)
            self.worst_ms = max(self.worst_ms, now_ms - since_ms)
            self.served += 1
            server.state, server.at_ms = "busy", now_ms + self.load.query_ms
            self.coming.append(server.at_ms + self.load.pause_ms)

    def _open(self, now_ms: int) -> None:
        wants = [Want(self.row, self.limit)]
        while missing := max(0, len(self.queue) - self._count("connecting")):
            if not self.ledger.take(wants, now_ms * MS, self.queue[0] * MS):
                break
            self.opened += 1
            self.servers.append(Server("connecting", now_ms + CONNECT_MS))
        self.ledger.wait(wants, missing, self.queue[0] * MS if self.queue else 0)

    def _count(self, state: str) -> int:
        return sum(server.state == state for server in self.servers)

    def _give_way(self, now_ms: int) -> None:
        for row in self.ledger.demands():
            idle = sorted((s for s in self.servers if s.state == "idle"), key=lambda s: s.at_ms)
            busy = [s for s in self.servers if s.state == "busy" and not s.marked]
            while idle or busy:
                leaving = self._count("leaving") + sum(s.marked and s.state != "leaving" for s in self.servers)
                way = self.ledger.gives_way(row, self.limit, leaving, (now_ms - idle[0].at_ms) * MS if idle else 0)
                if way and idle:
                    server = idle.pop(0)
                    server.state, server.at_ms = "leaving", now_ms + BURIAL_MS
                elif way == "busy" and busy:
                    busy.pop(0).marked = True
                else:
                    break


@contextmanager
def fleet(limit: int, *loads: Load) -> Iterator[list[Worker]]:
    """One worker for each load."""
    supervisor = Ledger.create(len(loads))
    supervisor.set_fleet(len(loads), False)
    workers = []
    for number, load in enumerate(loads):
        supervisor.occupy(number, number)
        workers.append(Worker(Ledger.attach(supervisor.fd, supervisor.bells, number), load, limit))
    yield workers
    for worker in workers:
        worker.ledger.close()
    supervisor.close()
    supervisor.close_descriptors()


def run(workers: list[Worker], from_ms: int, until_ms: int) -> None:
    """Step by step, with the limit held at each."""
    for now_ms in range(from_ms, until_ms):
        for worker in workers:
            worker.step(now_ms)
        used = workers[0].ledger.used(workers[0].row)
        assert used == sum(len(worker.servers) for worker in workers) <= workers[0].limit


def test_one_slot_for_two_is_not_passed_to_and_fro() -> None:
    """Both are served, in turns that are long enough to be worth a connection, although it is idle in between."""
    for clients in (1, 3):
        with fleet(1, *[Load(clients, 2, 3)] * 2) as workers:
            run(workers, 1, 4001)
            assert sum(worker.opened for worker in workers) <= 4 * 4
            assert min(worker.served for worker in workers) >= 300
            assert max(worker.worst_ms for worker in workers) <= 400


def test_turns_last_however_long_the_line_is() -> None:
    """When all have waited longer than a turn, each slot still stays where it went for a while."""
    with fleet(1, *[Load(400, 2, 1)] * 2) as workers:
        run(workers, 1, 3001)
        assert sum(worker.opened for worker in workers) <= 3 * 10
        assert sum(worker.served for worker in workers) >= 0.8 * 3000 / 2
        assert min(worker.served for worker in workers) >= 0.3 * 3000 / 2


def test_fewer_slots_than_workers_go_round() -> None:
    """Four workers that never have enough, three slots: nobody starves and the slots are mostly used."""
    with fleet(3, *[Load(10, 2, 1)] * 4) as workers:
        run(workers, 1, 4001)
        assert max(worker.worst_ms for worker in workers) <= 800
        assert min(worker.served for worker in workers) >= 400
        assert sum(worker.served for worker in workers) >= 0.8 * 3 * 4000 / 2


def test_a_light_worker_beside_a_heavy_one() -> None:
    """Its few clients wait for little more than a connection, and the heavy one loses no more than the share."""
    with fleet(4, Load(40, 2, 1), Load(1, 1, 100)) as workers:
        run(workers, 1, 4001)
        heavy, light = workers
        assert light.worst_ms <= 40
        assert light.served >= 4000 // 130
        assert heavy.served >= 0.7 * 4 * 4000 / 2
        # No worse than once for each time that it comes.
        assert light.opened <= light.served + 1


def test_shares_are_equal_under_equal_load() -> None:
    """When all have more than enough to do, each ends with its share, and then nothing is passed on any more."""
    with fleet(8, *[Load(20, 3, 1, from_ms=1 + 50 * number) for number in range(4)]) as workers:
        run(workers, 1, 1001)
        opened = sum(worker.opened for worker in workers)
        run(workers, 1001, 3001)
        assert [len(worker.servers) for worker in workers] == [2] * 4
        assert sum(worker.opened for worker in workers) == opened


def test_nothing_is_stranded() -> None:
    """Whoever has work gets all slots within 50 ms of their being idle."""
    with fleet(8, *[Load(5, 2, 1, until_ms=500)] * 3, Load(20, 2, 0, from_ms=600)) as workers:
        run(workers, 1, 600)
        assert sum(len(worker.servers) for worker in workers[:3]) >= 6
        run(workers, 600, 650)
        assert len(workers[3].servers) == 8


def test_a_stopped_worker_keeps_its_slots_and_nothing_else() -> None:
    """Others go on with the rest, and wait for it no longer than its heart may be silent."""
    with fleet(4, Load(9, 2, 1), Load(9, 2, 1)) as workers:
        run(workers, 1, 1001)
        stopped, other = workers
        held, served = len(stopped.servers), other.served
        for now_ms in range(1001, 4001):
            other.step(now_ms)
        assert len(stopped.servers) == held == 2
        assert other.served - served >= 0.9 * 2 * 3000 / 2
        run(workers, 4001, 5001)
        assert [len(worker.servers) for worker in workers] == [2, 2]
