"""Clients counted for the whole fleet: max_client_conn, max_db_client_connections and max_user_client_connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.fleet.ledger import Kind

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.fleet.ledger import Ledger
    from pgshoal.worker.handler import WorkerFace
    from pgshoal.worker.records import Database, User

#: Rows nobody of ours counts in are kept for the next client, up to so many.
_KEPT_MAX: Final = 256


class Admissions:
    """Whoever is admitted carries the rows it counts in, and gives them back with `leave` however it ends.

    Rows of databases and users are used only where a limit is set.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._everybody = ledger.row(Kind.CLIENTS, "")
        self._rows: dict[tuple[Kind, str], int] = {}

    def enter(self, limit: int, exempt: bool = False) -> tuple[int, ...] | None:
        """Count one socket against max_client_conn; None if it is one too many. 0 means none but the exempt."""
        if not exempt and limit <= 0:
            return None
        return (self._everybody,) if self._ledger.admit(self._everybody, 0 if exempt else limit) else None

    def join(self, kind: Kind, name: str, limit: int) -> int | None:
        """Count one client with its database or user; the row, or None if it is one too many. Limit 0 only counts."""
        row = self._rows.get((kind, name))
        if row is None:
            row = self._rows[kind, name] = self._ledger.row(kind, name)
        return row if self._ledger.admit(row, limit) else None

    def named(self) -> Mapping[tuple[Kind, str], int]:
        """The rows in use, for SHOW LEDGER: (kind, database or user) -> row."""
        return {(Kind.CLIENTS, ""): self._everybody, **self._rows}

    def leave(self, rows: Iterable[int]) -> None:
        """The client has gone."""
        for row in rows:
            self._ledger.leave(row)

    def expire(self) -> None:
        """Forget rows nobody counts in, if there are many."""
        if len(self._rows) > _KEPT_MAX:
            for key, row in list(self._rows.items()):
                if not self._ledger.own(row):
                    del self._rows[key]
                    self._ledger.forget(row)

    def recount(
        self, config: Config, admitted: tuple[int, ...], database: Database | None, user: User | None
    ) -> tuple[int, ...]:
        """Limits have changed: count a client that is in for those that are new, and for no other any more."""
        rows = [row for row in admitted if row == self._everybody]
        if database is not None and effective.max_db_client_connections(config, database.config):
            rows.append(self._join_anyway(Kind.DATABASE_CLIENTS, database.name))
        if user is not None and effective.max_user_client_connections(config, user.name):
            rows.append(self._join_anyway(Kind.USER_CLIENTS, user.name))
        self.leave(row for row in admitted if row != self._everybody)
        return tuple(rows)

    def _join_anyway(self, kind: Kind, name: str) -> int:
        row = self.join(kind, name, 0)
        assert row is not None
        return row


def recount_all(worker: WorkerFace) -> None:
    """After a reload."""
    recount, config = worker.admissions.recount, worker.config
    for client in worker.front.clients.values():
        client.admitted = recount(config, client.admitted, client.database, client.user)
    for login in worker.front.logins.values():
        if login.counted:
            login.admitted = recount(config, login.admitted, login.database, login.user)
            login.user_row = None
