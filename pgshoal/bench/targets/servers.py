"""PostgreSQL of the stand's own: with TLS and SCRAM, its settings changed by restarts, and a standby of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgshoal.demo.account import run
from pgshoal.demo.cluster import Cluster
from pgshoal.demo.programs import Programs

if TYPE_CHECKING:
    import psycopg

#: A role that logs in by SCRAM. Its password is of a throw-away role on a throw-away server.
SCRAM_USER: Final = "bench_scram"
PASSWORD: Final = "bench-secret"
SETTINGS: Final[Mapping[str, str]] = {"max_connections": "1000", "shared_buffers": "256MB"}
HBA: Final = (
    "local all all trust",
    f"host all {SCRAM_USER} all scram-sha-256",
    "host all,replication all all trust",
)
NO_TLS: Final = "SSL is not supported by this build"
RESTART_LIMIT_S: Final = 20.0


class Server(Cluster):
    """The PostgreSQL that the kit runs; with TLS when there are certificates and the programs can."""

    def __init__(self, programs: Programs, tls_folder: Path | None) -> None:
        super().__init__(programs, SETTINGS, HBA)
        self.tls_folder = tls_folder
        self._base: dict[str, str] = {}

    def create(self) -> None:
        """Makes the cluster, with its key where its account owns it."""
        super().create()
        if self.tls_folder is not None:
            self.write_owned(self.data / "server.key", (self.tls_folder / "server.key").read_text())
            certificate = str(self.tls_folder / "server.crt")
            self.settings.update(ssl="on", ssl_cert_file=certificate, ssl_key_file="server.key")

    def start(self) -> None:
        """Starts it; without TLS when the programs were built so."""
        try:
            super().start()
        except RuntimeError as error:
            if self.tls_folder is None or NO_TLS not in str(error):
                raise
            self.tls_folder = None
            self.settings = {key: value for key, value in self.settings.items() if not key.startswith("ssl")}
            super().start()

    def apply(self, settings: Mapping[str, str]) -> bool:
        """Restarts it if it does not run, or runs with other settings than its own and these; whether it did."""
        self._base = self._base or dict(self.settings)
        wanted = {**self._base, **settings}
        if self.running and wanted == self.settings:
            return False
        self.stop()
        self.settings = wanted
        deadline = time.monotonic() + RESTART_LIMIT_S
        while True:
            try:
                self.start()
            except RuntimeError:
                if time.monotonic() > deadline:  # the processes of a postmaster that was killed take a moment to end
                    raise
                time.sleep(0.2)
            else:
                return True


class Standby(Cluster):
    """Follows its primary, read-only, on a port of its own."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__(primary.programs, primary.settings, primary.hba)
        self.primary = primary

    def create(self) -> None:
        """A copy of the primary, key and pg_hba.conf included."""
        follow(self, self.primary)


def follow(follower: Cluster, primary: Cluster) -> None:
    """Makes an empty cluster a copy of the primary, whose changes it will take up while it runs."""
    if follower.account is not None:
        follower.account.own(follower.folder)
    source = ["-h", primary.host, "-p", str(primary.port), "-U", primary.superuser]
    argv: list[str | Path] = [primary.programs["pg_basebackup"], "-D", follower.data, *source]
    run([*argv, "-R", "-X", "stream", "-c", "fast", "--no-sync"], follower.account)
    # The settings that lead it there stand in the file that is written at each start.
    lines = (follower.data / "postgresql.auto.conf").read_text().splitlines()
    found = [line.partition("=") for line in lines if line.startswith("primary_conninfo")]
    follower.settings["primary_conninfo"] = found[-1][2].strip().strip("'").replace("''", "'")


def local_postmaster(conn: psycopg.Connection[Any]) -> int | None:
    """The postmaster behind a connection, when it runs on this machine and we see it; else None.

    A process of the backend's number may be anybody's on another host, so its title must name our very connection.
    """
    backend = conn.info.backend_pid
    row = conn.execute("select inet_client_port()").fetchone()
    ours = f"({row[0]})" if row and row[0] is not None else "[local]"
    folder = Path("/proc") / str(backend)
    try:
        title = (folder / "cmdline").read_text(errors="replace")
        if not title.startswith("postgres: ") or ours not in title:
            return None
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
