"""A streaming standby of a PostgreSQL: the same port at another address of loopback, as hosts of one list have it."""

from __future__ import annotations

from pgshoal.bench.targets.servers import follow
from tests.support.postgres import HBA, Postgres

REPLICATED = (*HBA, "host replication all all trust")


class Primary(Postgres):
    """A server that standbys may follow."""

    def __init__(self, major: int) -> None:
        super().__init__(major, settings={"wal_level": "replica", "max_wal_senders": "8"}, hba=REPLICATED)


class Standby(Postgres):
    """Follows its primary until it is promoted."""

    def __init__(self, primary: Postgres, host: str = "127.0.0.2") -> None:
        super().__init__(primary.programs.major, settings=primary.settings, hba=REPLICATED)
        self.primary = primary
        self.host = host
        self.port = primary.port
        self._filled = True

    def create(self) -> None:
        """A copy of the primary."""
        follow(self, self.primary)

    def promote(self) -> None:
        """From now on it is a primary; its connections stay."""
        self.query("select pg_promote(true, 30)")
