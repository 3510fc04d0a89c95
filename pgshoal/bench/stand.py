"""The measuring stand: one PostgreSQL, the kit's own or a given one, with what poolers in front of it need."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.deaf import DeafServer
from pgshoal.bench.model import NotHere
from pgshoal.bench.targets.servers import PASSWORD, SCRAM_USER, Server, Standby, local_postmaster
from pgshoal.bench.targets.tables import BY_INDEX, MARK, TABLES, Table, What
from pgshoal.bench.targets.tls import certificates
from pgshoal.demo import pgbench, programs
from pgshoal.demo.account import run, unprivileged
from pgshoal.demo.cluster import Cluster

#: PostgreSQL knows the kit's own connections by this name; they are left out of all counts.
APPLICATION: Final = "pgshoal bench"
#: The kit keeps so many connections of its own during a load (the meter's): max_connections is raised by it.
OWN_CONNECTIONS: Final = 1
DRAIN_LIMIT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.05
BACKENDS: Final = (
    "select pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(client_addr::text, 'local'),"
    " coalesce(state, ''), coalesce(datname, '') from pg_stat_activity"
    " where backend_type = 'client backend' and application_name <> %s and pid <> pg_backend_pid() order by pid"
)


class Stand:
    """Holds what all experiments share: `with Stand(knobs) as stand:`. A given PostgreSQL gets no settings."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        host, port = knobs.text("pg_host"), knobs.int("direct_port")
        self.own = not (host or port)
        self.superuser = knobs.text("pg_user") if not self.own else Cluster.superuser
        self.dbname = knobs.text("pg_database") if not self.own else "postgres"
        self.password = knobs.text("pg_password") if not self.own else ""
        self.programs: programs.Programs
        self.cluster: Server | None = None
        self.deaf: DeafServer
        self.tls_folder: Path | None = None  # server.crt, server.key, ca.crt; None when clients cannot speak TLS
        self.server_tls = False  # whether PostgreSQL offers TLS
        self.scram_secret = ""  # of bench_scram, as a user list has it; empty when there is no such role
        self._given = (host or "127.0.0.1", port or knobs.int("pg_port"))
        self._given_pid: int | None = None
        self.strangers: frozenset[int] = frozenset()  # backends that a given PostgreSQL had before we came
        self._filled: dict[What, int] = {}
        self._touched: set[What] = set()
        self._stack = ExitStack()

    @property
    def host(self) -> str:
        """Where PostgreSQL listens."""
        return self.cluster.host if self.cluster else self._given[0]

    @property
    def port(self) -> int:
        """Where PostgreSQL listens; may change when a server of the kit's is restarted."""
        return self.cluster.port if self.cluster else self._given[1]

    @property
    def postmaster_pid(self) -> int | None:
        """PostgreSQL's first process; None when it is not on this machine, or has ended."""
        if self.cluster:
            return self.cluster.pid if self.cluster.running else None
        return self._given_pid

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

    def _open(self) -> None:
        account = unprivileged()
        try:
            self.programs = programs.system()
            self.tls_folder = certificates()
            self._stack.callback(shutil.rmtree, self.tls_folder, ignore_errors=True)
        except programs.ProgramsMissing:
            self.programs = programs.embedded(account)  # neither server nor pgbench of these can do TLS
        self.deaf = self._stack.enter_context(DeafServer())
        if self.own:
            self._start()
        else:
            self._look_at_given()

    def _start(self) -> None:
        self.cluster = Server(self.programs, self.tls_folder)
        self._stack.callback(self.cluster.remove)
        self.cluster.start()
        self.tls_folder = self.cluster.tls_folder
        self.server_tls = self.tls_folder is not None
        self.sql(f"create role {SCRAM_USER} login superuser password '{PASSWORD}'")
        self.scram_secret = self.sql(f"select rolpassword from pg_authid where rolname = '{SCRAM_USER}'")

    def _look_at_given(self) -> None:
        with self.connect() as conn:
            self._given_pid = local_postmaster(conn)
            self.strangers = frozenset(row[0] for row in conn.execute(BACKENDS, (APPLICATION,)).fetchall())
        self.server_tls = self.tls_folder is not None and self.sql("show ssl") == "on"
        self._stack.callback(self._drop_tables)

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """A connection of the kit's own, autocommit, past any pooler; psycopg.Error when PostgreSQL does not answer."""
        facts: dict[str, Any] = {
            "host": self.cluster.socket_dir if self.cluster else self.host,
            "port": self.port,
            "user": self.superuser,
            "password": self.password or None,
            "dbname": self.dbname,
            "application_name": APPLICATION,
            "connect_timeout": 10,
        }
        return psycopg.connect(autocommit=True, **{**facts, **more})

    def sql(self, text: str) -> str:
        """Runs statements; the rows of the last one that has any, unaligned: `|` between columns, a line for each."""
        with self.connect() as conn:
            cursor, found = conn.execute(text.encode()), ""
            while True:
                if cursor.description:
                    found = "\n".join("|".join(map(shown, row)) for row in cursor.fetchall())
                if not cursor.nextset():
                    return found

    def prepare(self, settings: Mapping[str, str] | None = None) -> None:
        """Before a run: a server of the kit's has these settings beside its own, and no backend of others is left.

        A given server keeps its settings, the backends it had when we came, and those of other databases; if somebody's
        pooler is measured, its idle server connections may stay too. RuntimeError names backends that do not go.
        """
        deadline = time.monotonic() + DRAIN_LIMIT_S
        while True:
            try:
                self._apply(dict(settings or {}))
                left = self._backends()
                if not left:
                    return
                trouble = "PostgreSQL still has backends of " + ", ".join(left)
            except psycopg.OperationalError as error:  # it has just ended, or recovers from a crash
                trouble = str(error)
            if time.monotonic() > deadline:
                raise RuntimeError(trouble)
            time.sleep(LOOK_EVERY_S)

    def _apply(self, settings: dict[str, str]) -> None:
        if self.cluster is None:
            return
        if "max_connections" in settings:
            settings["max_connections"] = str(int(settings["max_connections"]) + OWN_CONNECTIONS)
        if self.cluster.apply(settings):
            filled, self._filled = self._filled, {}
            for what, size in filled.items():  # their cache is cold; after a crash they may even be gone
                self.fill(what, size)

    def _backends(self) -> list[str]:
        """The backends that should not be there, in words."""
        tolerated = {"idle"} if self.knobs.int("pooler_port") else set()
        with self.connect() as conn:
            rows = conn.execute(BACKENDS, (APPLICATION,)).fetchall()
        return [
            f"{user} from {address} ({application or 'no application_name'}, {state}, process {pid})"
            for pid, user, application, address, state, dbname in rows
            if pid not in self.strangers and state not in tolerated and (self.own or dbname == self.dbname)
        ]

    def fill(self, what: What, size: int) -> None:
        """Makes tables unless they are there in this size, analyzes them, and reads them into PostgreSQL's cache.

        The size is the number of rows; of pgbench's tables it is the scale. NotHere when a given database holds tables
        of these names that the kit has not made.
        """
        if self._filled.get(what) == size:
            return
        table = TABLES[what]
        found = dict(line.split("|") for line in self.sql(table.look).splitlines())
        if not self.own and (theirs := [name for name, comment in found.items() if not comment.startswith(MARK)]):
            raise NotHere(f"database {self.dbname} has its own {', '.join(theirs)}: --pg-database names another one")
        self._touched.add(what)
        if found != dict.fromkeys(table.names, table.comment(size)):
            self._make(table, size)
        self._read(what)
        self._filled[what] = size

    def _make(self, table: Table, size: int) -> None:
        self.sql(table.drop)
        if table.make:
            self.sql(table.make.format(rows=size))
        else:
            argv: list[str | Path] = [self.programs["pgbench"], "-i", "-q", "-s", str(size)]
            run(argv, unprivileged(), env=self.address(tls=self.server_tls and not self.own).env())
        for name in table.names:
            self.sql(f"comment on table {name} is '{table.comment(size)}'")
            self.sql(f"vacuum analyze {name}")

    def _read(self, what: What) -> None:
        self.sql(f"{BY_INDEX}; {TABLES[what].read}")

    def _drop_tables(self) -> None:
        """A given database is left without tables of ours; one that does not answer any more keeps them."""
        with suppress(psycopg.Error):
            for what in self._touched:
                self.sql(TABLES[what].drop)

    def address(self, user: str = "", tls: bool = False) -> pgbench.Target:
        """Where and how clients reach PostgreSQL directly."""
        mode = ("verify-ca" if self.own else "require") if tls else "disable"
        environment = {"PGSSLMODE": mode, "PGPASSWORD": self.password_of(user or self.superuser)}
        if self.own and tls:
            environment["PGSSLROOTCERT"] = f"{self.tls_folder}/ca.crt"
        return pgbench.Target(self.host, self.port, user or self.superuser, self.dbname, tuple(environment.items()))

    def password_of(self, user: str) -> str:
        """The password of a role of the stand; empty when it has none."""
        return PASSWORD if user == SCRAM_USER else self.password

    @contextmanager
    def standby(self) -> Iterator[Cluster]:
        """A standby of a server that the kit runs; NotHere for a given one."""
        if self.cluster is None:
            raise NotHere("a standby is made only of a PostgreSQL that the kit runs")
        with Standby(self.cluster) as follower:
            yield follower


def shown(value: object) -> str:
    """A value as psql's unaligned output has it."""
    if value is None:
        return ""
    return {True: "t", False: "f"}[value] if isinstance(value, bool) else str(value)
