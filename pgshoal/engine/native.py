"""The compiled engine under the contract's types: hot calls go straight through, records are dressed here."""

from __future__ import annotations

import pgshoal_engine

from pgshoal.engine.contract import ConnFacts, ConnId, PoolCounts, PoolId, PoolStats


class NativeEngine(pgshoal_engine.Engine):
    """`NativeEngine("uring" | "epoll" | "manual")`; OSError if the system does not allow the driver."""

    def pool_counts(self, pool: PoolId) -> PoolCounts:
        """How a pool stands."""
        return PoolCounts(*super().pool_counts(pool))

    def pool_stats(self, pool: PoolId) -> PoolStats:
        """Totals since the pool was made."""
        return PoolStats(*super().pool_stats(pool))

    def facts(self, conn: ConnId) -> ConnFacts:
        """How a connection stands."""
        return ConnFacts(*super().facts(conn))
