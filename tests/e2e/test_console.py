"""The admin console as operators and their tools use it: psql, psycopg and raw messages, against real servers."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgshoal.demo import programs
from tests.console.test_rows import COLUMNS, spelled
from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.fakeclient import Closed, FakeClient
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres

Session = psycopg.Connection[dict[str, Any]]


def console(pooler: Pooler, user: str = "admin") -> Session:
    """A session that stays open."""
    dsn = pooler.dsn("pgbouncer", user, connect_timeout=20)
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row)


def only(rows: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    """The one row with these values."""
    (found,) = [row for row in rows if wanted.items() <= row.items()]
    return found


def psql(pooler: Pooler, command: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    """One command in psql, unaligned."""
    argv = [programs.system(15)["psql"], "-XAtq", "-P", "tuples_only=off", "-d", pooler.dsn("pgbouncer", user)]
    return subprocess.run([*map(str, argv), "-c", command], capture_output=True, text=True, timeout=30, check=False)


def pool(pooler: Pooler, name: str = "app") -> dict[str, Any]:
    """The only pool of a database."""
    return only(pooler.admin("show pools", user="stats"), database=name)


# -- looking


def test_psql_shows_everything(make: MakePooler) -> None:
    """Each item as a table in psql, with PgBouncer's columns; SHOW HELP as a notice."""
    pooler = make()
    pooler.query("select 1")
    for item, columns in COLUMNS.items():
        shown = psql(pooler, f"show {item};", user="stats")
        assert shown.stderr == ""
        assert shown.stdout.splitlines()[0].split("|") == [name for name, _ in spelled(columns)]
    shown = psql(pooler, "SHOW HELP")
    assert shown.stdout == ""
    assert "Console usage" in shown.stderr
    assert "\tPAUSE [<db>]\n" in shown.stderr
    assert "invalid command 'show fds', use SHOW HELP;" in psql(pooler, "show fds").stderr


def test_a_linked_client_and_its_server_point_at_each_other(make: MakePooler) -> None:
    """CLIENTS and SERVERS agree on the link; the server's process id is PostgreSQL's."""
    pooler = make()
    with pooler.connect(application_name="shop") as conn, console(pooler, "stats") as session:
        assert only(session.execute("show clients").fetchall(), database="app")["state"] == "idle"
        with conn.transaction():
            row = conn.execute("select pg_backend_pid()").fetchone()
            assert row is not None
            client = only(session.execute("show clients").fetchall(), database="app")
            server = only(session.execute("show servers").fetchall(), database="app")
            assert (client["state"], server["state"]) == ("active", "active")
            assert (client["link"], server["link"]) == (server["ptr"], client["ptr"])
            assert server["remote_pid"] == row[0]
            assert client["application_name"] == server["application_name"] == "shop"
            assert (client["user"], client["addr"]) == ("alice", "127.0.0.1")
            assert pool(pooler)["cl_active"] == pool(pooler)["sv_active"] == 1
        server = only(session.execute("show servers").fetchall(), database="app")
        assert (server["state"], server["link"]) == ("idle", "")
        assert (pool(pooler)["sv_active"], pool(pooler)["sv_idle"]) == (0, 1)


def test_a_waiting_client_is_seen_waiting(make: MakePooler) -> None:
    """In POOLS with its wait so far, and in CLIENTS."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as first, pooler.connect() as second, ThreadPoolExecutor() as threads:
        first.execute("begin")
        asked = threads.submit(second.execute, "select 1")
        until(lambda: bool(pool(pooler)["cl_waiting"] == 1), "the second client in line")
        until(lambda: bool(pool(pooler)["maxwait"] + pool(pooler)["maxwait_us"] > 0), "its wait")
        states = [row["state"] for row in pooler.admin("show clients") if row["database"] == "app"]
        assert sorted(states) == ["active", "waiting"]
        first.execute("commit")
        assert asked.result().fetchone() == (1,)


def test_stats_add_up(make: MakePooler) -> None:
    """Transactions, queries, prepared statements and logins are counted per database and over all."""
    pooler = make()
    with pooler.connect() as conn:
        for _ in range(3):
            conn.execute("select 1")
        with conn.transaction():
            conn.execute("select 2")
        for _ in range(2):
            conn.execute("select 3", prepare=True)
        assert only(pooler.admin("show clients"), database="app")["prepared_statements"] == 1
    row = only(pooler.admin("show stats"), database="app")
    # psycopg sends Parse and its Sync apart from the first Bind: one transaction more.
    assert (row["total_xact_count"], row["total_query_count"]) == (7, 9)
    assert (row["total_client_parse_count"], row["total_server_parse_count"], row["total_bind_count"]) == (1, 1, 2)
    assert row["total_client_login_count"] == 1
    assert row["total_xact_time"] >= row["total_query_time"] > 0
    assert min(row["total_received"], row["total_sent"]) > 100
    totals = {row["name"]: row["value"] for row in pooler.admin("show totals")}
    assert totals["total_xact_time"] == row["total_xact_time"]
    assert only(pooler.admin("show stats_totals"), database="app")["query_count"] == 9


# -- rights and refusals


def test_a_stats_user_looks_and_does_nothing_else(make: MakePooler) -> None:
    """KILL_CLIENT and all other commands are refused, and the session goes on (CVE-2026-6667)."""
    pooler = make()
    with pooler.connect() as victim, console(pooler, "stats") as session:
        number = only(session.execute("show clients").fetchall(), database="app")["id"]
        commands = (f"kill_client {number}", "kill app", "kill", "pause", "shutdown", "reload", "set verbose=2")
        for command in commands:
            with pytest.raises(psycopg.Error, match="admin access needed"):
                session.execute(command.encode())
        assert victim.execute("select 1").fetchone() == (1,)
        assert session.execute("show version").fetchall() == [{"version": "PgBouncer 1.26.1"}]


def test_parameters_are_refused(make: MakePooler) -> None:
    """A driver that binds parameters gets an error it can show, and the session goes on."""
    with console(make()) as session:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="parameters are not supported by admin console"):
            session.execute("show %s", ("version",))
        assert session.execute("show version").fetchall() == [{"version": "PgBouncer 1.26.1"}]


def test_pipelined_commands_are_answered_in_order(make: MakePooler) -> None:
    """Several commands in one packet, and one cut into single bytes."""
    pooler = make()
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("admin", "pgbouncer")
        client.send(m.query("show version"), m.query("nonsense"), m.query("show help"))
        kinds = ["".join(got.kind for got in client.read_until("Z")) for _ in range(3)]
        assert kinds == ["TDCZ", "EZ", "NCZ"]
        client.send_cut(m.query("show version;"))
        assert "".join(got.kind for got in client.read_until("Z")) == "TDCZ"
        client.send(m.message(b"Q", b"x" * 5000 + b"\0"))
        fields = m.error_fields(client.read().payload)
        assert (fields["S"], fields["M"]) == ("FATAL", "incomplete pkt")
        with pytest.raises(Closed):
            client.read()


# -- pausing


def test_pause_waits_for_transactions_and_holds_new_ones(make: MakePooler) -> None:
    """PAUSE is answered at the end of the last transaction; queries then wait for RESUME."""
    pooler = make()
    with pooler.connect() as conn, console(pooler) as session, ThreadPoolExecutor() as threads:
        conn.execute("begin")
        paused = threads.submit(session.execute, "pause")
        until(lambda: pooler.admin("show state")[1]["value"] == "yes", "the pause")
        assert not paused.done()
        conn.execute("commit")
        assert paused.result(20).statusmessage == "PAUSE"
        until(lambda: pooler.admin("show servers") == [], "all servers closed")
        asked = threads.submit(conn.execute, "select 1")
        until(lambda: bool(pool(pooler)["cl_waiting"] == 1), "the client in line")
        with pytest.raises(psycopg.Error, match="already paused"):
            session.execute("pause")
        assert session.execute("resume").statusmessage == "RESUME"
        assert asked.result(20).fetchone() == (1,)


def test_a_cancelled_pause_is_answered_and_undone(make: MakePooler) -> None:
    """Ctrl-C in psql while PAUSE waits: an error comes back, and the pooler serves as before."""
    pooler = make()
    with pooler.connect() as conn, console(pooler) as session, ThreadPoolExecutor() as threads:
        conn.execute("begin")
        waiting = threads.submit(session.execute, "pause")
        until(lambda: pooler.admin("show state")[1]["value"] == "yes", "the pause")
        session.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled, match="PAUSE was interrupted"):
            waiting.result(20)
        assert pooler.admin("show state")[1]["value"] == "no"
        assert pooler.query("select 1") == [(1,)]
        assert session.execute("show version").fetchall() != []


def test_pause_of_one_database_leaves_the_other_alone(make: MakePooler, pg15: Postgres) -> None:
    """And its waiter is not answered by what happens elsewhere."""
    line = f"host={pg15.host} port={pg15.port} dbname="
    pooler = make({"app": f"{line}app", "other": f"{line}other"})
    with pooler.connect() as conn, console(pooler) as session, ThreadPoolExecutor() as threads:
        conn.execute("begin")
        waiting = threads.submit(session.execute, "pause app")
        until(lambda: only(pooler.admin("show databases"), name="app")["paused"] == 1, "the pause")
        assert pooler.query("select 1", dbname="other") == [(1,)]
        pooler.admin("pause other")
        pooler.admin("wait_close other")
        assert not waiting.done()
        conn.execute("commit")
        assert waiting.result(20).statusmessage == "PAUSE"
        for name in ("app", "other"):
            pooler.admin(f"resume {name}")
            assert pooler.query("select 1", dbname=name) == [(1,)]


# -- changing


def test_kill_client(make: MakePooler) -> None:
    """The client is told and gone; an open transaction takes its server along."""
    pooler = make()
    with console(pooler) as session:
        conn = pooler.connect()
        conn.execute("begin")
        number = only(session.execute("show clients").fetchall(), database="app")["id"]
        assert session.execute(f"kill_client {number}".encode()).statusmessage == "KILL_CLIENT"
        with pytest.raises(psycopg.Error, match="admin forced disconnect"):
            conn.execute("select 1")
        until(lambda: pooler.admin("show servers") == [], "its server closed")
        with pytest.raises(psycopg.Error, match="client not found"):
            session.execute(f"kill_client {number}".encode())


def test_kill_and_resume(make: MakePooler) -> None:
    """KILL drops everybody; new clients wait until RESUME of that database."""
    pooler = make()
    conn = pooler.connect()
    conn.execute("begin")
    pooler.admin("kill app")
    with pytest.raises(psycopg.Error, match="database removed"):
        conn.execute("select 1")
    assert pooler.admin("show servers") == []
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(pooler.query, "select 1")
        # KILL has freed the pool: there is no row until the new client has come.
        until(
            lambda: any((row["database"], row["cl_waiting"]) == ("app", 1) for row in pooler.admin("show pools")),
            "the new client in line",
        )
        pooler.admin("resume app")
        assert asked.result(20) == [(1,)]


def test_disable_and_enable(make: MakePooler) -> None:
    """New logins are refused, those who are in go on."""
    pooler = make()
    with pooler.connect() as conn:
        pooler.admin("disable app")
        with pytest.raises(psycopg.Error, match='database "app" is disabled'):
            pooler.connect()
        assert conn.execute("select 1").fetchone() == (1,)
        pooler.admin("enable app")
        assert pooler.query("select 1") == [(1,)]


def test_reconnect_replaces_servers_between_transactions(make: MakePooler) -> None:
    """RECONNECT disturbs nobody; WAIT_CLOSE is answered when the old servers are gone."""
    pooler = make()
    with pooler.connect() as conn, console(pooler) as session, ThreadPoolExecutor() as threads:
        conn.execute("begin")
        before = conn.execute("select pg_backend_pid()").fetchone()
        assert session.execute("reconnect").statusmessage == "RECONNECT"
        assert only(pooler.admin("show servers"), database="app")["close_needed"] == 1
        waiting = threads.submit(session.execute, "wait_close")
        assert conn.execute("select pg_backend_pid()").fetchone() == before
        assert not waiting.done()
        conn.execute("commit")
        assert waiting.result(20).statusmessage == "WAIT_CLOSE"
        assert conn.execute("select pg_backend_pid()").fetchone() != before


def test_set_and_reload(make: MakePooler) -> None:
    """SET applies at once, RELOAD goes back to the file, a broken file changes nothing."""
    pooler = make()
    with console(pooler) as session:
        assert session.execute("set pool_mode = 'statement'").statusmessage == "SET pool_mode=statement"
        with pooler.connect() as conn, pytest.raises(psycopg.Error, match="transaction blocks not allowed"):
            conn.execute("begin")
        assert session.execute("reload").statusmessage == "RELOAD"
        with pooler.connect() as conn, conn.transaction():
            conn.execute("select 1")
        pooler.settings["pool_mode"] = "nonsense"
        pooler.write_config()
        with pytest.raises(psycopg.Error, match="RELOAD failed, see logs for additional details") as failed:
            session.execute("reload")
        assert failed.value.sqlstate == "F0000"
        assert only(session.execute("show config").fetchall(), key="pool_mode")["value"] == "transaction"


def test_reload_from_another_file(make: MakePooler) -> None:
    """After SET conffile the next RELOAD, and those after it, read that file."""
    pooler = make()
    with console(pooler) as session:
        old = Path(only(session.execute("show config").fetchall(), key="conffile")["value"])
        new = old.with_name("other.ini")
        new.write_text(old.read_text().replace("pool_mode = transaction", "pool_mode = statement"))
        new.chmod(0o644)
        session.execute(f"set conffile = '{new}'".encode())
        for _ in range(2):
            session.execute("reload")
            found = session.execute("show config").fetchall()
            assert only(found, key="pool_mode")["value"] == "statement"
            assert only(found, key="conffile")["value"] == str(new)


def test_what_jdbc_sends_first_is_accepted(make: MakePooler) -> None:
    """SET extra_float_digits is ignored with a notice, for anybody."""
    pooler = make()
    notices: list[str | None] = []
    with console(pooler, "stats") as session:
        session.add_notice_handler(lambda diagnostic: notices.append(diagnostic.message_primary))
        assert session.execute("SET extra_float_digits = 3").statusmessage == "SET"
    assert notices == ["SET ignored"]


# -- the end


def test_shutdown_at_once(make: MakePooler) -> None:
    """The process ends, busy clients or not, and the console is not answered."""
    pooler = make()
    conn, session = pooler.connect(), console(pooler)
    conn.execute("begin")
    with pytest.raises(psycopg.OperationalError):
        session.execute("shutdown")
    assert pooler.wait() == 0
    conn.close()
    session.close()


def test_shutdown_that_waits_for_clients(make: MakePooler) -> None:
    """Those who are in finish in peace; nobody new comes in."""
    pooler = make()
    with pooler.connect() as conn:
        with console(pooler) as session:
            assert session.execute("shutdown wait_for_clients").statusmessage == "SHUTDOWN"
        until(lambda: not pooler.accepts(), "the listener closed")
        assert conn.execute("select 1").fetchone() == (1,)
    assert pooler.wait() == 0


def test_shutdown_that_waits_for_servers(make: MakePooler) -> None:
    """It ends with the last transaction, clients connected or not."""
    pooler = make()
    with pooler.connect() as conn:
        conn.execute("begin")
        with console(pooler) as session:
            assert session.execute("shutdown wait_for_servers").statusmessage == "SHUTDOWN"
            with pytest.raises(psycopg.Error, match="pooler is shutting down"):
                session.execute("resume")
        conn.execute("commit")
        assert pooler.wait() == 0
