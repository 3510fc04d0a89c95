"""Busy servers promised to others: of a pool that owes one, the next that is released is closed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pgshoal.worker.records import ServerState

if TYPE_CHECKING:
    from pgshoal.engine.contract import PoolId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Pool


class Promise(NamedTuple):
    """`row`: whose slot another worker waits for, -1 if it is for a pool of this worker."""

    reason: str
    row: int


class Promises:
    """Not bound to one server: a client may keep its own for hours while others come back all the time."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._owed: dict[PoolId, list[Promise]] = {}

    def make(self, pool: Pool, reason: str, row: int = -1) -> None:
        """The pool gives one of its busy servers."""
        self._owed.setdefault(pool.id, []).append(Promise(reason, row))
        for server in pool.servers.values():
            if server.state is ServerState.POOLED:
                self.worker.servers.mark(server)

    def owed(self, pools: Iterable[Pool]) -> int:
        """Servers these pools still have to give."""
        return sum(len(self._owed.get(pool.id, ())) for pool in pools) if self._owed else 0

    def keep(self, pool: Pool) -> str:
        """A server of the pool is released: why it must go, or "" if nobody needs it (any more)."""
        owed = self._owed.get(pool.id)
        while owed:
            promise = owed.pop(0)
            if promise.row < 0 or promise.row in self.worker.fleet.ledger.demands():
                return promise.reason
        return ""

    def settle(self, pools: Iterable[Pool]) -> None:
        """An idle server was given instead of a busy one."""
        for pool in pools:
            if owed := self._owed.get(pool.id):
                owed.pop(0)
                return

    def forget(self, pool: PoolId) -> None:
        """It has no server left to give."""
        self._owed.pop(pool, None)
