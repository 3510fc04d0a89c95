"""Giving way: servers this worker can spare go when other workers wait for a slot of the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgshoal.policy.budget import LOOK_AGAIN_US
from pgshoal.worker.promises import GIVEN
from pgshoal.worker.records import ServerState

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from pgshoal.engine.contract import PoolId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Pool, Server

#: Of several workers that could give, those that hold less wait so long for the others.
TURN_US: Final = 10_000
_TURNS_MAX: Final = 2
#: So long nothing is looked at while all servers are busy: time alone changes little then.
_LOOK_ANYWAY_US: Final = 300_000


class Giving:
    """Looks at the rows others wait for: when this worker's bell rings, and again as long as somebody waits."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._timer: TimerHandle | None = None
        #: rows others wait for, and since when we know
        self._since: dict[int, int] = {}
        #: pools of which others want slots
        self._watched: set[PoolId] = set()
        #: the timer is a late one, as the engine will tell
        self._resting = False
        #: the last look found more than busy servers of our own share
        self._some_spare = False

    def start(self) -> None:
        """Listen to the bell."""
        fleet = self.worker.fleet
        self.worker.loop.add_reader(fleet.ledger.bells[fleet.seat], self.rung)

    def rung(self) -> None:
        """Somebody waits for a slot, or one is free."""
        self.worker.fleet.ledger.drain_bell()
        changed = self.worker.growth.freed()
        self.look()
        if changed or self._some_spare:
            self.worker.settle()

    def attend(self) -> None:
        """Look again soon; while all are busy the engine tells of the first server that rests."""
        if self._timer is not None:
            if not self._resting:
                return
            self._timer.cancel()
        self._resting = not self._some_spare and self._tell_rest()
        delay_us = _LOOK_ANYWAY_US if self._resting else LOOK_AGAIN_US
        self._timer = self.worker.loop.call_later(delay_us / 1e6, self._again)

    def _tell_rest(self) -> bool:
        """Ask the engine to tell; False if there may be nothing to tell of in time."""
        pools = self.worker.pools.by_id
        numbers = self._watched.union(self.worker.budget.waiting())
        if not all(number in pools and pools[number].servers for number in numbers):
            return False
        for number in numbers:
            self.worker.engine.tell_rest(number)
        return True

    def rested(self, number: PoolId) -> None:
        """RESTED: there is something to give, or nobody waits here any more; if that lasts a moment."""
        self._some_spare = True
        self.attend()

    def taken(self) -> None:
        """This worker has one slot more; perhaps others would rather have it."""
        self.rested(0)

    def _again(self) -> None:
        self._timer = None
        changed = self.worker.growth.recheck()
        self.look()
        if changed or self._some_spare:
            self.worker.settle()
        if self.worker.budget.waiting():
            self.attend()

    def close(self) -> None:
        """The worker ends."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Give what others wait for and we can spare."""
        now_us = self.worker.engine.now_us()
        rows = self.worker.fleet.ledger.demands()
        self._since = {row: self._since.get(row, now_us) for row in rows}
        self.worker.servers.promises.keep_only(rows)
        self._some_spare = False
        self._watched.clear()
        for row in rows:
            self._give(row, now_us)
        if rows:
            self.attend()

    def _give(self, row: int, now_us: int) -> None:
        worker, ledger, promises = self.worker, self.worker.fleet.ledger, self.worker.servers.promises
        # A replication client's server is never idle and never released.
        pools = [pool for pool in worker.pools.by_id.values() if row in pool.rows and pool.stream is None]
        limit = worker.budget.limit_of(row, pools)
        if not limit:
            return
        self._watched.update(pool.id for pool in pools)
        held = ledger.own(row)
        if held <= limit // ledger.workers and not worker.draining and not any(map(self._spare, pools)):
            return  # the usual case: all are busy
        self._some_spare = True
        for _ in range(held):
            found = min((each for pool in pools if (each := self._idle(pool))), key=lambda each: each[0], default=None)
            idle_us = None if found is None else now_us - found[0]
            # An idle server goes before a busy one that is promised: its release may be hours away.
            owed = promises.owed(pools) + promises.owed_for(row) if found is None else 0
            way = ledger.gives_way(row, limit, worker.escrow.coming(row) + owed, idle_us)
            if way and found is not None and (way == "busy" or self._turn(row, now_us)):
                if not self._close(found[1], row):
                    return
                promises.settle_for(row)
            elif way == "busy" and found is None:
                promises.make_for(row, pools)
            else:
                return

    def _turn(self, row: int, now_us: int) -> bool:
        """Of several workers that could give an idle server, those that hold most go first."""
        fleet = self.worker.fleet
        held = fleet.ledger.own(row)
        more = sum(cell.used > held for cell in fleet.ledger.cells(row))
        return now_us - self._since[row] >= min(more, _TURNS_MAX) * TURN_US

    def _spare(self, pool: Pool) -> bool:
        worker = self.worker
        return not (worker.engine.pool_counts(pool.id).cl_waiting or worker.lookups.waiting(pool))

    def _idle(self, pool: Pool) -> tuple[int, Server] | None:
        """The server of a pool that has been idle longest, and since when; none while clients of the pool wait."""
        worker = self.worker
        if not self._spare(pool):
            return None
        servers = worker.servers.by_conn
        longest = worker.engine.idle_servers(pool.id)[:1]
        idle = [(since_us, servers[conn]) for conn, since_us in longest if conn in servers]
        idle += [(s.released_us, s) for s in pool.servers.values() if s.state is ServerState.USED]
        return min(idle, key=lambda each: each[0], default=None)

    def _close(self, server: Server, row: int) -> bool:
        if server.state is ServerState.POOLED and not self.worker.servers.take(server):
            return False
        self.worker.servers.close(server, self._reason(row, server.pool))
        return True

    @staticmethod
    def _reason(row: int, pool: Pool) -> str:
        return GIVEN[pool.rows.index(row)]
