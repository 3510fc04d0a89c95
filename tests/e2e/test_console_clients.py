"""Drivers and metrics agents on the console of a fleet, by the extended query protocol and by the simple one."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pg8000.dbapi
import pg8000.native
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.console.test_extended import bind, kinds
from tests.console.test_rows import COLUMNS, spelled
from tests.e2e.conftest import until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

JDBC_JAR = Path("/usr/share/java/postgresql.jar")
HERE = Path(__file__).parent
TYPES = {25: str, 23: int, 20: int, 1700: Decimal}
PASSWORD = "any"  # the console trusts
Session = Any  # a connection of asyncpg, whose annotations say less than its documentation


@pytest.fixture(scope="module")
def pooler(pg15: Postgres, engine: str) -> Iterator[Pooler]:
    """A fleet of two workers, each with something to show."""
    settings: dict[str, Any] = {"engine": engine, "workers": 2, "pool_mode": "transaction"}
    with Pooler({"app": database(pg15)}, ignore_startup_parameters="extra_float_digits", **settings) as running:
        for _ in range(4):
            running.query("select 1")
        yield running


def login(pooler: Pooler, user: str = "admin") -> dict[str, Any]:
    """What drivers other than libpq take."""
    return {
        "host": pooler.host,
        "port": pooler.port,
        "user": user,
        "password": PASSWORD,
        "database": "pgbouncer",
    }


def console(pooler: Pooler, **more: Any) -> psycopg.Connection[dict[str, Any]]:
    """A session of psycopg."""
    dsn = pooler.dsn("pgbouncer", "admin", connect_timeout=20)
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row, **more)


def with_asyncpg(pooler: Pooler, story: Callable[[Session], Awaitable[None]], **more: Any) -> None:
    """Runs a story on a connection of asyncpg."""

    async def main() -> None:
        conn = await asyncpg.connect(**login(pooler), ssl=False, timeout=20, **more)
        try:
            await story(conn)
        finally:
            await conn.close(timeout=10)

    asyncio.run(main())


# -- asyncpg, which takes binary values


def test_asyncpg_reads_every_table(pooler: Pooler) -> None:
    """With PgBouncer's columns, each value of its column's type."""

    async def story(conn: Session) -> None:
        for item, columns in COLUMNS.items():
            rows = await conn.fetch(f"SHOW {item}")
            prepared = await conn.prepare(f"SHOW {item};")
            wanted = [(name, oid) for name, oid in spelled(columns)]
            assert [(one.name, one.type.oid) for one in prepared.get_attributes()] == wanted
            for row in rows:
                for (name, oid), value in zip(wanted, row.values(), strict=True):
                    assert value is None or type(value) is TYPES[oid], (item, name, value)
        assert await conn.fetchval("SHOW VERSION") == "PgBouncer 1.26.1"
        assert (await conn.fetchrow("SHOW LISTS"))["items"] == 2
        assert [row["database"] for row in await conn.fetch("SHOW POOLS")] == ["app", "pgbouncer"]

    with_asyncpg(pooler, story)


def test_asyncpg_prepares_and_closes(pooler: Pooler) -> None:
    """A small cache of statements, which closes what falls out of it; commands; errors in between."""

    async def story(conn: Session) -> None:
        prepared = await conn.prepare("SHOW STATE")
        for _ in range(3):
            for item in COLUMNS:
                await conn.fetch(f"SHOW {item}")
            assert [tuple(row) for row in await prepared.fetch()] == [("active", "yes"), ("paused", "no")]
        assert await prepared.fetchrow() == ("active", "yes")
        for text in ("SELECT 1", "SHOW nix", "KILL nix", "BEGIN"):
            with pytest.raises(asyncpg.ProtocolViolationError):
                await conn.fetch(text)
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="parameters are not supported by admin console"):
            await conn.fetch("KILL_CLIENT $1", 5)
        assert (await conn.fetch("PAUSE app"), await conn.fetch("RESUME app")) == ([], [])
        assert await conn.execute("RELOAD") == "RELOAD"

    with_asyncpg(pooler, story, statement_cache_size=3)


def test_asyncpg_gives_up_a_command_that_waits(pooler: Pooler) -> None:
    """Its timeout cancels the PAUSE, which is taken back; the session goes on."""

    async def story(conn: Session) -> None:
        with pooler.connect() as client, client.transaction():
            client.execute("select 1")
            with pytest.raises(TimeoutError):
                await conn.fetch("PAUSE app", timeout=0.3)
            assert await conn.fetchval("SHOW VERSION") == "PgBouncer 1.26.1"
        assert [row["paused"] for row in await conn.fetch("SHOW DATABASES") if row["name"] == "app"] == [0]

    with_asyncpg(pooler, story)


def test_a_pool_of_asyncpg(pooler: Pooler) -> None:
    """Its reset of a session that is given back is answered."""

    async def main() -> None:
        async with asyncpg.create_pool(**login(pooler, "stats"), ssl=False, min_size=1, max_size=3) as pool:
            answers = await asyncio.gather(*(pool.fetch("SHOW DATABASES") for _ in range(12)))
            assert {len(rows) for rows in answers} == {2}
        # Who only sends commands needs no reset.
        async with asyncpg.create_pool(**login(pooler), ssl=False, min_size=1, max_size=3, reset=kept) as pool:
            assert await asyncio.gather(*(pool.execute("RELOAD") for _ in range(5))) == ["RELOAD"] * 5

    async def kept(conn: Session) -> None:
        """Nothing has changed in a session of the console."""

    asyncio.run(main())


# -- psycopg


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_prepares(pooler: Pooler, binary: bool) -> None:
    """Prepared statements give what the simple protocol gives."""
    with console(pooler, prepare_threshold=0) as session, console(pooler) as plain:
        for item in COLUMNS:
            text = f"show {item}".encode()
            cursor = session.cursor(binary=binary)
            for _ in range(2):
                cursor.execute(text)
                simple = plain.execute(text)
                assert [(c.name, c.type_code) for c in cursor.description or ()] == [
                    (c.name, c.type_code) for c in simple.description or ()
                ]
                assert cursor.statusmessage == simple.statusmessage == "SHOW"
                found, wanted = cursor.fetchall(), simple.fetchall()
                if item in {"CONFIG", "DATABASES", "VERSION", "STATE"}:
                    assert found == wanted


def test_a_pipeline_of_psycopg(pooler: Pooler) -> None:
    """Many commands before a Sync; an error ends those up to it, and no more."""
    with console(pooler) as session:
        with session.pipeline():
            cursors = [session.execute(f"show {item}".encode()) for _ in range(20) for item in ("version", "totals")]
        assert [len(cursor.fetchall()) for cursor in cursors] == [1, 24] * 20
        with pytest.raises(psycopg.Error, match="invalid command 'show nix'"):
            wrong_in_the_middle(session)
        assert session.execute("show state").fetchall()[1] == {"key": "paused", "value": "no"}
        assert session.execute("resume app").statusmessage == "RESUME"


def wrong_in_the_middle(session: psycopg.Connection[Any]) -> None:
    """A pipeline whose last command must not run."""
    with session.pipeline() as pipeline:
        session.execute("pause app")
        session.execute("show nix")
        session.execute("pause")
        pipeline.sync()


# -- pg8000 and JDBC


def test_pg8000(pooler: Pooler) -> None:
    """Its prepared statements."""
    given = login(pooler)
    conn = pg8000.native.Connection(**given)
    try:
        prepared = conn.prepare("show databases")
        for _ in range(2):
            assert [row[0] for row in prepared.run()] == ["app", "pgbouncer"]
        assert [column["name"] for column in prepared.columns or ()][:2] == ["name", "host"]
        prepared.close()
        with pytest.raises(pg8000.native.DatabaseError, match="invalid command"):
            conn.prepare("select 1")
        with pytest.raises(pg8000.native.DatabaseError, match="parameters are not supported"):
            conn.run("show :what", what="pools")
        assert conn.run("show version") == [["PgBouncer 1.26.1"]]
    finally:
        conn.close()


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Java program, compiled."""
    assert JDBC_JAR.exists(), "install libpostgresql-jdbc-java"
    folder = tmp_path_factory.mktemp("classes")
    argv = ["javac", "-cp", str(JDBC_JAR), "-d", str(folder), str(HERE / "ConsoleJdbc.java")]
    subprocess.run(argv, check=True, timeout=120)
    return folder


def test_jdbc(pooler: Pooler, classes: Path) -> None:
    """Prints the same in all query modes; by the extended protocol, checks of a connection and batches work, too."""

    def run(mode: str) -> str:
        url = f"jdbc:postgresql://{pooler.host}:{pooler.port}/pgbouncer"
        argv = ["java", "-cp", f"{classes}:{JDBC_JAR}", "ConsoleJdbc", url, "admin", PASSWORD, mode]
        items = ["CONFIG", "PEERS", "VERSION", "STATE", "DNS_ZONES"]  # nothing that counts those who come and go
        done = subprocess.run([*argv, *items], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    simple = run("simple")
    assert "08P01 ERROR: invalid command 'SHOW nix', use SHOW HELP;" in simple
    for mode in ("extended", "extendedCacheEverything"):
        seen = run(mode)
        assert seen.startswith(simple)
        assert seen[len(simple) :].splitlines() == [
            "valid true",
            "isolation 2",
            "one of two version:text",
            "  PgBouncer 1.26.1",
            "one of two key:text value:text",
            "  active yes",
            "  paused no",
            "batch 2",
            "0A000 ERROR: parameters are not supported by admin console",
            "valid true",
        ]


# -- the Prometheus exporter

#: What it asks for, and the columns its metrics are made of.
EXPORTED = {
    "SHOW STATS": """database total_query_count total_query_time total_received total_sent total_wait_time
 total_xact_count total_xact_time total_client_parse_count total_server_parse_count total_bind_count
 total_server_assignment_count""",
    "SHOW POOLS": """database user cl_active cl_active_cancel_req cl_waiting cl_waiting_cancel_req sv_active
 sv_active_cancel sv_being_canceled sv_idle sv_login sv_tested sv_used maxwait maxwait_us pool_mode""",
    "SHOW DATABASES": """name host port database force_user pool_size reserve_pool_size min_pool_size pool_mode
 max_connections current_connections max_client_connections current_client_connections paused disabled""",
    "SHOW LISTS": "list items",
    "SHOW CONFIG": "key value",
    "SHOW VERSION": "version",
}


def simple(text: str) -> bytes:
    """How lib/pq sends a query without arguments."""
    return m.query(text)


def prepared(text: str) -> list[bytes]:
    """How lib/pq prepares a query, and how it then runs it."""
    return [m.parse("", text) + m.describe("S", "") + m.SYNC, m.bind("") + m.execute() + m.SYNC]


def test_the_exporter_finds_its_columns(pooler: Pooler) -> None:
    """By name, by either protocol, with the same rows where nothing changes."""
    for text, names in EXPORTED.items():
        with console(pooler) as session:
            plain = session.execute(text.encode() + b";").fetchall()
            extended = session.execute(text.encode(), prepare=True).fetchall()
        for rows in (plain, extended):
            assert set(names.split()) <= rows[0].keys()
        assert len(plain) == len(extended)
        if text == "SHOW LISTS":
            assert {"databases", "users", "pools", "free_clients", "used_clients", "login_clients"} < {
                row["list"] for row in plain
            }
        elif text == "SHOW CONFIG":
            assert {"max_client_conn", "max_user_connections"} < {row["key"] for row in plain}
        elif text == "SHOW VERSION":
            assert re.fullmatch(r"PgBouncer \d+\.\d+\.\d+", plain[0]["version"])
        elif text == "SHOW POOLS":
            assert {(row["database"], row["user"]) for row in plain} == {("app", "alice"), ("pgbouncer", "pgbouncer")}


def test_the_messages_of_the_go_driver(pooler: Pooler) -> None:
    """Either way it asks, the rows are the same."""
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("stats", "pgbouncer")
        for text in EXPORTED:
            plain = client.ask(simple(text))
            assert kinds(plain) == "T" + "D" * (len(plain) - 3) + "CZ"
            described, run = (client.ask(packet) for packet in prepared(text))
            assert kinds(described) == "1tTZ"
            assert described[2] == plain[0]
            assert kinds(run) == "2" + "D" * (len(plain) - 3) + "CZ"
            if text in {"SHOW CONFIG", "SHOW VERSION", "SHOW DATABASES"}:
                assert run[1:] == plain[1:]


# -- byte by byte


def test_a_pipeline_stands_while_a_command_waits(pooler: Pooler) -> None:
    """What was sent behind a PAUSE, its Sync too, is answered behind it and in order."""
    with FakeClient((pooler.host, pooler.port)) as client, pooler.connect() as other:
        client.login("admin", "pgbouncer")
        with other.transaction():
            other.execute("select 1")
            client.send(
                m.parse("", "pause app"), m.bind(""), m.execute(), m.SYNC,
                m.parse("", "show version"), bind("", codes=(1,)), m.execute(), m.SYNC,
                m.parse("", "show nix"), m.bind(""), m.SYNC, m.query("resume app"),
            )  # fmt: skip
            assert kinds(client.read_until("2")) == "12"
            assert client.silent_for(0.3)
        found = [one for _ in range(4) for one in client.read_until("Z")]
        assert kinds(found) == "CZ12DCZEZCZ"


def test_cut_at_every_byte(pooler: Pooler) -> None:
    """However the bytes come, the answers are the same."""
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("admin", "pgbouncer")
        client.socket.setsockopt(6, 1, 1)
        client.send_cut(
            m.parse("s", "show state"), m.describe("S", "s"), m.bind("s", "p"), m.execute("p", 1), m.FLUSH,
            m.execute("p"), m.close("P", "p"), m.execute("p"), m.parse("", ""), m.SYNC, m.close("S", "s"), m.SYNC,
        )  # fmt: skip
        assert kinds(client.read_until("Z") + client.read_until("Z")) == "1tT2DsDC3EZ3Z"


NAMES = ("", "s", "t")
#: What both sides know, though PostgreSQL's words for what is no statement are others.
TEXTS = ("show timezone", "show timezone", "", "reset all", "deallocate s", "nonsense")


def any_message(rng: random.Random) -> bytes:
    """One message of the extended protocol, or a Query."""
    name, portal = rng.choice(NAMES), rng.choice(("", "p"))
    kind = rng.choice("PPPBBBBDEEEECSSHQ")
    match kind:
        case "P":
            return m.parse(name, rng.choice(TEXTS))
        case "B":
            values = (b"1",) if rng.random() < 0.05 else ()
            return (
                m.bind(name, portal, values) if values else bind(name, portal, rng.choice(((), (0,), (1,), (0,) * 3)))
            )
        case "D":
            return m.describe("S", name) if rng.random() < 0.5 else m.describe("P", portal)
        case "E":
            return m.execute(portal, rng.choice((-1, 0, 0, 1, 2)))
        case "C":
            return m.close("S", name) if rng.random() < 0.5 else m.close("P", portal)
        case "Q":
            return m.query(rng.choice(("show timezone", "reset all", "nonsense")))
        case _:
            return m.SYNC if kind == "S" else m.FLUSH


def played(client: FakeClient, packets: list[bytes]) -> list[str]:
    """What is answered: types, and errors with their words where those are the same on both sides."""
    client.send(*packets, m.SYNC, m.query("deallocate all"))
    told: list[str] = []
    while True:
        for kind, payload in client.read_until("Z"):
            if kind == "E":
                fields = m.error_fields(payload)
                told.append("no statement" if "nonsense" in fields["M"] else f"{fields['C']} {fields['M']}")
            elif kind != "S":
                told.append(kind)
            if payload == b"DEALLOCATE ALL\0":
                return told


def test_random_pipelines_are_answered_as_by_postgresql(pooler: Pooler, pg15: Postgres) -> None:
    """The same names, limits, mistakes and Syncs get the same types of messages and the same errors."""
    rng = random.Random(20)
    with FakeClient((pooler.host, pooler.port)) as ours, FakeClient((pg15.host, pg15.port)) as theirs:
        ours.login("stats", "pgbouncer")
        theirs.login("alice", "app", PASSWORDS["alice"])
        ours.ask(m.parse("", "show version"), m.SYNC)
        for _ in range(400):
            # Most begin well: mistakes alone would teach little.
            begin = [m.parse(name, rng.choice(TEXTS[:4])) for name in rng.sample(NAMES, rng.randint(0, 3))]
            packets = begin + [any_message(rng) for _ in range(rng.randint(1, 15))]
            assert played(ours, packets) == played(theirs, packets), packets


def test_waiting_and_looking_from_many_sessions(pooler: Pooler) -> None:
    """Sessions that pause, resume and look at once hear their own answers only."""

    def work(number: int) -> int:
        text = "show totals" if number % 2 else "show lists"
        with console(pooler, prepare_threshold=0) as session:
            return sum(len(session.execute(text.encode()).fetchall()) for _ in range(15))

    with ThreadPoolExecutor(4) as threads, console(pooler, prepare_threshold=0) as session:
        answers = [threads.submit(work, number) for number in range(4)]
        for _ in range(10):
            assert session.execute("pause app").statusmessage == "PAUSE"
            assert session.execute("resume app").statusmessage == "RESUME"
        assert [answer.result() for answer in answers] == [14 * 15, 24 * 15] * 2
    until(lambda: len(pooler.admin("show clients")) == 1, "the sessions end")
