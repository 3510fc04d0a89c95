"""What PostgreSQL itself counts: transactions, blocks, and who is connected while a load runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from pgshoal.bench.stand import APPLICATION

if TYPE_CHECKING:
    from pgshoal.bench.stand import Stand

#: The meter connects to one of these, so that its own transactions are not in the count of the load's database.
APART: Final = ("template1", "postgres")
#: A backend that was told to end may take so long; one that is idle reports after IDLE_REPORT_S what it has counted.
SETTLE_LIMIT_S: Final = 5.0
IDLE_REPORT_S: Final = 10.5
LOOK_EVERY_S: Final = 0.02

#: Neither the kit's own nor those of strangers; on a given server only the load's database is ours.
OTHERS: Final = (
    "backend_type = 'client backend' and application_name <> %(own)s and pid <> all(%(strangers)s)"
    " and (%(all)s or datname = %(dbname)s)"
)
STRANGERS_AT_WORK: Final = (
    "select count(*) from pg_catalog.pg_stat_activity where pid = any(%(strangers)s) and datname = %(dbname)s"
    " and (state <> 'idle' or state_change > %(since)s)"
)
SEES_ALL: Final = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage')"
BORN: Final = "select extract(epoch from pg_postmaster_start_time())::float8"
BACKENDS: Final = (
    f"select count(*), count(*) filter (where state <> 'idle') from pg_catalog.pg_stat_activity where {OTHERS}"
)
UNREPORTED: Final = (
    "select count(*) from pg_catalog.pg_stat_activity"
    f" where {OTHERS} and (state <> 'idle' or state_change > clock_timestamp() - %(age)s * interval '1 second')"
)
END_OTHERS: Final = (
    f"select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where {OTHERS} and state = 'idle'"
)
COUNTS: Final = (
    "select coalesce(sum(xact_commit - {sessions}), 0)::float8, coalesce(sum(blks_read), 0)::float8,"
    " coalesce(sum(blks_hit), 0)::float8 from pg_catalog.pg_stat_database"
    " where datname <> current_database() and (%(all)s or datname = %(dbname)s)"
)
SESSIONS_SINCE: Final = 140000


@dataclass(frozen=True)
class Counts:
    """What pg_stat_database has counted so far: in all databases but the meter's own, or in the load's alone."""

    commits: float  # a session's start is one too; from PostgreSQL 14 on it is left out
    blocks_read: float
    blocks_hit: float


class Database:
    """The meter's one connection. Every method raises psycopg.Error when PostgreSQL is gone."""

    def __init__(self, stand: Stand) -> None:
        self._conn, self._apart = connect(stand)
        self._may_end = stand.own
        self._facts = {
            "own": APPLICATION,
            "strangers": list(stand.strangers),
            "all": stand.own,
            "dbname": stand.dbname,
        }
        self._sees_all = bool(self._ask(SEES_ALL)[0])
        self._since = self._ask("select clock_timestamp()")[0]

    def _ask(self, sql: str, **facts: object) -> tuple[Any, ...]:
        row = self._conn.execute(sql.encode(), {**self._facts, **facts}).fetchone()
        return row or ()

    def born_s(self) -> float:
        """When the server was started."""
        return float(self._ask(BORN)[0])

    def backends(self) -> tuple[int, int] | None:
        """Client backends of others than the kit, and those that are not idle; None without the right to see them."""
        every, active = self._ask(BACKENDS)
        return (int(every), int(active)) if self._sees_all else None

    def counts(self) -> Counts | None:
        """What backends have reported: each does so at most once a second; None when the kit's own would be in it."""
        sessions = "sessions" if self._conn.info.server_version >= SESSIONS_SINCE else "0"
        return Counts(*self._ask(COUNTS.format(sessions=sessions))) if self._apart else None

    def settle(self) -> bool:
        """Waits until nobody has anything left to report; False when somebody still may have.

        A backend reports at its end, or after ten idle seconds. On a server of the kit's own the idle ones are ended.
        """
        deadline = time.monotonic() + SETTLE_LIMIT_S + (0 if self._may_end else IDLE_REPORT_S)
        while self._ask(UNREPORTED, age=IDLE_REPORT_S)[0]:
            if time.monotonic() > deadline:
                return False
            if self._may_end:
                self._conn.execute(END_OTHERS.encode(), self._facts)
            time.sleep(LOOK_EVERY_S)
        return self._sees_all

    def strangers_at_work(self) -> int:
        """Sessions in the load's database that were there before us and have worked since we began to look.

        PostgreSQL counts their transactions among ours.
        """
        return int(self._ask(STRANGERS_AT_WORK, since=self._since)[0])

    def close(self) -> None:
        """Ends the connection."""
        self._conn.close()


def connect(stand: Stand) -> tuple[psycopg.Connection[Any], bool]:
    """A connection beside the load's database, and whether it is: not everywhere is there another to enter."""
    for name in APART:
        if name == stand.dbname:
            continue
        try:
            return stand.connect(dbname=name), True
        except psycopg.OperationalError:
            continue
    return stand.connect(), False
