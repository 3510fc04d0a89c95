"""Busy servers promised to others: the next that is released where one is owed is closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from pgshoal.policy.growth import EVICTED_FOR_DATABASE, EVICTED_FOR_USER
from pgshoal.worker.records import ServerState

if TYPE_CHECKING:
    from pgshoal.engine.contract import PoolId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Pool

#: Why a server goes to another worker, by the row whose slot that waits for: the pool's, the database's, the user's.
GIVEN: Final = ("given to another worker", EVICTED_FOR_DATABASE, EVICTED_FOR_USER)


class Promises:
    """Not bound to one server: a client may keep its own for hours while others come back all the time."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: by pools of this worker to others of it: why
        self._pools: dict[PoolId, list[str]] = {}
        #: to other workers, by rows of the ledger: any pool that counts there may give
        self._rows: Counter[int] = Counter()

    # -- within this worker

    def make(self, pool: Pool, reason: str) -> None:
        """The pool gives one of its busy servers."""
        self._pools.setdefault(pool.id, []).append(reason)
        self._watch(pool)

    def owed(self, pools: Iterable[Pool]) -> int:
        """Servers these pools still have to give to other pools."""
        return sum(len(self._pools.get(pool.id, ())) for pool in pools) if self._pools else 0

    def settle(self, pools: Iterable[Pool]) -> None:
        """It is not needed any more, or an idle one was given instead."""
        for pool in pools:
            if owed := self._pools.get(pool.id):
                owed.pop(0)
                return

    def forget(self, pool: PoolId) -> None:
        """It has no server left to give."""
        self._pools.pop(pool, None)

    # -- to other workers

    def make_for(self, row: int, pools: Iterable[Pool]) -> None:
        """One of the busy servers that count in the row goes to another worker."""
        self._rows[row] += 1
        for pool in pools:
            self._watch(pool)

    def owed_for(self, row: int) -> int:
        """Servers promised to those who wait in a row."""
        return self._rows[row]

    def settle_for(self, row: int) -> None:
        """An idle server was given instead."""
        if self._rows[row] > 1:
            self._rows[row] -= 1
        else:
            del self._rows[row]

    def keep_only(self, rows: Collection[int]) -> None:
        """Nobody waits in other rows any more."""
        for row in [row for row in self._rows if row not in rows]:
            del self._rows[row]

    # -- at a release

    def _watch(self, pool: Pool) -> None:
        for server in pool.servers.values():
            if server.state is ServerState.POOLED:
                self.worker.servers.mark(server)

    def watched(self, pool: Pool) -> bool:
        """Whether releases of the pool's servers must be looked at."""
        return bool(self._pools.get(pool.id)) or (bool(self._rows) and any(row in self._rows for row in pool.rows))

    def keep(self, pool: Pool) -> str:
        """A server of the pool is released: why it must go, or "" if nobody needs it (any more)."""
        if owed := self._pools.get(pool.id):
            return owed.pop(0)
        for row, reason in zip(pool.rows, GIVEN, strict=True) if self._rows else ():
            if row in self._rows:
                self.settle_for(row)
                if row in self.worker.fleet.ledger.demands():
                    return reason
        return ""
