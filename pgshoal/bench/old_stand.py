"""The measuring stand: one PostgreSQL, a server that never reads, and one pooler per contender."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pgshoal.bench.deaf import DeafServer
from pgshoal.bench.fleets import FLEETS, fleet
from pgshoal.bench.old_experiments import Experiment
from pgshoal.bench.targets import pgbouncer
from pgshoal.demo import pgbench, programs
from pgshoal.demo.account import run, unprivileged
from pgshoal.demo.cluster import TRUST, Cluster
from pgshoal.demo.pooler import PgBouncer, Pooler

REFERENCE = "pgbouncer"
ENGINES = ("uring", "epoll", "python")
PASSWORD = "bench-secret"  # of a throw-away role on a throw-away server
SCALE = 5
COMMON: Mapping[str, object] = {
    "pool_mode": "transaction",
    "default_pool_size": 20,
    "max_client_conn": 12000,
    "max_prepared_statements": 200,
    "log_connections": 0,
    "log_disconnections": 0,
    "log_stats": 0,
    "workers": 1,
}


@dataclass(frozen=True)
class Sizes:
    """How long and how large; everything has a bound."""

    seconds: int = 5
    rounds: int = 3
    idle_clients: int = 10_000
    copy_mb: int = 150


class Stand:
    """Holds what all experiments share; poolers come and go per experiment."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._stack = ExitStack()
        self.cluster: Cluster
        self.deaf: DeafServer
        self.tls_folder: Path | None = None
        self.scram_secret = ""

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def reference(self) -> Path:
        """The PgBouncer to compare with."""
        return pgbouncer.find()

    def _open(self) -> None:
        settings = {"max_connections": "1000"}
        try:
            found = programs.system()
            self.tls_folder = certificates()
            self._stack.callback(shutil.rmtree, self.tls_folder, ignore_errors=True)
        except programs.ProgramsMissing:
            found = programs.embedded(unprivileged())  # without TLS, so that experiment is left out
        self.cluster = Cluster(found, settings, TRUST)
        self._stack.callback(self.cluster.remove)
        self.cluster.create()
        if self.tls_folder:
            self._offer_tls(self.tls_folder)
        self.cluster.start()
        pgbench.fill(self.cluster, scale=SCALE)
        self.sql(f"create role bench_scram login superuser password '{PASSWORD}'")
        self.scram_secret = self.sql("select rolpassword from pg_authid where rolname = 'bench_scram'")
        self.deaf = self._stack.enter_context(DeafServer())

    def _offer_tls(self, folder: Path) -> None:
        key = self.cluster.data / "server.key"
        self.cluster.write_owned(key, (folder / "server.key").read_text())
        self.cluster.settings.update(ssl="on", ssl_cert_file=str(folder / "server.crt"), ssl_key_file=str(key))

    def sql(self, text: str) -> str:
        """One statement on the server, past any pooler; its unaligned result."""
        argv: list[str | Path] = [self.cluster.programs["psql"], "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]
        target = pgbench.Target(self.cluster.socket_dir, self.cluster.port)
        return run(argv, self.cluster.account, env=target.env()).strip()

    def pooler(self, contender: str, experiment: Experiment) -> Pooler:
        """A pooler for one contender, configured alike for all; not started yet."""
        databases = {
            "postgres": f"host={self.cluster.host} port={self.cluster.port}",
            "deaf": f"host={self.deaf.host} port={self.deaf.port}",
        }
        facts: dict[str, Any] = {**COMMON, **experiment.settings}
        facts["userlist"] = {"postgres": "", "bench_scram": self.scram_secret}
        facts["server_tls_sslmode"] = "require" if experiment.tls else "disable"
        if experiment.tls and self.tls_folder:
            facts["client_tls_sslmode"] = "require"
            facts["client_tls_cert_file"] = self.tls_folder / "server.crt"
            facts["client_tls_key_file"] = self.tls_folder / "server.key"
        if contender in FLEETS:
            return fleet(contender, self.reference, databases, facts)
        if contender == REFERENCE:
            return PgBouncer(self.reference, databases, **facts)
        return Pooler(databases, engine=contender, **facts)

    def target(self, pooler: Pooler, experiment: Experiment) -> pgbench.Target:
        """Where and how a load generator connects to a pooler."""
        environment = {"PGSSLMODE": "require" if experiment.tls else "disable", "PGPASSWORD": PASSWORD}
        return pgbench.Target(pooler.host, pooler.port, experiment.user, "postgres", tuple(environment.items()))


def certificates() -> Path:
    """A folder with a server certificate and its key, readable for the poolers' account and removed at the end."""
    import trustme

    folder = Path(tempfile.mkdtemp(prefix="pgshoal-tls-"))
    folder.chmod(0o755)
    made = trustme.CA().issue_cert("localhost", "127.0.0.1")
    (folder / "server.crt").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    made.private_key_pem.write_to_path(folder / "server.key")
    (folder / "server.key").chmod(0o644)
    return folder
