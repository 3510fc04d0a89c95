"""One pool: its idle servers, its waiting line and its totals."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pgshoal.engine.contract import PoolCounts, PoolMode, PoolSpec, PoolStats
from pgshoal.engine.python.conn import DIALOGUE, HELD, IDLE, LINKED, LINKING, PARKED, WAITING

if TYPE_CHECKING:
    from pgshoal.engine.python.conn import Client, Server
    from pgshoal.engine.python.prepared import Statement


class Pool:
    """Connections of one database and user."""

    __slots__ = (
        "assigned",
        "binds",
        "client_bytes",
        "client_parses",
        "clients",
        "heirs",
        "hushed",
        "id",
        "idle",
        "max_prepared",
        "paused",
        "pooled",
        "queries",
        "query_time",
        "rest_wanted",
        "server_bytes",
        "server_parses",
        "servers",
        "spec",
        "starved",
        "statement_mode",
        "wait_time",
        "waiting",
        "xact_time",
        "xacts",
    )

    def __init__(self, pool_id: int, spec: PoolSpec) -> None:
        self.id = pool_id
        self.idle: deque[Server] = deque()
        self.waiting: dict[int, Client] = {}
        self.clients: dict[int, Client] = {}
        self.servers: dict[int, Server] = {}
        #: Statements whose result type has changed, and those that took their place.
        self.heirs: WeakKeyDictionary[Statement, Statement] = WeakKeyDictionary()
        self.paused = False
        self.starved = self.hushed = self.rest_wanted = False
        self.assigned = self.xacts = self.queries = 0
        self.client_bytes = self.server_bytes = 0
        self.xact_time = self.query_time = self.wait_time = 0
        self.client_parses = self.server_parses = self.binds = 0
        self.set_spec(spec)

    def set_spec(self, spec: PoolSpec) -> None:
        """Take new rules; links in progress go on under them."""
        self.spec = spec
        self.pooled = spec.mode != PoolMode.SESSION
        self.statement_mode = spec.mode == PoolMode.STATEMENT
        self.max_prepared = spec.max_prepared_statements if self.pooled else 0

    def counts(self, now_us: int) -> PoolCounts:
        """How many connections stand in each mode."""
        modes = [c.mode for c in self.clients.values()]
        server_modes = [s.mode for s in self.servers.values()]
        oldest = next(iter(self.waiting.values()), None)
        return PoolCounts(
            cl_parked=modes.count(PARKED),
            cl_linked=modes.count(LINKED) + modes.count(LINKING),
            cl_waiting=modes.count(WAITING),
            sv_idle=server_modes.count(IDLE),
            sv_linked=server_modes.count(LINKED) + server_modes.count(LINKING),
            sv_held=server_modes.count(HELD),
            sv_dialogue=server_modes.count(DIALOGUE),
            oldest_wait_us=now_us - oldest.wait_us if oldest else 0,
        )

    def stats(self) -> PoolStats:
        """Totals since the pool was made."""
        return PoolStats(
            server_assignment_count=self.assigned,
            xact_count=self.xacts,
            query_count=self.queries,
            client_bytes=self.client_bytes,
            server_bytes=self.server_bytes,
            xact_time_us=self.xact_time,
            query_time_us=self.query_time,
            wait_time_us=self.wait_time,
            client_parse_count=self.client_parses,
            server_parse_count=self.server_parses,
            bind_count=self.binds,
        )
