"""SHOW MEM: PgBouncer's rows, in its order, as far as they mean anything here; then what only we have."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.config.model import PeerConfig
from pgshoal.console.sockets import Row
from pgshoal.worker.peers import Line
from pgshoal.worker.records import Database, Found, User

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole
    from pgshoal.worker.app import Worker

Facts = tuple[int, int, int]

#: Rows that are the engine's to tell stand where PgBouncer has them; one that an engine does not have is all zeros.
ORDER: Final = (
    "user_cache", "credentials_cache", "db_cache", "peer_cache", "peer_pool_cache", "pool_cache",
    "outstanding_request_cache", "server_cache", "client_cache", "iobuf_cache", "var_list_cache",
    "server_prepared_statement_cache",
)  # fmt: skip
#: What an engine does not tell: about the size of one entry in a native engine.
_REQUEST_BYTES: Final = 48
_STATEMENT_BYTES: Final = 56


def rows(worker: Worker, console: AdminConsole) -> list[Row]:
    """One row for each kind of record. `free` is 0 where records are made as they are needed."""
    found = _records(worker) | _on_servers(worker)
    found |= {name: (size, used, free) for name, size, used, free in worker.engine.memory()}
    names = dict.fromkeys((*ORDER, *found))
    return [_row(name, *found.get(name, (0, 0, 0))) for name in names]


def _row(name: str, size: int, used: int, free: int) -> Row:
    return (name, size, used, free, size * (used + free))


def _records(worker: Worker) -> dict[str, Facts]:
    """The worker's own: sizes are those of the records without what they refer to."""
    users = (worker.front.console_user, *worker.pools.forced.values(), *worker.pools.users.values())
    counts: dict[str, tuple[type, int]] = {
        "user_cache": (User, len(users)),
        "credentials_cache": (Found, sum(len(user.found) for user in users)),
        "db_cache": (Database, len(worker.pools.databases)),
        "peer_cache": (PeerConfig, len(worker.config.peers)),
        "peer_pool_cache": (Line, len(worker.peers.lines)),
    }
    return {name: (record.__basicsize__, used, 0) for name, (record, used) in counts.items()}


def _on_servers(worker: Worker) -> dict[str, Facts]:
    """What stands on server connections: requests without their answers, and prepared statements."""
    requests = statements = 0
    for conn in worker.servers.by_conn:
        with suppress(KeyError):  # it died in this same wake
            facts = worker.engine.facts(conn)
            requests += facts.queue_length
            statements += facts.prepared_statements
    return {
        "outstanding_request_cache": (_REQUEST_BYTES, requests, 0),
        "server_prepared_statement_cache": (_STATEMENT_BYTES, statements, 0),
    }
