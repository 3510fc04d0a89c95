"""What this worker holds of the fleet's limits on server connections, and what it waits for, by rows of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pgshoal.config import effective
from pgshoal.fleet.ledger import Kind, Want
from pgshoal.policy.budget import static_limit
from pgshoal.policy.growth import surplus
from pgshoal.worker.records import Rows

if TYPE_CHECKING:
    from pgshoal.config.model import DatabaseConfig
    from pgshoal.engine.contract import PoolId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Pool

#: Pools of auth_query have a size of their own: no client can get at their servers.
_LOOKUPS: Final = " (auth_query)"


class PoolLimits(NamedTuple):
    """The limits a pool's servers count against; 0 = none. `pool` is without the reserve."""

    pool: int
    database: int
    user: int
    reserve: int

    def with_reserve(self) -> int:
        """The most servers the pool may have."""
        return self.pool + self.reserve if self.pool else 0


class Budget:
    """Slots are taken here before a server is opened; worker/escrow.py gives them back when its backend is gone.

    With `budget = static` a worker sees its part of a limit and its own servers, as if it were alone with them.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ledger = worker.fleet.ledger
        self._names: dict[tuple[Kind, str, str], int] = {}
        self._keys: dict[int, tuple[Kind, str, str]] = {}
        #: pools and slots that need a row
        self._needed: Counter[int] = Counter()
        #: what stands in the ledger as our wish
        self._wishes: dict[PoolId, list[Want]] = {}
        self._limits_of = worker.config
        self._limits: dict[PoolId, tuple[DatabaseConfig, PoolLimits]] = {}

    # -- rows

    def register(self, database: str, user: str, lookups: bool) -> Rows:
        """The rows of a pool, until `release`."""
        pool = self._row(Kind.POOL, database, user + _LOOKUPS if lookups else user)
        rows = Rows(pool, self._row(Kind.DATABASE, database), self._row(Kind.USER, user))
        self._needed.update(rows)
        return rows

    def _row(self, kind: Kind, name: str, user: str = "") -> int:
        key = (kind, name, user)
        row = self._names.get(key)
        if row is None:
            row = self._names[key] = self.ledger.row(kind, name, user)
            self._keys[row] = key
        return row

    def named(self) -> Mapping[tuple[Kind, str, str], int]:
        """The rows of this worker's pools, for SHOW LEDGER: (kind, database or user, user of a pool) -> row."""
        return self._names

    def release(self, rows: Rows) -> None:
        """A pool or a slot does not need its rows any more."""
        for row in rows:
            self._needed[row] -= 1
            if self._needed[row] <= 0:
                del self._needed[row]
                del self._names[self._keys.pop(row)]
                self.ledger.forget(row)

    # -- limits

    def limits(self, pool: Pool) -> PoolLimits:
        """As configured; asked so often that the answer is kept as long as the configuration stands."""
        config, entry = self.worker.config, pool.database.config
        if config is not self._limits_of:
            self._limits_of, self._limits = config, {}
        known = self._limits.get(pool.id)
        if known is not None and known[0] is entry:
            return known[1]
        user = pool.user.name
        found = PoolLimits(
            effective.pool_size(config, entry, user),
            effective.max_db_connections(config, entry),
            effective.max_user_connections(config, user),
            effective.reserve_pool_size(config, entry, user),
        )
        self._limits[pool.id] = entry, found
        return found

    def forget(self, pool: PoolId) -> None:
        """The pool is dropped."""
        self._limits.pop(pool, None)

    def may_grow(self, pool: Pool) -> bool:
        """Whether an attempt could succeed, as far as a glance without the lock tells."""
        limits, used = self.limits(pool), self.ledger.used
        bounds = zip(pool.rows, (limits.with_reserve(), limits.database, limits.user), strict=True)
        return self.ledger.static or all(not limit or used(row) < limit for row, limit in bounds)

    def _divided(self, limit: int) -> bool:
        return self.ledger.static and 1 < self.ledger.workers <= limit

    def part(self, limit: int) -> int:
        """How much of a limit this worker may use."""
        if not self._divided(limit):
            return limit
        return static_limit(limit, self.ledger.workers, self.worker.fleet.number)

    def count(self, row: int, limit: int) -> int:
        """The servers that count against `part` of a limit."""
        if not self._divided(limit):
            return self.ledger.used(row)
        return sum(cell.used for cell in self.ledger.cells(row) if cell.number == self.worker.fleet.number)

    def limit_of(self, row: int, pools: Collection[Pool]) -> int:
        """The limit of a row, found through one of the pools that count in it; 0 if there is none."""
        for pool in pools:
            limits = self.limits(pool)
            if row == pool.rows.pool and self.ledger.used(row) > limits.pool:
                return limits.with_reserve()
            return limits[pool.rows.index(row)]
        return 0

    def surplus(self, pool: Pool) -> int:
        """How many unlinked servers the pool should give up here, after a limit was lowered."""
        limits, escrow = self.limits(pool), self.worker.escrow
        most = 0
        for row, limit in zip(pool.rows, (limits.with_reserve(), limits.database, limits.user), strict=True):
            if limit:
                dying = escrow.dying(row)
                sharers = 1 if self._divided(limit) else self.ledger.workers
                used, here = self.count(row, limit) - dying, self.ledger.own(row) - dying
                most = max(most, surplus(used, self.part(limit), here, sharers))
        return most

    # -- slots

    def _wants(self, pool: Pool, reserve: bool) -> list[Want]:
        limits = self.limits(pool)
        size = limits.with_reserve() if reserve else limits.pool
        return [Want(row, limit) for row, limit in zip(pool.rows, (size, limits.database, limits.user), strict=True)]

    def take(self, pool: Pool, reserve: bool, since_us: int) -> bool:
        """A slot for one more server of the pool, in all its rows or none. `since_us`: when its oldest client came."""
        wants = self._wants(pool, reserve)
        if self.ledger.take(wants, self.worker.engine.now_us(), since_us):
            self._needed.update(pool.rows)
            self.worker.giving.taken()
            return True
        if since_us:
            self._wishes[pool.id] = wants
        return False

    def give(self, rows: Rows) -> None:
        """The backend is gone, or never was."""
        self.ledger.give(rows)
        self.release(rows)

    # -- waiting

    def wait(self, pool: Pool, reserve: bool, count: int, since_us: int) -> None:
        """So many clients of the pool wait for other workers; to be said again as long as it is true."""
        wants = self._wishes[pool.id] = self._wants(pool, reserve)
        self.ledger.wait(wants, count, since_us)

    def settle(self, pool: PoolId) -> None:
        """Nobody in the pool waits for another worker."""
        wants = self._wishes.pop(pool, None)
        if wants is not None:
            self.ledger.wait(wants, 0, 0)

    def waiting(self) -> Collection[PoolId]:
        """The pools that wait for other workers."""
        return self._wishes
