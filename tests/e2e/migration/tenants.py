"""The clients of forty customers' databases behind one `*`, and who runs them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import asyncpg
import psycopg
from psycopg import sql

from pgshoal.auth.md5 import md5_secret
from tests.e2e.conftest import until
from tests.e2e.migration import console
from tests.e2e.migration.site import HOST, Site, chapter
from tests.e2e.migration.transcript import Transcript, error_text
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.postgres import Postgres

COUNT = 40
TENANTS = tuple(f"tenant_{number:02}" for number in range(1, COUNT + 1))
APP = ("app", "app-secret")
BATCH = ("batch", "batch-secret")
OPS = ("ops", "ops-secret")
TELEGRAF = ("telegraf", 'telegraf "quoted" secret')
BILLING = ("billing", "it's billing")


def prepare(pg: Postgres) -> dict[str, object]:
    """Roles and databases; the facts that the files need."""
    with pg.connect() as conn:
        for name, password in (APP, BATCH, BILLING):
            kind = "md5" if name == "app" else "scram-sha-256"
            conn.execute(sql.SQL("set password_encryption = {}").format(kind))
            conn.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), password))
        conn.execute("create database tenant_01")
    with pg.connect("tenant_01") as conn:
        conn.execute("create table notes (id serial, body text)")
        conn.execute("grant all on notes, notes_id_seq to public")
        conn.execute("grant all on schema public to public")
    with pg.connect() as conn:
        for name in TENANTS[1:]:
            conn.execute(
                sql.SQL("create database {} template tenant_01 strategy file_copy").format(sql.Identifier(name))
            )
        secret = conn.execute("select rolpassword from pg_authid where rolname = 'batch'").fetchone()
    assert secret is not None
    return {"PG_PORT": pg.port, "APP_SECRET": md5_secret(APP[1], APP[0]), "BATCH_SECRET": secret[0]}


def run(site: Site) -> Transcript:
    """From the start of the service to its end."""
    site.install()
    with chapter(site, "start"):
        site.start()
        site.watch(*OPS)
        until(lambda: "billing" in console.column(site, "SHOW SERVERS", "database"), "the one of min_pool_size")
        console.tables(site, ("VERSION", "STATE", "DATABASES", "USERS"))
    for title, work in CHAPTERS.items():
        with chapter(site, title):
            work(site)
    site.out.chapter("end")
    end(site)
    return site.out.finish()


def everybody(site: Site) -> None:
    """Each customer's database once, twice, and all at the same time as far as max_user_connections goes."""
    out = site.out
    asked = "select current_database(), current_user"
    for _ in range(2):
        for name in TENANTS:
            out.attempt(name, partial(site.once, asked, name, *APP))
    until(lambda: console.column(site, "SHOW SERVERS", "user").count(APP[0]) <= 12, "the limit of the user")
    with ExitStack() as stack:
        conns = [stack.enter_context(site.connect(name, *APP)) for name in TENANTS]
        for conn in conns[:12]:
            conn.execute("begin")
        out.say("twelve at work", [conn.execute("select 1").fetchone() for conn in conns[:12]])
        for conn in conns[:12]:
            conn.execute("commit")
        out.say("the others", [conn.execute("select current_database()").fetchone() for conn in conns[12:]])
        out.say("pools", sorted(row[:3] for row in site.console.execute("show pools").fetchall()))


LOGINS = (
    (*APP, "old-name"), (*APP, "billing"), (*BATCH, "tenant_05"), ("app", "wrong", "tenant_05"),
    ("batch", "wrong", "tenant_05"), ("nobody", "x", "tenant_05"), ("retired", "", "tenant_05"),
    ("retired", "x", "tenant_05"), (*APP, "tenant_99"), ("app", "wrong", "tenant_98"), (*APP, "template1"),
    (*TELEGRAF, "pgbouncer"), (*APP, "pgbouncer"), (*OPS, "tenant_05"),
    ("app", md5_secret(APP[1], APP[0]), "tenant_05"), (*APP, "x" * 64), (*APP, "with space"), (*APP, "Tenant_05"),
    ("a" * 130, "x", "tenant_05"),
)  # fmt: skip
OPTIONS = ("-c IntervalStyle=iso_8601", "-c work_mem=1MB", "-d", "-c statement_timeout=4321")


def logins(site: Site) -> None:
    """Names and passwords, right and wrong."""
    out = site.out
    for user, password, dbname in LOGINS:
        text = "show version" if dbname == "pgbouncer" else "select current_user, current_database()"
        out.attempt(f"{user}/{password} to {dbname}", partial(site.once, text, dbname, user, password))
    with site.connect("tenant_05", *APP) as conn:
        out.say("backend", conn.execute("select current_setting('server_version_num')").fetchone())
    with FakeClient((HOST, site.port)) as client:
        (notice,) = (each for each in client.login(APP[0], "tenant_05", APP[1]) if each.kind == "N")
        out.say("notice", sorted(m.error_fields(notice.payload).items()))
    asked = "select current_setting('IntervalStyle'), current_setting('statement_timeout')"
    for options in OPTIONS:
        for _ in range(2):
            out.attempt(options, partial(site.once, asked, "tenant_06", *APP, options=options))
    out.say("the next one", site.once(asked, "tenant_06", *APP))


def work(site: Site) -> None:
    """What the application does, by asyncpg; the nightly batch with its session; pgbench on the biggest customer."""
    out = site.out
    for line in asyncio.run(asynchronous(site)):
        out.say(line)
    with site.connect("tenant_07", *BATCH) as conn:
        conn.execute("create temporary table step as select 1 as id")
        conn.execute("set statement_timeout = '5s'")
        out.say(
            "batch",
            conn.execute("select count(*) from step").fetchone(),
            conn.execute("show statement_timeout").fetchone(),
        )
        out.attempt("second batch", lambda: site.once("select 2", "tenant_08", *BATCH))
        with site.connect("tenant_08", *BATCH):
            out.attempt("third batch", lambda: site.once("select 3", "tenant_09", *BATCH))
    with site.connect("tenant_02", *APP) as conn:
        conn.execute("select 1")
        out.attempt("session taken", lambda: site.once("select 1", "tenant_02", *APP))
    out.attempt("session free", lambda: site.once("select 1", "tenant_02", *APP))
    bench(site)


async def asynchronous(site: Site) -> list[object]:
    """A pool of asyncpg without its cache of statements, as behind a pooler of old."""
    heard: list[object] = []
    user, password = APP
    pool = asyncpg.create_pool(
        host=HOST, port=site.port, user=user, password=password, database="tenant_10", ssl=False,
        statement_cache_size=0, min_size=1, max_size=3, server_settings={"application_name": "api"},
    )  # fmt: skip
    async with pool:
        for number in range(5):
            heard.append(await pool.fetchval("insert into notes (body) values ($1) returning body", f"note {number}"))
        async with pool.acquire() as conn, conn.transaction():
            heard.append([row["body"] async for row in conn.cursor("select body from notes order by id")])
        for text in ("select 1/0", "select nothing", "insert into nowhere values (1)"):
            try:
                await pool.fetch(text)
            except asyncpg.PostgresError as error:
                heard.append(error_text(error))
        heard.append(await pool.execute("truncate notes"))
        heard.append(await pool.fetchval("show application_name"))
    return heard


def bench(site: Site) -> None:
    """pgbench in two modes; of its report, what does not depend on the machine."""
    script = site.folder / "notes.sql"
    script.write_text("begin;\ninsert into notes (body) values (:client_id);\nselect count(*) from notes;\nend;\n")
    for mode in ("simple", "extended"):
        argv = [
            "pgbench",
            "-n",
            "-M",
            mode,
            "-c",
            "4",
            "-j",
            "2",
            "-t",
            "25",
            "-f",
            script,
            site.dsn("tenant_01", *APP),
        ]
        done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=60, check=False)
        kept = [
            line for line in done.stdout.splitlines() if not line.startswith(("latency", "tps", "initial", "pgbench"))
        ]
        site.out.say("pgbench", done.returncode, *kept, sep="\n")
    site.out.say("notes", site.once("select count(*) from notes", "tenant_01", *APP))
    site.once("truncate notes", "tenant_01", *APP)


def at_rest(site: Site) -> bool:
    """Whether all servers wait for their next check, and databases of `*` that nobody uses are hidden."""
    moving = any(row["sv_idle"] or row["sv_tested"] for row in console.rows(site, "SHOW POOLS"))
    unused = {
        row["name"]
        for row in console.rows(site, "SHOW DATABASES")
        if not row["current_connections"] and not row["current_client_connections"]
    }
    return not moving and unused <= {"billing", "old-name", "tenant_01", "tenant_02"}


def watching(site: Site) -> None:
    """Tables as Telegraf and a person read them, with two customers at work."""
    with site.connect("tenant_01", *APP, application_name="api") as one, site.connect("tenant_11", *APP) as two:
        one.execute("begin")
        one.execute("select 1")
        two.execute("select 1")
        until(lambda: at_rest(site), "the end of the next round of checks")
        console.tables(site, ("CLIENTS", "USERS", "PEERS"))
        # Which of the customers' databases still have a server, and so are shown, is a matter of who was evicted last.
        console.metrics(site, *TELEGRAF, but=("LISTS", "DATABASES"))
        site.psql(site.dsn("pgbouncer", *TELEGRAF), "show pools;", "-A", "-F", ",", "-P", "footer=off")
        one.execute("commit")


MOVES = (
    "PAUSE tenant_12", "SHOW STATE", "RESUME tenant_12", "PAUSE tenant_77", "RESUME tenant_77", "DISABLE tenant_13",
    "ENABLE tenant_13", "RECONNECT tenant_12", "WAIT_CLOSE tenant_12", "KILL tenant_14", "DISABLE tenant_15",
)  # fmt: skip


def old_name(site: Site) -> str:
    """What a client hears that still has it: at its login, or at its first query where the pool is known."""
    try:
        return str(site.once("select current_database()", "old-name", *APP))
    except psycopg.Error as error:
        return str(error).strip().rpartition("FATAL:")[2].strip()


def maintenance(site: Site) -> None:
    """One customer is moved, another is shut out; the files change; mistakes are made and mended."""
    out, told = site.out, console.told
    with site.connect("tenant_12", *APP) as conn:
        conn.execute("select 1")
        console.all_told(site, MOVES)
        out.attempt("shut out", lambda: site.once("select 1", "tenant_15", *APP))
        told(site, "ENABLE tenant_15")
        told(site, "RESUME tenant_14")
        site.edit("pgbouncer.databases", "'old-name' = ", "new_name = ")
        site.edit("pgbouncer.users", "max_user_client_connections=2", "max_user_client_connections=3")
        site.edit("userlist.txt", '"retired" ""\n', "")
        told(site, "RELOAD")
        out.attempt("new name", lambda: site.once("select current_database()", "new_name", *APP))
        out.say("old name", old_name(site))
        out.attempt("retired", lambda: site.once("select 1", "tenant_05", "retired", "x"))
        out.say("users", *sorted(console.column(site, "SHOW USERS", "name")))
        site.edit("pgbouncer.ini", "default_pool_size = 2", "default_pool_size = many")
        told(site, "RELOAD")
        site.edit("pgbouncer.ini", "default_pool_size = many", "default_pool_size = 2\nnonsense = 1")
        told(site, "RELOAD")
        (site.folder / "pgbouncer.users").rename(site.folder / "lost")
        told(site, "RELOAD")
        site.install()
        told(site, "RELOAD")
        out.say("still here", conn.execute("select current_database()").fetchone())
        out.say("old name", old_name(site))


CHAPTERS: dict[str, Callable[[Site], None]] = {
    "everybody": everybody,
    "logins": logins,
    "work": work,
    "watching": watching,
    "maintenance": maintenance,
}


def end(site: Site) -> None:
    """The console asks for the end; who has a transaction may finish it, who waits is told."""
    out, pid = site.out, site.pid
    with site.connect("tenant_01", *APP) as busy, site.connect("tenant_20", *APP) as idle:
        busy.execute("begin")
        console.told(site, "SHUTDOWN WAIT_FOR_SERVERS")
        until(lambda: "yes" in console.column(site, "SHOW STATE", "value")[1:], "the pause in this worker")
        console.told(site, "SHOW STATE")
        out.attempt("idle one", lambda: idle.execute("select 1"))
        out.say("busy one", busy.execute("select 1").fetchone())
        busy.execute("commit")
        site.ended(pid)
    site.out.chapter("second start")
    site.start()
    site.watch(*OPS)
    until(lambda: "billing" in console.column(site, "SHOW SERVERS", "database"), "the one of min_pool_size")
    site.console.close()
    pid = site.pid
    with site.connect("tenant_01", *APP) as busy:
        busy.execute("begin")
        site.signal(signal.SIGINT)
        until(lambda: not site.accepts_tcp(), "closed listeners")
        site.signal(signal.SIGINT)
        site.ended(pid)
        out.attempt("cut off", lambda: busy.execute("select 1"))
