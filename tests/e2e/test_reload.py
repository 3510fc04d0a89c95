"""RELOAD by SIGHUP: all or nothing, and what each kind of change does to clients and servers."""

from __future__ import annotations

import re
import signal

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres


def reload(pooler: Pooler) -> None:
    """Writes the configuration anew and waits until the pooler has read it."""
    pooler.write_config()
    before = len(ended(pooler))
    pooler.signal(signal.SIGHUP)
    until(lambda: len(ended(pooler)) > before, "the end of the reload")


def ended(pooler: Pooler) -> list[str]:
    """How each reload so far has ended."""
    return re.findall("config file loaded by all workers|config file loading failed", pooler.log_text())


def test_broken_file_changes_nothing(make: MakePooler) -> None:
    """A mistake anywhere leaves every old value in place, also those written before the mistake."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as conn:
        conn.execute("select 1")
        pooler.settings["pool_mode"] = "statement"
        pooler.settings["zzz_unknown"] = "1"
        reload(pooler)
        until(lambda: "config file loading failed" in pooler.log_text(), "the failure in the log")
        conn.execute("begin")
        conn.execute("commit")
    assert "zzz_unknown" in pooler.log_text()


def test_pool_mode_and_size_apply_at_once(make: MakePooler) -> None:
    """Sizes and modes change without closing anything."""
    pooler = make(default_pool_size=1, query_wait_timeout=2)
    with pooler.connect() as one, pooler.connect() as two:
        one.execute("begin")
        pooler.settings["default_pool_size"] = 2
        reload(pooler)
        assert two.execute("select 1").fetchone() == (1,)
        one.execute("commit")
        pooler.settings["pool_mode"] = "statement"
        reload(pooler)
        with pytest.raises(psycopg.Error, match="transaction blocks not allowed"):
            two.execute("begin")


def test_removed_line_is_back_at_its_default(make: MakePooler) -> None:
    """A [users] line that is removed no longer has any effect."""
    pooler = make(users={"alice": "pool_mode=statement"})
    pooler.users.clear()
    reload(pooler)
    with pooler.connect() as conn:
        conn.execute("begin")
        conn.execute("commit")


def test_new_target_drains_old_servers(make: MakePooler, pg15: Postgres) -> None:
    """Another dbname: a transaction under way ends on the old server, the next one runs on a new one."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as conn:
        asked = "select current_database()"
        conn.execute("begin")
        pooler.databases["app"] = database(pg15, "other")
        reload(pooler)
        assert conn.execute(asked).fetchone() == ("app",)
        conn.execute("commit")
        assert conn.execute(asked).fetchone() == ("other",)


def test_removed_database(make: MakePooler, pg15: Postgres) -> None:
    """Clients of a removed entry are told; an entry added again works."""
    pooler = make({"app": database(pg15), "other": database(pg15, "other")})
    with pooler.connect("other") as conn:
        conn.execute("select 1")
        entry = pooler.databases.pop("other")
        reload(pooler)
        with pytest.raises(psycopg.OperationalError, match="database removed"):
            conn.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="no such database: other"):
        pooler.connect("other")
    pooler.databases["other"] = entry
    reload(pooler)
    assert pooler.query("select current_database()", dbname="other") == [("other",)]


def test_explicit_entry_for_an_automatic_database(make: MakePooler, pg15: Postgres) -> None:
    """A name that came in through `*` gets an entry with a forced user: the next login uses it."""
    pooler = make({"*": f"host={pg15.host} port={pg15.port}"})
    assert pooler.query("select current_user") == [("alice",)]
    pooler.databases["app"] = database(pg15, user="bob")
    reload(pooler)
    assert pooler.query("select current_user") == [("bob",)]


def test_new_password_file(make: MakePooler) -> None:
    """Added users come in, removed users do not, and a changed password counts at once."""
    users = {name: PASSWORDS[name] for name in ("alice", "bob")}
    pooler = make(userlist=users, auth_type="scram-sha-256")
    assert pooler.query("select 1", password=PASSWORDS["alice"]) == [(1,)]
    pooler.userlist = {"alice": "changed", "scram_user": "scram-secret"}
    reload(pooler)
    assert pooler.query("select 1", password="changed") == [(1,)]
    assert pooler.query("select 1", user="scram_user", password="scram-secret") == [(1,)]
    for user, password in (("alice", PASSWORDS["alice"]), ("bob", PASSWORDS["bob"])):
        with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
            pooler.connect(user=user, password=password)


def test_reload_a_hundred_times_under_load(make: MakePooler, pg15: Postgres) -> None:
    """Changing lists while clients work costs no client of an entry that stays."""
    pooler = make(default_pool_size=2)
    with pooler.connect() as conn:
        for turn in range(100):
            pooler.databases = {"app": database(pg15, pool_size=1 + turn % 3), f"extra{turn % 7}": database(pg15)}
            pooler.write_config()
            pooler.signal(signal.SIGHUP)
            assert conn.execute("select 1").fetchone() == (1,)
    until(lambda: pooler.log_text().count("got SIGHUP") >= 1, "at least one reload")
    assert pooler.running
    assert "Traceback" not in pooler.log_text()


def test_signals_pause_and_resume(make: MakePooler) -> None:
    """SIGUSR1 stops queries, SIGUSR2 lets them go on."""
    pooler = make()
    with pooler.connect() as conn:
        conn.execute("select 1")
        pooler.signal(signal.SIGUSR1)
        until(lambda: "got SIGUSR1, pausing all activity" in pooler.log_text(), "PAUSE")
        conn.pgconn.send_query(b"select 2")
        pooler.signal(signal.SIGUSR2)
        until(lambda: "got SIGUSR2, continuing from PAUSE" in pooler.log_text(), "RESUME")
        result = conn.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"2"
        while conn.pgconn.get_result() is not None:
            continue


def test_sigterm_waits_for_clients(make: MakePooler) -> None:
    """The first SIGTERM lets clients finish and lets no new ones in; the process ends with 0 when they are gone."""
    pooler = make()
    with pooler.connect() as conn:
        pooler.signal(signal.SIGTERM)
        until(lambda: not pooler.accepts(), "the port closed")
        assert conn.execute("select 1").fetchone() == (1,)
    assert pooler.wait() == 0
    assert "client connections dropped, exiting" in pooler.log_text()


def test_sigint_waits_for_servers(make: MakePooler) -> None:
    """SIGINT lets transactions finish; the process ends when the last server is released."""
    pooler = make()
    with pooler.connect() as conn:
        conn.execute("begin")
        pooler.signal(signal.SIGINT)
        until(lambda: "waiting for all servers" in pooler.log_text(), "SIGINT")
        conn.execute("commit")
        assert pooler.wait() == 0


def test_second_sigterm_ends_at_once(make: MakePooler) -> None:
    """Impatience is honoured, with exit code 0."""
    pooler = make()
    with pooler.connect():
        pooler.signal(signal.SIGTERM)
        until(lambda: "got SIGTERM, shutting down" in pooler.log_text(), "the first signal")
        pooler.signal(signal.SIGTERM)
        assert pooler.wait() == 0
    assert "got SIGTERM while shutting down, fast exit" in pooler.log_text()
