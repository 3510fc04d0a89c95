"""The clients of a bank: services with certificates, auditors on replicas, operators by the Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from pgshoal.auth.md5 import md5_secret
from tests.e2e.conftest import until
from tests.e2e.migration import console
from tests.e2e.migration.site import HOST, Site, chapter
from tests.e2e.migration.transcript import Transcript
from tests.support.certs import Authority, Certificate
from tests.support.postgres import Postgres
from tests.support.standby import Standby

AUDITOR = ("auditor", "auditor-secret")
DBA = ("dba", "dba-secret")
NAGIOS = ("nagios", "nagios-secret")
REPLICATOR = ("replicator", "replicator-secret")
CONTRACTOR = ("contractor", "contractor-secret")
OWN_NAME = ("app", "app-secret")
ROLES = dict(
    [
        AUDITOR,
        DBA,
        NAGIOS,
        REPLICATOR,
        CONTRACTOR,
        OWN_NAME,
        ("payments", "payments-secret"),
        ("ledger", "ledger-secret"),
    ]
)
_SSL_REQUEST = bytes.fromhex("0000000804d2162f")


def prepare(pg: Postgres) -> dict[str, Any]:
    """Roles and tables; the facts that the files need."""
    with pg.connect() as conn:
        for name, password in ROLES.items():
            conn.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), password))
        conn.execute("alter role replicator replication")
        secret = conn.execute("select rolpassword from pg_authid where rolname = 'auditor'").fetchone()
    with pg.connect("app") as conn:
        conn.execute("create table payments (id serial primary key, amount numeric not null check (amount > 0))")
        conn.execute("alter table payments owner to payments")
        conn.execute("grant all on payments to public")
    assert secret is not None
    return {
        "PG_PORT": pg.port,
        "PG_SOCKETS": pg.socket_dir,
        "ACCOUNT": pg.account.name if pg.account else pwd.getpwuid(os.geteuid()).pw_name,
        "AUDITOR_SECRET": secret[0],
        "APP_MD5": md5_secret(OWN_NAME[1], OWN_NAME[0]).removeprefix("md5"),
    }


class Bank:
    """The bank's script, which needs certificates and the standby at hand."""

    def __init__(self, authority: Authority, standby: Standby) -> None:
        self.authority, self.standby = authority, standby
        names = {"pay1": "pay-1.svc", "pay2": "pay 2.svc", "ledger": "ledger", "thief": "dba"}
        self.pairs = {
            file_name: self._own(authority.issue(file_name, common_name=name)) for file_name, name in names.items()
        }
        self.pairs["foreign"] = self._own(Authority().issue("foreign", common_name="ledger"))
        self.renewed = authority.issue("renewed", "localhost", HOST)

    @staticmethod
    def _own(pair: Certificate) -> Certificate:
        """libpq wants its key for itself."""
        pair.key.chmod(0o600)
        return pair

    def how(self, pair: str = "") -> dict[str, Any]:
        """TLS, with a certificate of ours or without."""
        tls = {"host": "localhost", "hostaddr": HOST, "sslmode": "verify-full", "sslrootcert": self.authority.ca_file}
        files = self.pairs.get(pair)
        return {**tls, "sslcert": files.cert if files else "/nowhere", "sslkey": files.key if files else "/nowhere"}

    def run(self, site: Site) -> Transcript:
        """From the start of the service to its ends."""
        self.put_certificate(site, self.authority.server)
        site.install()
        with chapter(site, "start"):
            site.start()
            site.watch(*DBA)
            console.tables(site, ("STATE", "DATABASES", "USERS"))
        chapters: dict[str, Callable[[Site], None]] = {
            "logins": self.logins,
            "payments": self.payments,
            "replicas": self.replicas,
            "replication": self.replication,
            "checks": self.checks,
            "a replica is down": self.replica_down,
            "reloads": self.reloads,
        }
        for title, work in chapters.items():
            with chapter(site, title):
                work(site)
        site.out.chapter("end")
        end(site)
        return site.out.finish()

    @staticmethod
    def put_certificate(site: Site, pair: Certificate) -> None:
        """As a client of an authority does when it renews one."""
        for source, target in ((pair.cert, "server.crt"), (pair.key, "server.key")):
            shutil.copyfile(source, site.folder / target)
            if site.run.account is not None:
                site.run.account.own(site.folder / target)

    def logins(self, site: Site) -> None:
        """Each line of the hba file, and what falls between them."""
        plain: dict[str, Any] = {}
        cases: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
            ("payments", "", "app", self.how("pay1")), ("payments", "", "app_batch", self.how("pay2")),
            ("payments", "", "app", self.how("ledger")), ("payments", "payments-secret", "app", self.how()),
            ("payments", "payments-secret", "app", plain), ("payments", "", "app_ro", self.how("pay1")),
            ("ledger", "", "app", self.how("ledger")), ("ledger", "", "app_ro", self.how("ledger")),
            ("ledger", "", "app_replica", self.how("ledger")), ("ledger", "", "app", self.how("pay1")),
            ("ledger", "", "app", self.how("foreign")), ("nobody", "", "app", self.how("thief")),
            (*AUDITOR, "app_ro", self.how()), (*AUDITOR, "app_ro", plain), ("auditor", "wrong", "app_ro", self.how()),
            (*AUDITOR, "app", self.how()), (*AUDITOR, "app_replica", self.how()), (*AUDITOR, "auditor", self.how()),
            (*CONTRACTOR, "app", self.how()), ("intern", "x", "app", plain), (*OWN_NAME, "app", plain),
            ("app", "wrong", "app", plain), (*DBA, "app_local", plain), (*DBA, "app", plain),
            (*DBA, "pgbouncer", self.how()), (*NAGIOS, "pgbouncer", plain), ("dba", "wrong", "pgbouncer", plain),
            ("nagios", "", "pgbouncer", {"host": str(site.folder)}), ("nagios", "", "app", {"host": str(site.folder)}),
            ("dba", "", "app", {"host": str(site.folder)}), ("payments", "", "app", {"host": str(site.folder)}),
        )  # fmt: skip
        for number, (user, password, dbname, more) in enumerate(cases):
            text = "show version" if dbname == "pgbouncer" else "select current_user, current_database()"
            what = f"{number} {user}/{password} to {dbname}"
            site.out.attempt(what, partial(site.once, text, dbname, user, password, **more))
        socket_dsn = f"host={site.folder} port={site.port} user=dba dbname="
        for dbname in ("pgbouncer", "app_local"):
            text = "show version" if dbname == "pgbouncer" else "select current_user"
            site.psql(socket_dsn + dbname, text, "-At", as_account=True)

    def payments(self, site: Site) -> None:
        """Money moves in transactions; constraints, two-phase commit and statement mode answer as PostgreSQL does."""
        out = site.out
        with site.connect("app", "payments", **self.how("pay1")) as conn:
            console.told(site, "SHOW CLIENTS")
            console.told(site, "SHOW SERVERS")
            with conn.transaction():
                conn.execute("insert into payments (amount) values (10), (20)")
            out.attempt("nothing", lambda: conn.execute("insert into payments (amount) values (0)"))
            out.attempt("no amount", lambda: conn.execute("insert into payments (amount) values (null)"))
            with conn.cursor().copy("copy payments (amount) from stdin") as copy:
                for amount in range(1, 2000):
                    copy.write_row((amount,))
            out.say("sum", conn.execute("select count(*), sum(amount) from payments").fetchone())
            out.attempt("two phases", lambda: conn.execute("prepare transaction 'x'"))
            out.say("bytes", len(fetched(conn, "select repeat('x', 3000000)")))
            conn.execute("truncate payments restart identity")
        with site.connect("app_batch", "payments", **self.how("pay2")) as conn:
            out.say("one statement", conn.execute("select 1").fetchone())
            out.attempt("a transaction", lambda: conn.execute("begin"))

    def replicas(self, site: Site) -> None:
        """Readers are spread over primary and standby; who writes there is refused by the server."""
        out = site.out
        asked = "select host(inet_server_addr()), pg_is_in_recovery()"
        with ExitStack() as stack:
            found = []
            for _ in range(4):
                conn = stack.enter_context(site.connect("app_ro", *AUDITOR, **self.how()))
                conn.execute("begin")
                found.append(conn.execute(asked).fetchone())
            out.say("round-robin", sorted(map(str, found)))
            console.told(site, "SHOW POOLS")
        with ExitStack() as stack:
            for _ in range(2):
                conn = stack.enter_context(site.connect("auditor", *AUDITOR, **self.how()))
                conn.execute("begin")
                out.say("the first of the list", conn.execute(asked).fetchone())
        with site.connect("app_replica", *AUDITOR, **self.how()) as conn:
            out.say("replica", conn.execute(asked).fetchone())
            out.attempt("writing", lambda: conn.execute("insert into payments (amount) values (1)"))
            out.attempt("a session's table", lambda: conn.execute("create temporary table t (id int)"))
            out.say("reported", conn.info.parameter_status("in_hot_standby"))

    def replication(self, site: Site) -> None:
        """The backup host comes by the pooler."""
        out = site.out
        for dbname, kind in (("app", "database"), ("app", "true"), ("app_ro", "database")):
            more = {**self.how(), "replication": kind}
            out.attempt(f"{dbname} {kind}", partial(identified, site, dbname, more))
        out.attempt("no keyword", lambda: site.once("select 1", "replication", *REPLICATOR, **self.how()))
        with site.connect("app", *REPLICATOR, **self.how(), replication="database") as conn:
            conn.execute("IDENTIFY_SYSTEM")
            console.told(site, "SHOW CLIENTS")
            console.told(site, "SHOW SERVERS")
            out.say("as SQL", conn.execute("select current_user").fetchone())

    def replica_down(self, site: Site) -> None:
        """The standby is restarted: its own readers are told, those of the list are served by the other."""
        out = site.out
        console.fresh(site)  # or what becomes of idle servers is chance
        self.standby.stop()
        console.told(site, "RECONNECT app_ro")
        with site.connect("app_ro", *AUDITOR, **self.how()) as conn:
            out.say("list", conn.execute("select pg_is_in_recovery()").fetchone())
        out.attempt("replica", lambda: site.once("select 1", "app_replica", *AUDITOR, **self.how()))
        self.standby.start()
        # What the first client hears triggers the next attempt; whether that is done for the second one is chance.
        out.attempt("the first", lambda: site.once("select 1", "app_replica", *AUDITOR, **self.how()))
        until(lambda: self.serves(site, "app_replica"), "the standby")
        out.say("back", site.once("select pg_is_in_recovery()", "app_replica", *AUDITOR, **self.how()))

    def serves(self, site: Site, dbname: str) -> bool:
        """Whether a query is answered."""
        try:
            site.once("select 1", dbname, *AUDITOR, **self.how())
        except psycopg.Error:
            return False
        return True

    def reloads(self, site: Site) -> None:
        """A certificate is renewed, another is lost; lines of the access files come and go."""
        out, told = site.out, console.told
        with site.connect("app", "ledger", **self.how("ledger")) as conn:
            out.say("certificate", self.shown(site))
            self.put_certificate(site, self.renewed)
            told(site, "RELOAD")
            out.say("certificate", self.shown(site), conn.execute("select 1").fetchone())
            site.edit("pg_hba.conf", 'hostssl   app,"app_ro"    ledger', "hostssl   app             ledger")
            site.edit("pg_ident.conf", "services    pay-1.svc        payments\n", "")
            told(site, "RELOAD")
            out.attempt("no longer there", lambda: site.once("select 1", "app_ro", "ledger", **self.how("ledger")))
            out.attempt("off the map", lambda: site.once("select 1", "app", "payments", **self.how("pay1")))
            (site.folder / "server.crt").unlink()
            told(site, "RELOAD")
            out.say("certificate", self.shown(site), conn.execute("select 1").fetchone())
            self.put_certificate(site, self.authority.server)
            site.install()
            told(site, "RELOAD")
            out.say("certificate", self.shown(site))
            console.all_told(site, ("SET server_tls_sslmode = 'disable'", "WAIT_CLOSE", "RELOAD", "WAIT_CLOSE"))
            out.say("goes on", conn.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone())

    def shown(self, site: Site) -> str:
        """Which certificate a client is shown."""
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        with socket.create_connection((HOST, site.port), 10) as plain:
            plain.sendall(_SSL_REQUEST)
            assert plain.recv(1) == b"S"
            with context.wrap_socket(plain, server_hostname="localhost") as inside:
                found = inside.getpeercert(binary_form=True)
                with suppress(OSError):  # not everybody says goodbye
                    inside.unwrap()
        for name, pair in (("first", self.authority.server), ("renewed", self.renewed)):
            if found == ssl.PEM_cert_to_DER_cert(
                pair.cert.read_text().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----"
            ):
                return name
        return "unknown"

    def checks(self, site: Site) -> None:
        """What the monitoring asks, by the Unix socket and by TCP."""
        target = f"host={site.folder} port={site.port} user=nagios dbname=pgbouncer"
        site.psql(target, "show pools;\nshow databases;\nshow peers;\nreload;", "-A", "-t", "-F", "|")
        console.metrics(site, *NAGIOS)


def fetched(conn: psycopg.Connection[Any], text: str) -> str:
    """One value."""
    row = conn.execute(text.encode()).fetchone()
    assert row is not None
    return str(row[0])


def identified(site: Site, dbname: str, more: dict[str, Any]) -> object:
    """What a replication client learns, but for positions."""
    with site.connect(dbname, *REPLICATOR, **more) as conn:
        cursor = conn.execute("IDENTIFY_SYSTEM")
        row = cursor.fetchone()
        assert row is not None
        return [column.name for column in cursor.description or ()], row[1], row[3]


def end(site: Site) -> None:
    """TERM twice, QUIT, and the console's SHUTDOWN."""
    pid = site.pid
    with site.connect("app_local", *DBA) as conn:
        conn.execute("begin")
        site.signal(signal.SIGTERM)
        until(lambda: not site.accepts_tcp(), "closed listeners")
        site.signal(signal.SIGTERM)
        site.ended(pid)
        site.out.attempt("cut off", lambda: conn.execute("select 1"))
    site.out.chapter("QUIT")
    site.start()
    pid = site.pid
    site.signal(signal.SIGQUIT)
    site.ended(pid)
    site.out.chapter("SHUTDOWN")
    site.start()
    pid = site.pid
    with site.connect("pgbouncer", *DBA) as session:
        console.told(site, "SHUTDOWN", session)
    site.ended(pid)
