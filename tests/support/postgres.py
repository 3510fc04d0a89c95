"""Real PostgreSQL servers for tests: Debian's 15 (with TLS) and the embedded 18, with users for each kind of login."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from pgshoal.demo import programs
from pgshoal.demo.account import unprivileged
from pgshoal.demo.cluster import Cluster
from tests.support.certs import Authority

# One user per kind of login; `alice` and the superuser come in without a password.
PASSWORDS: Mapping[str, str] = {
    "alice": "alice-secret",
    "bob": "bob-secret",
    "plain_user": "plain-secret",
    "md5_user": "md5-secret",
    "scram_user": "scram-secret",
    "tls_user": "tls-secret",
}
DATABASES = ("app", "other")
HBA = (
    "local all all trust",
    "host all plain_user all password",
    "host all md5_user all md5",
    "host all scram_user all scram-sha-256",
    "host all all all trust",
)
HBA_TLS = (
    "local all all trust",
    "hostssl all tls_user all scram-sha-256",
    "hostnossl all tls_user all reject",
    *HBA[1:],
)


def system_programs(major: int) -> programs.Programs:
    """The wanted major version, or the newest the system has when it does not have that one."""
    try:
        return programs.system(major)
    except programs.ProgramsMissing:
        return programs.system()


class Postgres(Cluster):
    """A cluster with the test users and databases; `tls` only on servers built with it (15)."""

    def __init__(
        self,
        major: int,
        *,
        settings: Mapping[str, str] | None = None,
        hba: Sequence[str] | None = None,
        tls: Authority | None = None,
    ) -> None:
        account = unprivileged()
        super().__init__(
            programs.embedded(account) if major >= 18 else system_programs(major),
            settings,
            hba or (HBA_TLS if tls else HBA),
        )
        self.tls = tls
        self._filled = False

    def create(self) -> None:
        """Makes the cluster and puts the certificate where the server's account owns it."""
        super().create()
        if self.tls is None:
            return
        key = self.data / "server.key"
        self.write_owned(key, self.tls.server.key.read_text())
        self.settings.update(
            ssl="on", ssl_cert_file=str(self.tls.server.cert), ssl_key_file=str(key), ssl_ca_file=str(self.tls.ca_file)
        )

    def start(self) -> None:
        """Starts the server and makes sure users and databases are there."""
        super().start()
        if self._filled:
            return
        with self.connect() as conn:
            for user, password in PASSWORDS.items():
                conn.execute(
                    sql.SQL("set password_encryption = {}").format("md5" if user == "md5_user" else "scram-sha-256")
                )
                conn.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(user), password))
            for name in DATABASES:
                conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        for name in DATABASES:
            with self.connect(dbname=name) as conn:
                conn.execute("grant all on schema public to public")
        self._filled = True

    def dsn(self, dbname: str = "postgres", user: str | None = None, **more: Any) -> str:
        """A direct connection string, over TCP unless host is given."""
        facts = {"host": self.host, "port": self.port, "dbname": dbname, "user": user or self.superuser, **more}
        return psycopg.conninfo.make_conninfo("", **facts)

    def connect(self, dbname: str = "postgres", **more: Any) -> psycopg.Connection[Any]:
        """A direct autocommit connection as the superuser (or as user=)."""
        return psycopg.connect(self.dsn(dbname, **more), autocommit=True)

    def query(self, text: str, dbname: str = "postgres", **more: Any) -> list[Any]:
        """Runs one statement directly, past any pooler, and returns its rows."""
        with self.connect(dbname, **more) as conn:
            cursor = conn.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def reload(self) -> None:
        """Makes the server read its configuration again."""
        self.query("select pg_reload_conf()")
