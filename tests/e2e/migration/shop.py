"""The clients of a web shop: a Django application, its workers and reports, and the operator's day."""

from __future__ import annotations

import select
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from tests.e2e import scenario
from tests.e2e.conftest import until
from tests.e2e.migration import console
from tests.e2e.migration.site import HOST, Site, chapter
from tests.e2e.migration.transcript import Transcript
from tests.support.fakeclient import FakeClient
from tests.support.postgres import Postgres

WEB = ("web", "web-secret")
WORKER = ("worker", "worker-secret")
DBA = ("dba", "dba-secret")
MONITOR = ("monitor", "monitor-secret")
ROLES = dict([WEB, WORKER, DBA, ("reporting", "reporting-secret"), ("pooler_auth", "pooler-auth-secret")])
LOOKUP = """
create function pooler.user_lookup(name text, out uname text, out phash text) returns record
language sql security definer set search_path = pg_catalog as
$$ select rolname::text, case when rolvaliduntil < now() then null else rolpassword end
   from pg_authid where rolname = name and rolcanlogin $$
"""


def prepare(pg: Postgres) -> dict[str, str]:
    """Roles, the database and what lies in it; the facts that the files need."""
    with pg.connect() as conn:
        for name, password in {**ROLES, "expired": "expired-secret"}.items():
            conn.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), password))
        conn.execute("alter role expired valid until '2020-01-01'")
        conn.execute("alter role web set deadlock_timeout = '50ms'")
        conn.execute("create database shop owner web")
        secret = conn.execute("select rolpassword from pg_authid where rolname = 'dba'").fetchone()
    with pg.connect("shop") as conn:
        conn.execute("create schema pooler")
        conn.execute("grant usage on schema pooler to pooler_auth")
        conn.execute(LOOKUP)
        conn.execute("grant all on schema public to public")
        conn.execute("create table orders (id int primary key, state text, amount numeric)")
        conn.execute("insert into orders select i, 'new', i * 10 from generate_series(1, 200) i")
        conn.execute("alter table orders owner to web")
        conn.execute("grant all on orders to public")
    assert secret is not None
    return {"DBA_SECRET": secret[0]}


def run(site: Site) -> Transcript:
    """The whole day, from the start of the service to its end."""
    site.install()
    with chapter(site, "start"):
        site.start(daemon=True)
        site.watch(*DBA)
        for name in ("VERSION", "STATE", "DATABASES", "POOLS", "LISTS"):
            console.told(site, f"SHOW {name}")
    for title, work in CHAPTERS.items():
        with chapter(site, title):
            work(site)
    with chapter(site, "reload"):
        reload(site)
    with chapter(site, "signals"):
        signals(site)
    site.out.chapter("end")
    end(site)
    return site.out.finish()


# -- the application

LOGINS = (
    (*WEB, "shop"), ("web", "wrong", "shop"), ("nobody", "x", "shop"), ("expired", "expired-secret", "shop"),
    ("web", "", "shop"), (*WEB, "nowhere"), (*WEB, "pgbouncer"), ("monitor", "wrong", "pgbouncer"),
    (*MONITOR, "pgbouncer"), (*DBA, "shop"), ("pooler_auth", "pooler-auth-secret", "shop"),
    (*WORKER, "shop_worker"), (*WORKER, "shop_reports"), (*WEB, "legacy"), ("deploy", "deploy-secret", "shop"),
)  # fmt: skip
WAYS: tuple[dict[str, Any], ...] = (
    {"sslmode": "require"}, {"options": "-c statement_timeout=5s"}, {"host": "localhost"}, {"host": "$FOLDER"},
    {"replication": "database"}, {"channel_binding": "require"},
)  # fmt: skip


def logins(site: Site) -> None:
    """Who gets in, and what the others hear."""
    out = site.out
    for user, password, dbname in LOGINS:
        text = "show version" if dbname == "pgbouncer" else "select current_user, current_database()"
        out.attempt(f"{user}/{password} to {dbname}", partial(site.once, text, dbname, user, password))
    asked = "select current_user, current_setting('statement_timeout')"
    for way in WAYS:
        more = {"host": str(site.folder)} if way == {"host": "$FOLDER"} else way
        out.attempt(f"web with {way}", partial(site.once, asked, "shop", *WEB, **more))
    with FakeClient((HOST, site.port)) as client:
        out.attempt("nobody at all", lambda: client.login("", "shop"))
    with FakeClient((HOST, site.port)) as client:
        client.login(WEB[0], "shop", WEB[1], application_name="raw", TimeZone="Asia/Tokyo", DateStyle="German")
        for name, text in client.parameters.items():
            out.say("parameter", name, text)


def django(site: Site) -> None:
    """What Django does with each connection, and what a view does with the database."""
    out = site.out
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(site.connect("shop", *WEB, application_name="gunicorn", client_encoding="UTF8"))
            for _ in range(2)
        )
        zone = "select set_config('TimeZone', %s, false)"
        first.execute(zone, ("Europe/Berlin",))
        second.execute(zone, ("UTC",))
        asked = "select current_setting('TimeZone'), current_setting('application_name'), count(*) from orders"
        for _ in range(3):
            for conn in (first, second):
                out.say("settings", conn.execute(asked).fetchone())
        with first.transaction():
            first.execute("update orders set state = 'paid' where id = %s", (1,))
            out.attempt("inner block", lambda: broken_block(first))
            out.say("after it", first.execute("select state from orders where id < 3 order by id").fetchall())
        out.attempt("duplicate", lambda: first.execute("insert into orders values (1, 'again', 0)"))
        out.attempt("syntax", lambda: first.execute("selec 1"))
        with first.transaction(), first.cursor("chunks") as cursor:
            cursor.itersize = 20
            cursor.execute("select id from orders order by id")
            out.say("server-side cursor", sum(row[0] for row in cursor))
        out.say("isolation", isolated(first))
        out.say("encoding", first.info.encoding, first.info.parameter_status("client_encoding"))
        first.execute("update orders set state = 'new'")


def broken_block(conn: psycopg.Connection[Any]) -> None:
    """An atomic block inside another that fails."""
    with conn.transaction():
        conn.execute("update orders set state = 'lost'")
        conn.execute("select 1/0")


def isolated(conn: psycopg.Connection[Any]) -> object:
    """A block at another level."""
    with conn.transaction():
        conn.execute("set transaction isolation level repeatable read, read only")
        return conn.execute("show transaction_isolation").fetchone()


def statements(site: Site) -> None:
    """Prepared statements: those of the driver, those of SQL, more than the pooler keeps."""
    out = site.out
    with site.connect("shop", *WEB) as conn:
        for number in range(8):  # from the fifth on psycopg prepares
            out.say("order", conn.execute("select amount from orders where id = %s", (number + 1,)).fetchone())
        for number in range(45):
            conn.execute(f"select {number} + %s::int".encode(), (1,), prepare=True)
        out.say("again", conn.execute("select 3 + %s::int", (1,), prepare=True).fetchone())
        conn.execute("prepare by_hand as select 1")
        out.attempt("execute", lambda: conn.execute("execute by_hand").fetchone())
        conn.execute("deallocate by_hand")
        out.attempt("gone", lambda: conn.execute("execute by_hand"))
        conn.execute("alter table orders add column note text")
        out.attempt("after a change", lambda: conn.execute("select amount from orders where id = %s", (1,)).fetchone())
        conn.execute("alter table orders drop column note")
    for name in ("asyncpg", "pg8000", "psycopg pipeline", "psycopg async", "psycopg"):
        target = scenario.Target(HOST, site.port, *WEB, dbname="shop")
        for line in scenario.SCRIPTS[name](target):
            out.say(name, line)


def session_things(site: Site) -> None:
    """LISTEN, advisory locks, temporary tables: in the pool of sessions, where they work, and what they need not be."""
    out = site.out
    with site.connect("shop_migrate", *WEB) as conn, site.connect("shop", *WEB) as other:
        out.say("lock", conn.execute("select pg_advisory_lock(42)").fetchone())
        out.say("taken", other.execute("select pg_try_advisory_lock(42)").fetchone())
        conn.execute("create temporary table basket as select 1 as id")
        out.say("temporary", conn.execute("select count(*) from basket").fetchone())
        conn.execute("set work_mem = '1MB'")
        conn.execute("listen orders")
        other.execute("notify orders, 'paid'")
        out.say("heard", [(n.channel, n.payload) for n in conn.notifies(timeout=5, stop_after=1)])
        held = conn.cursor()
        held.execute("declare pages cursor with hold for select id from orders order by id")
        out.say("page", held.execute("fetch 3 from pages").fetchall())
    with site.connect("shop_migrate", *WEB) as conn:
        out.say(
            "new session",
            conn.execute("show work_mem").fetchone(),
            conn.execute("select pg_listening_channels()").fetchall(),
        )
        out.attempt("its table", lambda: conn.execute("select * from basket"))
        out.say("free", conn.execute("select pg_try_advisory_lock(42), pg_advisory_unlock(42)").fetchone())
    with site.connect("shop", *WEB) as conn:
        out.attempt("listen by transaction", lambda: conn.execute("listen orders").statusmessage)
        out.attempt("unlisten", lambda: conn.execute("unlisten *").statusmessage)
        with conn.transaction():
            out.say("lock of a transaction", conn.execute("select pg_try_advisory_xact_lock(7)").fetchone())


def deadlock(site: Site) -> None:
    """Two requests lock each other out; the one that fails tries again, as a decorator of the shop does."""
    barrier = threading.Barrier(2, timeout=20)
    failures: list[str | None] = []

    def request(first: int, second: int) -> None:
        meet = True
        with site.connect("shop", *WEB) as conn:
            while True:
                try:
                    with conn.transaction():
                        conn.execute("update orders set amount = amount + 1 where id = %s", (first,))
                        if meet:
                            barrier.wait()
                        conn.execute("update orders set amount = amount + 1 where id = %s", (second,))
                    return
                except psycopg.errors.DeadlockDetected as error:
                    failures.append(error.sqlstate)
                    meet = False

    both = [threading.Thread(target=request, args=pair) for pair in ((10, 11), (11, 10))]
    for each in both:
        each.start()
    for each in both:
        each.join()
    asked = "select amount from orders where id in (10, 11) order by id"
    site.out.say("deadlocks", set(failures), "amounts", site.once(asked, "shop", *WEB))
    site.once("update orders set amount = id * 10", "shop", *WEB)


def cancels(site: Site) -> None:
    """A view that is given up; queries that take too long; a transaction that is forgotten."""
    out = site.out
    with site.connect("shop", *WEB) as conn:
        timer = threading.Timer(0.2, lambda: conn.cancel_safe(timeout=10))
        timer.start()
        out.attempt("given up", lambda: conn.execute("select pg_sleep(20)"))
        timer.join()
        out.say("goes on", conn.execute("select 1").fetchone())
    with site.connect("shop_reports", *WORKER) as conn:
        out.say("report", conn.execute("select current_user, current_setting('TimeZone')").fetchone())
        out.attempt("writing", lambda: conn.execute("update orders set amount = 0"))
        out.attempt("long report", lambda: conn.execute("select pg_sleep(20)"))
    with site.connect("shop_worker", *WORKER) as conn:
        conn.execute("begin")
        out.attempt("forgotten", lambda: forgotten(conn))


def forgotten(conn: psycopg.Connection[Any]) -> object:
    """A transaction that its client comes back to when it is too late."""
    until(lambda: conn.pgconn.socket >= 0 and readable(conn), "the pooler's word")
    return conn.execute("select 1")


def readable(conn: psycopg.Connection[Any]) -> bool:
    """Whether something has come."""
    return bool(select.select([conn.pgconn.socket], [], [], 0)[0])


def limits(site: Site) -> None:
    """All that is limited in these files, one client more than is allowed each time."""
    out = site.out
    console.fresh(site)
    with ExitStack() as stack:

        def enter(dbname: str, user: tuple[str, str]) -> psycopg.Connection[Any]:
            return stack.enter_context(site.connect(dbname, *user))

        for _ in range(3):
            enter("shop_worker", WORKER)
        out.attempt("fourth worker", lambda: enter("shop_worker", WORKER))
        first, second, third = (enter("shop_worker", WEB) for _ in range(3))
        out.say("the only one", first.execute("begin").statusmessage)
        out.say("out of the reserve", second.execute("begin").statusmessage)
        out.attempt("waits in vain", lambda: third.execute("select 1"))
        out.say("and then", second.execute("commit").statusmessage, first.execute("commit").statusmessage)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(site.connect("shop_reports", *WEB))
        out.attempt("third report", lambda: site.connect("shop_reports", *WEB))
    with ExitStack() as stack:
        for _ in range(39):
            stack.enter_context(site.connect("shop", *WEB))
        out.attempt("one too many", lambda: site.connect("shop", *WEB))
        console.told(site, "SHOW LISTS")


def scripts(site: Site) -> None:
    """psql from cron, pgbench before the sale."""
    out = site.out
    target = site.dsn("shop", *WEB)
    site.psql(target, PSQL, "-a")
    site.psql(target, "select 1/0; select 2;", "-v", "ON_ERROR_STOP=1", "-At")
    site.psql(site.dsn("shop", "web", "wrong"), "select 1")
    site.psql(
        f"host={site.folder} port={site.port} user=pgbouncer dbname=pgbouncer", "show version;", "-At", as_account=True
    )
    site.psql(site.dsn("pgbouncer", *MONITOR), "show databases; \\echo done\npause;", "-At")
    out.say("")


PSQL = r"""
\set VERBOSITY verbose
\conninfo
begin; select 1 as one; savepoint s; select 1/0; rollback to s; select 2 as two; commit;
select 1 as a \; select 2 as b;
\copy (select id from orders order by id limit 3) to stdout
prepare p as select $1::int + 1; execute p(1); deallocate p;
\d orders
"""


PAUSED = ("PAUSE shop", "PAUSE shop", "SHOW DATABASES", "SHOW POOLS")
RESUMED = (
    "RESUME shop", "PAUSE", "SHOW STATE", "PAUSE", "KILL shop", "RESUME", "RESUME", "RECONNECT", "RECONNECT shop",
    "WAIT_CLOSE shop", "WAIT_CLOSE", "DISABLE shop", "SHOW DATABASES",
)  # fmt: skip
MISTAKES = (
    "ENABLE shop", "ENABLE shop", "DISABLE nowhere", "DISABLE", "ENABLE pgbouncer", "PAUSE nowhere",
    "KILL_CLIENT 99999", "KILL_CLIENT x", "SHOW NOTHING", "SELECT 1", "SELECT version", "BEGIN", "SHOW HELP",
    "SET default_pool_size = 4", "SET nonsense = 1", "SET pool_mode = never", "SHOW datestyle",
    "SET client_encoding = 'UTF8'", "SUSPEND", "SHUTDOWN NOW", "RELOAD now", "SHOW FDS",
)  # fmt: skip


def operator(site: Site) -> None:
    """Maintenance with clients on line: every command, in the order in which one would use them."""
    out, told, everything = site.out, console.told, console.all_told
    console.fresh(site)
    with site.connect("shop", *WEB, application_name="gunicorn") as conn:
        conn.execute("select 1")
        console.tables(site)
        everything(site, PAUSED)
        resumed: list[object] = []
        waiting = threading.Thread(target=lambda: resumed.append(conn.execute("select 'resumed'").fetchone()))
        waiting.start()
        until(lambda: any(console.column(site, "SHOW POOLS", "cl_waiting")), "a waiting client")
        told(site, "SHOW CLIENTS")
        told(site, "RESUME shop")
        waiting.join()
        out.say(*resumed)
        everything(site, RESUMED)
        out.attempt("while disabled", lambda: site.once("select 1", "shop", *WEB))
        out.say("who is in", conn.execute("select 1").fetchone())
        everything(site, MISTAKES)
        (number,) = (row[-1] for row in site.console.execute("show clients").fetchall() if row[2] == "shop")
        tag = site.console.execute(f"KILL_CLIENT {number}".encode()).statusmessage
        out.attempt(f"{tag}: the client", lambda: conn.execute("select 1"))
    with site.connect("shop", *WEB) as conn:
        conn.execute("select 1")
        told(site, "KILL shop")
        out.attempt("after KILL", lambda: conn.execute("select 1"))
    told(site, "RESUME shop")
    out.say(site.once("select 'back'", "shop", *WEB))
    with site.connect("pgbouncer", *MONITOR) as session:
        for command in ("SHOW STATE", "PAUSE", "RELOAD", "KILL_CLIENT 1", "SET verbose = 2", "SHUTDOWN"):
            told(site, command, session)
    console.metrics(site, *MONITOR)


CHAPTERS: dict[str, Callable[[Site], None]] = {
    "logins": logins,
    "django": django,
    "statements": statements,
    "session things": session_things,
    "deadlock": deadlock,
    "cancels": cancels,
    "limits": limits,
    "scripts": scripts,
    "operator": operator,
}


# -- changes and the end


def reload(site: Site) -> None:
    """Files are edited: a new database, a new size, a new password, a line that goes, a mistake."""
    out, told = site.out, console.told
    with site.connect("legacy", *WEB) as conn:
        conn.execute("select 1")
        site.edit("databases.ini", "legacy = ", "modern = ")
        site.edit("pgbouncer.ini", "default_pool_size = 3", "default_pool_size = 5")
        site.edit("userlist.txt", "monitor-secret", "new-secret")
        told(site, "RELOAD")
        out.attempt("the old name", lambda: conn.execute("select 1"))
    out.attempt("and anew", lambda: site.once("select 1", "legacy", *WEB))
    out.attempt("the new name", lambda: site.once("select current_database()", "modern", *WEB))
    out.attempt("the old password", lambda: site.once("show version", "pgbouncer", *MONITOR))
    out.attempt("the new password", lambda: site.once("show version", "pgbouncer", "monitor", "new-secret"))
    told(site, "SHOW DATABASES")
    site.edit("pgbouncer.ini", "pool_mode = transaction", "pool_mode = transactions")
    told(site, "RELOAD")
    told(site, "SHOW DATABASES")
    out.attempt("goes on", lambda: site.once("select 1", "shop", *WEB))
    site.install()
    for command in ("RELOAD", "WAIT_CLOSE", "SHOW DATABASES"):
        told(site, command)


def signals(site: Site) -> None:
    """HUP after an edit, USR1 and USR2 around a restart of PostgreSQL."""
    out = site.out

    def answered(number: signal.Signals, line: str) -> None:
        site.signal(number)
        until(lambda: line in site.log.read_text()[site.log_seen :], line)
        out.say(number.name, line)

    site.edit("databases.ini", "shop_worker = ", "shop_tasks = ")
    answered(signal.SIGHUP, "got SIGHUP, re-reading config")
    until(
        lambda: any(row[0] == "shop_tasks" for row in site.console.execute("show databases").fetchall()), "the new name"
    )
    answered(signal.SIGUSR1, "got SIGUSR1, pausing all activity")
    until(lambda: ("paused", "yes") in site.console.execute("show state").fetchall(), "the pause")
    answered(signal.SIGUSR1, "got SIGUSR1, but already paused")
    answered(signal.SIGUSR2, "got SIGUSR2, continuing from PAUSE")
    until(lambda: ("paused", "no") in site.console.execute("show state").fetchall(), "its end")
    answered(signal.SIGUSR2, "got SIGUSR2, but not paused")
    out.say(site.once("select 'serves'", "shop", *WEB))


def end(site: Site) -> None:
    """TERM lets those who are in finish; nobody new comes in."""
    out, pid = site.out, site.pid
    with site.connect("shop", *WEB) as conn:
        conn.execute("begin")
        site.signal(signal.SIGTERM)
        until(lambda: not site.accepts_tcp(), "closed listeners")
        out.say("still here", conn.execute("select 1").fetchone(), conn.execute("commit").statusmessage)
        console.told(site, "SHOW STATE")
        console.told(site, "RESUME")
        out.attempt("by the socket", lambda: site.once("select 1", "shop", *WEB, host=str(site.folder)))
    site.console.close()
    site.ended(pid)
