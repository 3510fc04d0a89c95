"""The ledger against a model: any order of taking, giving, waiting, dying, restarting and reloading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from pgshoal.fleet.ledger import Kind, Ledger, Want
from pgshoal.policy.budget import share, static_limit

SEATS, WORKERS = 8, 3
POOLS = ("orders", "bills")


class Worker:
    """What a worker knows of itself, and the supervisor of its servers."""

    def __init__(self, supervisor: Ledger, seat: int, number: int) -> None:
        self.ledger = Ledger.attach(supervisor.fd, supervisor.bells, seat)
        self.seat, self.number = seat, number
        self.pools = [self.ledger.row(Kind.POOL, pool, "anna") for pool in POOLS]
        self.database = self.ledger.row(Kind.DATABASE, "shop")
        self.everybody = self.ledger.row(Kind.CLIENTS, "")
        self.servers: list[tuple[int, int]] = []
        self.clients = 0
        self.stopped = False


class Fleet(RuleBasedStateMachine):
    """Rules name workers by their bundle; those that have died keep their backends until `bury`."""

    workers = Bundle("workers")

    @initialize(target=workers)
    def first(self) -> object:
        """A supervisor, and all its workers."""
        self.supervisor = Ledger.create(SEATS)
        self.supervisor.set_fleet(WORKERS, False)
        self.now_us = 1_000_000
        self.limits = {"pool": 4, "database": 6, "clients": 5}
        self.living: dict[int, Worker] = {}
        self.dead: dict[int, list[tuple[int, int]]] = {}
        self.rows: set[int] = set()
        return multiple(*(self._start(number) for number in range(WORKERS)))

    def _start(self, number: int) -> Worker:
        seat = next(s for s in range(SEATS) if s not in self.living and self.supervisor.free(s))
        assert seat not in self.dead
        self.supervisor.occupy(seat, number)
        worker = self.living[seat] = Worker(self.supervisor, seat, number)
        worker.ledger.beat(self.now_us)
        self.rows |= {*worker.pools, worker.database, worker.everybody}
        return worker

    @rule(target=workers, number=st.integers(0, WORKERS - 1))
    def start(self, number: int) -> object:
        """A new process, also while the old one of its number still lives, as long as there are seats."""
        return multiple() if len(self.living) + len(self.dead) >= SEATS else self._start(number)

    def _wants(self, worker: Worker, pool: int) -> list[Want]:
        return [
            Want(worker.pools[pool], self.limits["pool"]),
            Want(worker.database, self.limits["database"]),
        ]

    # What workers do.

    @rule(worker=workers, pool=st.integers(0, 1), waited_us=st.integers(0, 700_000), for_somebody=st.booleans())
    def take(self, worker: Worker, pool: int, waited_us: int, for_somebody: bool) -> None:
        """Only within all limits, and never before somebody who lacks more."""
        if worker.stopped or worker.seat not in self.living:
            return
        wants = self._wants(worker, pool)
        since_us = self.now_us - waited_us if for_somebody else 0
        may = all(self._may(worker, want, since_us) for want in wants)
        before = [self.supervisor.used(want.row) for want in wants]
        taken = worker.ledger.take(wants, self.now_us, since_us)
        assert not taken or may
        if not taken and not self.supervisor.static:
            cells = [cell for want in wants for cell in self.supervisor.cells(want.row)]
            rivals = [cell for cell in cells if cell.seat != worker.seat or not since_us]
            assert any(cell.waiting for cell in rivals) or any(h >= w.limit for h, w in zip(before, wants, strict=True))
        if taken:
            worker.servers.append((wants[0].row, wants[1].row))
            assert all(had < want.limit for had, want in zip(before, wants, strict=True))
        elif since_us:
            waiting = [cell for want in wants for cell in worker.ledger.cells(want.row) if cell.seat == worker.seat]
            assert any(cell.waiting for cell in waiting)

    @rule(worker=workers, pool=st.integers(0, 1), waited_us=st.integers(0, 200_000))
    def fill(self, worker: Worker, pool: int, waited_us: int) -> None:
        """A burst: as many as there are."""
        for _ in range(8):
            self.take(worker, pool, waited_us, for_somebody=True)

    def _may(self, worker: Worker, want: Want, since_us: int) -> bool:
        """Whether a slot is allowed by the guarantees alone: the limit, and the shares of those who wait."""
        cells = self.supervisor.cells(want.row)
        free = want.limit - sum(cell.used for cell in cells)
        if self.supervisor.static:
            mine = sum(cell.used for cell in cells if cell.number == worker.number)
            if mine >= static_limit(want.limit, WORKERS, worker.number) and want.limit >= WORKERS:
                return False
            cells = [cell for cell in cells if cell.number == worker.number] if want.limit >= WORKERS else cells
        own = next((cell.used for cell in cells if cell.seat == worker.seat), 0)
        rivals = [cell for cell in cells if cell.seat != worker.seat and cell.waiting and cell.awake]
        if not since_us and rivals:
            return False
        numbers = Counter(cell.number for cell in cells if cell.awake and (cell.used or cell.waiting))
        part = share(want.limit, WORKERS)
        lacking = 0
        if own >= part and not self.supervisor.static:
            lacking = sum(max(0, min(r.waiting, part // max(numbers[r.number], 1) - r.used)) for r in rivals)
        return free > lacking

    @rule(worker=workers, which=st.integers(0, 9))
    def give(self, worker: Worker, which: int) -> None:
        """A backend is gone."""
        if worker.servers and worker.seat in self.living and not worker.stopped:
            worker.ledger.give(worker.servers.pop(which % len(worker.servers)))

    @rule(worker=workers, pool=st.integers(0, 1), count=st.integers(0, 3), waited_us=st.integers(0, 700_000))
    def wait(self, worker: Worker, pool: int, count: int, waited_us: int) -> None:
        """Clients come and go; what is said of them is the seat's own business and can be withdrawn whole."""
        if worker.seat not in self.living or worker.stopped:
            return
        wants = self._wants(worker, pool)
        worker.ledger.wait(wants, count, self.now_us - waited_us if count else 0)
        if count:
            return
        worker.ledger.wait(self._wants(worker, 1 - pool), 0, 0)
        cells = [cell for row in self.rows for cell in worker.ledger.cells(row) if cell.seat == worker.seat]
        assert not any(cell.waiting or cell.since_us for cell in cells)

    @rule(worker=workers, come=st.booleans())
    def client(self, worker: Worker, come: bool) -> None:
        """Clients are counted exactly: refused only if the fleet is full, admitted only if it is not."""
        if worker.seat not in self.living or worker.stopped:
            return
        if come:
            full = sum(w.clients for w in self.living.values()) >= self.limits["clients"]
            assert worker.ledger.admit(worker.everybody, self.limits["clients"]) is not full
            worker.clients += not full
        elif worker.clients:
            worker.ledger.leave(worker.everybody)
            worker.clients -= 1

    @rule(worker=workers)
    def give_way(self, worker: Worker) -> None:
        """A seat that is rung is asked only for what it has and others want, and gives no more than they lack."""
        if worker.seat not in self.living or worker.stopped:
            return
        demands = worker.ledger.demands()
        held = {row for server in worker.servers for row in server}
        assert set(demands) <= held
        if not self.supervisor.static:
            wanted = {row for row in held for c in worker.ledger.cells(row) if c.waiting and c.seat != worker.seat}
            assert wanted <= set(demands)
        for row in demands:
            limit = self.limits["database" if row == worker.database else "pool"]
            others = sum(c.waiting for c in worker.ledger.cells(row) if c.seat != worker.seat and c.awake)
            over = worker.ledger.used(row) - limit
            given = 0
            while worker.ledger.gives_way(row, limit):
                worker.ledger.give(worker.servers.pop([row in s for s in worker.servers].index(True)))
                given += 1
            assert self.supervisor.static or given <= max(0, others + over)

    # What happens to workers.

    @rule(
        worker=consumes(workers),
        lost=st.integers(0, 2),
        torn=st.sampled_from(("", "take", "give")),
    )
    def kill(self, worker: Worker, lost: int, torn: str) -> None:
        """Killed anywhere: also between the numbers of one attempt, or of one slot given back."""
        if worker.seat not in self.living:
            return
        memory = worker.ledger._memory
        if torn == "take" and worker.ledger.used(worker.pools[0]) < self.limits["pool"]:
            memory.u32[memory.base(worker.pools[0]) + worker.seat] += 1
        if torn == "give" and worker.servers:
            memory.lower(worker.servers.pop()[0], worker.seat)
        for _ in range(min(lost, len(worker.servers))):
            # The server closed first, and the worker died before it said so: the supervisor finds its end.
            worker.ledger.give(worker.servers.pop())
        worker.ledger.close()
        del self.living[worker.seat]
        self.supervisor.vacate(worker.seat)
        self.dead[worker.seat] = worker.servers
        self._settle(worker.seat)

    def _settle(self, seat: int) -> None:
        left = self.dead[seat]
        self.supervisor.settle(seat, Counter(row for server in left for row in server))
        assert self.supervisor.free(seat) is (not left)
        if not left:
            del self.dead[seat]

    @rule(which=st.integers(0, 9), one_by_one=st.booleans())
    def bury(self, which: int, one_by_one: bool) -> None:
        """A backend of a dead worker is gone at last."""
        if not self.dead:
            return
        seat = sorted(self.dead)[which % len(self.dead)]
        server = self.dead[seat].pop()
        if one_by_one:
            self.supervisor.give_for(seat, server)
        self._settle(seat)

    @rule(worker=workers, stopped=st.booleans())
    def stop(self, worker: Worker, stopped: bool) -> None:
        """SIGSTOP and SIGCONT."""
        worker.stopped = stopped

    @rule(passed_us=st.sampled_from((1_000, 400_000, 3_000_000)))
    def later(self, passed_us: int) -> None:
        """Time passes, and hearts beat."""
        self.now_us += passed_us
        for worker in self.living.values():
            if not worker.stopped:
                worker.ledger.beat(self.now_us)

    @rule(pool=st.integers(1, 6), database=st.integers(1, 8), clients=st.integers(1, 6), static=st.booleans())
    def reload(self, pool: int, database: int, clients: int, static: bool) -> None:
        """Limits change while slots are held."""
        self.limits = {"pool": pool, "database": database, "clients": clients}
        self.supervisor.set_fleet(WORKERS, static)

    # What holds at any time.

    def _count(self, row: int, servers: Sequence[tuple[int, int]]) -> int:
        return sum(row in server for server in servers)

    @invariant()
    def numbers_are_true(self) -> None:
        """Every cell of a living seat is exact, and of a dead one never more or less than its backends."""
        for row in getattr(self, "rows", ()):
            cells = {cell.seat: cell.used for cell in self.supervisor.cells(row)}
            for seat, worker in self.living.items():
                clients = worker.clients if row == worker.everybody else 0
                assert cells[seat] == self._count(row, worker.servers) + clients
            for seat, servers in self.dead.items():
                assert cells.get(seat, 0) == self._count(row, servers)
            assert set(cells) <= {*self.living, *self.dead}

    def teardown(self) -> None:
        """When all are gone nothing is left, and every row can be used again."""
        if not hasattr(self, "supervisor"):
            return
        for worker in self.living.values():
            self.supervisor.vacate(worker.seat)
            self.supervisor.settle(worker.seat, {})
            worker.ledger.close()
        for seat in self.dead:
            self.supervisor.settle(seat, {})
        assert all(self.supervisor.free(seat) for seat in range(SEATS))
        memory = self.supervisor._memory
        assert all(memory._is_unused(row) for row in self.rows)
        assert memory.rows() == range(len(self.rows))
        self.supervisor.close()
        self.supervisor.close_descriptors()


Fleet.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestFleet = Fleet.TestCase
TestFleet.__doc__ = "Any interleaving keeps every number true, every limit, every share, and leaves nothing behind."
