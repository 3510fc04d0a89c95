"""A target made to run: poolers as the cell says, their budget divided, their addresses, processes and consoles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell
from pgshoal.demo.pgbench import Target as Address
from pgshoal.demo.pooler import Pooler

if TYPE_CHECKING:
    import psycopg

    from pgshoal.bench.stand import Stand


@dataclass(frozen=True)
class Opened:
    """A target that runs. Without poolers of ours it is PostgreSQL itself, or a pooler that somebody else runs."""

    cell: Cell
    addresses: Mapping[str, Address]
    poolers: Mapping[str, Pooler]  # by the name of their address

    def address(self, name: str = "main") -> Address:
        """Where and how clients connect, as the cell's user; KeyError for a name that this target does not have.

        Always: `main`. Isolated: `exports`. Of several nodes: `node1`, `node2` past the balancer. With a standby:
        `writer` and `reader`, which are databases of those names at `main`, and of a direct target both servers.
        """
        return self.addresses[name]

    def roots(self) -> Mapping[str, int]:
        """The processes that poolers were started as, by name; their children are theirs too. Empty when not known."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether all poolers of ours are alive."""
        raise NotImplementedError

    def log_text(self) -> str:
        """What poolers of ours have logged so far."""
        raise NotImplementedError

    def console(self, name: str = "main") -> psycopg.Connection[Any] | None:
        """A connection to a pooler's admin console (the first process of a PgBouncer fleet); None if it is not ours."""
        raise NotImplementedError


@contextmanager
def opened(stand: Stand, cell: Cell, knobs: Knobs) -> Iterator[Opened]:
    """Starts what the cell says, and stops it; NotHere when that cannot be had here.

    Options of a target: engine, budget (elastic, static), accept (least, kernel, pack), pin (on, off), peers (on, off:
    whether PgBouncers know each other, and nodes), isolated = on (one process of its own for `exports`) and
    standby = on (a standby of the stand's PostgreSQL, as the database `reader`).
    """
    raise NotImplementedError
    yield
