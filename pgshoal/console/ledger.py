"""SHOW LEDGER: the names of limits come from the workers, what is held of them from the ledger itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.fleet.ledger import Kind

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.console.merge import Gathered
    from pgshoal.console.sockets import Row
    from pgshoal.worker.app import Worker

#: Pools of auth_query have rows of their own; see worker/budget.py.
_LOOKUPS: Final = " (auth_query)"
#: Their one name is a user's.
_OF_USERS: Final = frozenset({Kind.USER, Kind.USER_CLIENTS})


def rows(worker: Worker, found: Gathered) -> list[Row]:
    """In order of kinds and names."""
    named = {
        (int(str(kind)), str(name), str(user)): int(str(row)) for part in found.parts for kind, name, user, row in part
    }
    return [_row(worker, Kind(kind), name, user, row, found) for (kind, name, user), row in sorted(named.items())]


def _row(worker: Worker, kind: Kind, name: str, user: str, row: int, found: Gathered) -> Row:
    by_number: dict[int, int] = {}
    used = waiting = 0
    for cell in worker.fleet.ledger.cells(row):
        used += cell.used
        waiting += cell.waiting
        if cell.used:
            by_number[cell.number] = by_number.get(cell.number, 0) + cell.used
    database, owner = ("", name) if kind in _OF_USERS else (name, user)
    return (
        kind.name.lower().replace("_", " "),
        database,
        owner,
        limit(worker.config, kind, name, user),
        used,
        waiting,
        " ".join(f"{number}:{count}" for number, count in sorted(by_number.items())),
        found.dying.get(row, 0),
    )


def limit(config: Config, kind: Kind, name: str, user: str) -> int:
    """As configured now; 0 for none, or for a database that is gone."""
    entry = config.database(name)
    match kind:
        case Kind.POOL:
            return effective.pool_size(config, entry, user.removesuffix(_LOOKUPS)) if entry else 0
        case Kind.DATABASE:
            return effective.max_db_connections(config, entry) if entry else 0
        case Kind.USER:
            return effective.max_user_connections(config, name)
        case Kind.CLIENTS:
            return config.settings.max_client_conn
        case Kind.DATABASE_CLIENTS:
            return effective.max_db_client_connections(config, entry) if entry else 0
        case Kind.USER_CLIENTS:
            return effective.max_user_client_connections(config, name)
        case Kind.PEER:
            return effective.peer_pool_size(config, int(name))
