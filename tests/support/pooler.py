"""The pooler under test as a child process with a console at hand; PgBouncer with the same face, for comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pgshoal.bench.targets import pgbouncer
from pgshoal.demo import pooler as base
from tests.support.certs import Certificate
from tests.support.postgres import PASSWORDS, Postgres

Rows = list[dict[str, Any]]


def database(pg: Postgres, dbname: str = "app", **more: object) -> str:
    """A [databases] line for a server: database(pg, pool_size=1)."""
    facts = {"host": pg.host, "port": pg.port, "dbname": dbname, **more}
    return " ".join(f"{key}={value}" for key, value in facts.items())


def tls_client_side(pair: Certificate, mode: str = "require") -> dict[str, object]:
    """The settings that offer TLS to clients."""
    return {"client_tls_sslmode": mode, "client_tls_cert_file": pair.cert, "client_tls_key_file": pair.key}


#: Lines are written at the end of a wake, which may come after the client has its answer.
LOG_LAG_S = 0.05


class Console:
    """What a test asks of a running pooler: connections and the admin console."""

    port: int

    def dsn(self, dbname: str, user: str, **more: Any) -> str:
        """Given by the pooler."""
        raise NotImplementedError

    def connect(self, dbname: str = "app", user: str = "alice", **more: Any) -> psycopg.Connection[Any]:
        """An autocommit connection through the pooler."""
        return psycopg.connect(self.dsn(dbname, user, connect_timeout=20, **more), autocommit=True)

    def query(self, text: str, dbname: str = "app", user: str = "alice", **more: Any) -> list[Any]:
        """Runs one statement through the pooler on a connection of its own."""
        with self.connect(dbname, user, **more) as conn:
            cursor = conn.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def admin(self, command: str, user: str = "admin", **more: Any) -> Rows:
        """One console command in its own session; rows as dictionaries, empty when the command returns none."""
        dsn = self.dsn("pgbouncer", user, connect_timeout=20, **more)
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as conn:
            cursor = conn.execute(command.encode())
            return cursor.fetchall() if cursor.description else []


def defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Every test user is in the user list unless a test brings its own list."""
    userlist = given.pop("userlist", None)
    return {"userlist": dict(PASSWORDS) if userlist is None else userlist, **given}


class Pooler(Console, base.Pooler):
    """pgshoal under test: `with Pooler({"app": database(pg)}, engine="epoll", pool_mode="transaction") as pooler:`.

    `users`, `userlist` and `peers` become their sections and files, everything else a setting.
    """

    dsn = base.Pooler.dsn

    def __init__(self, databases: Mapping[str, str], **settings: Any) -> None:
        base.Pooler.__init__(self, databases, **defaults(settings))

    def log_text(self) -> str:
        """All that was said because of what a client has heard."""
        if self.running:
            time.sleep(LOG_LAG_S)
        return base.Pooler.log_text(self)


class PgBouncer(Console, base.PgBouncer):
    """PgBouncer with the same face, from $PGBOUNCER, PATH or a fetched package."""

    dsn = base.Pooler.dsn

    def __init__(self, databases: Mapping[str, str], **settings: Any) -> None:
        base.PgBouncer.__init__(self, pgbouncer.find(), databases, **defaults(settings))
