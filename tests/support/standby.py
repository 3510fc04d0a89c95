"""A streaming standby of a PostgreSQL: the same port at another address of loopback, as hosts of one list have it."""

from __future__ import annotations

from pgshoal.demo.account import run
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
        if self.account is not None:
            self.account.own(self.folder)
        source = ["-h", self.primary.host, "-p", str(self.primary.port), "-U", self.superuser]
        run(
            [self.programs["pg_basebackup"], "-D", self.data, *source, "-R", "-X", "stream", "-c", "fast"], self.account
        )
        # The settings that lead it there stand in the file that is written at each start.
        lines = (self.data / "postgresql.auto.conf").read_text().splitlines()
        found = [line.partition("=") for line in lines if line.startswith("primary_conninfo")]
        self.settings["primary_conninfo"] = found[-1][2].strip().strip("'").replace("''", "'")

    def promote(self) -> None:
        """From now on it is a primary; its connections stay."""
        self.query("select pg_promote(true, 30)")
