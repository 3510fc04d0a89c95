"""A PostgreSQL for the meter's tests, with the face of the measuring stand as far as the meter sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import psycopg

from pgshoal.bench.stand import APPLICATION
from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from pgshoal.bench.stand import Stand


class Ground:
    """What is `own` or given, and who connects."""

    def __init__(self, server: Postgres, *, own: bool = True, dbname: str = "app", user: str = "postgres") -> None:
        self.server = server
        self.own = own
        self.dbname = dbname
        self.user = user
        self.strangers: frozenset[int] = frozenset()

    @property
    def postmaster_pid(self) -> int:
        """Of the server as it runs now."""
        return self.server.pid

    @property
    def stand(self) -> Stand:
        """As the meter takes it."""
        return cast("Stand", self)

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """One of the kit's own connections."""
        facts = {"dbname": self.dbname, "user": self.user, **more}
        return self.server.connect(application_name=APPLICATION, **facts)
