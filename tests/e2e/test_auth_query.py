"""Logins that auth_query decides, against a real server: who gets in, as whom, and on what kind of session."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from pgshoal.auth.secret import derive_verifier
from tests.e2e.conftest import MakePooler, backends, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler, Rows, database
from tests.support.postgres import PASSWORDS, Postgres

LOOKER = "looker"
SECRET = {LOOKER: "looker-secret", "admin": "admin-secret"}
SCRAM = {"auth_type": "scram-sha-256", "auth_user": LOOKER, "userlist": SECRET}
PLAIN = {**SCRAM, "auth_type": "plain"}
NOW = "select rolname, rolpassword from pg_authid where rolname = $1"


@pytest.fixture(scope="module")
def pg(pg15: Postgres) -> Iterator[Postgres]:
    """A server with a login that may read all secrets, users in every state, and a schema made to deceive."""
    roles = {
        LOOKER: f"superuser password '{SECRET[LOOKER]}'",
        "lapsed": "password 'lapsed-secret' valid until '2001-01-01'",
        "lasting": "password 'lasting-secret' valid until '2999-01-01'",
        "secretless": "",
        "grouped": "nologin password 'grouped-secret'",
    }
    for name, how in roles.items():
        pg15.query(f"create role {name} {'' if 'nologin' in how else 'login'} {how}")
    for trap in TRAPS:
        pg15.query(trap, "app")
    yield pg15
    pg15.query("drop schema evil cascade; drop table caught; drop function secret_of(text)", "app")
    pg15.query("alter database app reset all")
    for name in roles:
        pg15.query(f"drop role {name}")


TRAPS = (
    "create table caught(who text)",
    "grant all on caught to public",
    "create schema evil",
    "grant all on schema evil to public",
    "create function evil.spring(timestamptz, timestamptz) returns bool language plpgsql as"
    " $$ begin insert into public.caught values (session_user); return false; end $$",
    "create operator evil.< (leftarg = timestamptz, rightarg = timestamptz, function = evil.spring)",
    "create function evil.same(name, text) returns bool language plpgsql as"
    " $$ begin insert into public.caught values (session_user); return true; end $$",
    "create operator evil.= (leftarg = name, rightarg = text, function = evil.same)",
    "create function evil.now() returns timestamptz language plpgsql as"
    " $$ begin insert into public.caught values (session_user); return '-infinity'; end $$",
    "create view evil.pg_authid as select 'lapsed'::name rolname, 'evil'::text rolpassword,"
    " null::timestamptz rolvaliduntil, true rolcanlogin",
    "create function secret_of(text) returns table(u name, p text) language sql as"
    " $$ select rolname, rolpassword from pg_catalog.pg_authid where rolname = $1 $$",
    "create function evil.secret_of(text) returns table(u name, p text) language plpgsql as"
    " $$ begin insert into public.caught values (session_user); return query select $1::name, 'evil'::text; end $$",
)


def refusal(pooler: Pooler, user: str, password: str = "", dbname: str = "app", **parameters: str) -> str:
    """The text a login is refused with; "" if it is not."""
    with FakeClient((pooler.host, pooler.port)) as client:
        try:
            client.login(user, dbname, password, **parameters)
        except LoginRefused as refused:
            return refused.fields["M"]
    return ""


def admin(pooler: Pooler, command: str) -> Rows:
    """One console command."""
    return pooler.admin(command, password=SECRET["admin"])


def who(pooler: Pooler, user: str, password: str, **more: str) -> str:
    """Which user the server sees."""
    ((name,),) = pooler.query("select session_user::text", user=user, password=password, **more)
    return str(name)


# -- who gets in


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5", "plain"])
def test_users_of_the_server_log_in(pg: Postgres, make: MakePooler, auth_type: str) -> None:
    """A user the pooler has never heard of logs in with the server's password, and with no other."""
    pooler = make(**{**SCRAM, "auth_type": auth_type})
    assert who(pooler, "alice", PASSWORDS["alice"]) == "alice"
    assert refusal(pooler, "alice", "wrong").endswith("authentication failed")
    assert refusal(pooler, "nobody_here", "x") == "no such user"
    assert refusal(pooler, "grouped", "grouped-secret") == "no such user"
    assert refusal(pooler, "secretless", "x").endswith("authentication failed")


def test_trust_needs_the_user_to_exist(pg: Postgres, make: MakePooler) -> None:
    """With auth_type trust the lookup says who exists."""
    pooler = make(**{**SCRAM, "auth_type": "trust"})
    assert refusal(pooler, "alice") == ""
    assert refusal(pooler, "nobody_here") == "no such user"


def test_the_user_list_goes_first(pg: Postgres, make: MakePooler) -> None:
    """A user in auth_file is never looked up; one in [users] only is, and keeps its limits."""
    users = {"alice": "max_user_client_connections=1"}
    pooler = make(**{**PLAIN, "userlist": {**SECRET, "bob": "listed"}, "users": users})
    assert refusal(pooler, "bob", PASSWORDS["bob"]) == "password authentication failed"
    assert refusal(pooler, "bob", "listed") == ""
    assert backends(pg, LOOKER) == 0
    with pooler.connect(user="alice", password=PASSWORDS["alice"]):
        text = "client connections exceeded (max_user_client_connections)"
        assert refusal(pooler, "alice", PASSWORDS["alice"]) == text


def test_limits_hold_for_users_found(pg: Postgres, make: MakePooler) -> None:
    """max_user_client_connections counts users that only auth_query knows, and lets go of them."""
    pooler = make(**PLAIN, max_user_client_connections=1)
    with pooler.connect(user="alice", password=PASSWORDS["alice"]):
        assert "max_user_client_connections" in refusal(pooler, "alice", PASSWORDS["alice"])
        assert refusal(pooler, "bob", PASSWORDS["bob"]) == ""
    until(lambda: refusal(pooler, "alice", PASSWORDS["alice"]) == "", "a place for alice")


def test_every_login_asks_anew(pg: Postgres, make: MakePooler) -> None:
    """A changed password counts from the next login on, without a reload; a dropped user is out."""
    pg.query("create role passing login password 'first'")
    pooler = make(**SCRAM)
    assert refusal(pooler, "passing", "first") == ""
    pg.query("alter role passing password 'second'")
    assert refusal(pooler, "passing", "first") == "SASL authentication failed"
    assert refusal(pooler, "passing", "second") == ""
    pg.query("drop role passing")
    assert refusal(pooler, "passing", "second") == "no such user"


def test_rows(pg: Postgres, make: MakePooler) -> None:
    """The last row counts, a row without a name is none, and the name in the row is who logs in."""
    rows = "select n, p from (values ($1::text, 'first'), ($1, 'last'), (null, 'nameless')) v(n, p)"
    pooler = make(**PLAIN, auth_query=rows)
    assert refusal(pooler, "alice", "last") == ""
    assert refusal(pooler, "alice", "first") == "password authentication failed"
    pooler = make(**PLAIN, auth_query="select null::text, $1::text")
    assert refusal(pooler, "alice", "alice") == "no such user"
    pooler = make(**PLAIN, auth_query="select 'bob', 'shared' where $1 = 'alias'")
    assert who(pooler, "alias", "shared") == "bob"


def test_an_odd_name_is_data(pg: Postgres, make: MakePooler) -> None:
    """Quotes, SQL and bytes that are no text harm nothing, and cost no connection."""
    pooler = make(**PLAIN)
    for name in ("'; drop role alice; --", '"', "$1", "\\", "é" * 60):
        assert refusal(pooler, name, "x") == "no such user"
    with FakeClient((pooler.host, pooler.port)) as client:
        body = b"\0\3\0\0user\0\xff\xfe\0database\0app\0\0"
        client.send((len(body) + 4).to_bytes(4, "big") + body)
        assert m.error_fields(client.read().payload)["M"] == "no such user"
    assert pooler.log_text().count("new connection to server") == 1


# -- where it runs


def test_where_the_query_runs(pg: Postgres, make: MakePooler) -> None:
    """auth_dbname of the entry, then the global one, then the client's own database; each may come from `*`."""
    star = database(pg).replace("dbname=app", "")
    pooler = make({"*": star}, **PLAIN)
    assert refusal(pooler, "alice", PASSWORDS["alice"], "other") == ""
    assert (backends(pg, LOOKER, "other"), backends(pg, LOOKER, "app")) == (1, 0)
    pooler = make({"*": star, "own": database(pg, auth_dbname="postgres")}, **PLAIN, auth_dbname="app")
    assert refusal(pooler, "alice", PASSWORDS["alice"], "other") == ""
    assert refusal(pooler, "alice", PASSWORDS["alice"], "own") == ""
    assert (backends(pg, LOOKER, "app"), backends(pg, LOOKER, "postgres")) == (1, 1)


def test_settings_of_the_entry(pg: Postgres, make: MakePooler) -> None:
    """auth_user and auth_query of an entry beat the global ones, and other entries do without lookups."""
    entry = database(pg, auth_user=LOOKER, auth_query="'select $1::text, ''own'''")
    pooler = make({"app": entry, "closed": database(pg)}, auth_type="plain", userlist=SECRET)
    assert refusal(pooler, "alice", "own") == ""
    assert refusal(pooler, "alice", "own", "closed") == "password authentication failed"


def test_one_name_two_secrets(pg: Postgres, make: MakePooler) -> None:
    """What was found for one database says nothing about another."""
    one, two = (database(pg, auth_query=f"'select $1::text, ''{word}'''") for word in ("one", "two"))
    pooler = make({"a": one, "b": two}, **PLAIN)
    assert [refusal(pooler, "alice", word, "a") for word in ("one", "two")] == ["", "password authentication failed"]
    assert [refusal(pooler, "alice", word, "b") for word in ("one", "two")] == ["password authentication failed", ""]


def test_unknown_databases_are_not_looked_up(pg: Postgres, make: MakePooler) -> None:
    """The exchange runs and fails, whether the user exists or not."""
    pooler = make(**SCRAM, auth_dbname="app")
    for user in ("alice", "nobody_here"):
        assert refusal(pooler, user, PASSWORDS["alice"], "nowhere") == "SASL authentication failed"
    assert backends(pg, LOOKER) == 0


def test_reserved_missing_and_disabled_databases(pg: Postgres, make: MakePooler) -> None:
    """Each gets its text and its line in the log."""
    pooler = make({"app": database(pg, auth_dbname="pgbouncer")}, **PLAIN)
    assert refusal(pooler, "alice", "x") == "bouncer config error"
    until(
        lambda: 'cannot use the reserved "pgbouncer" database as an auth_dbname' in pooler.log_text(),
        'cannot use the reserved "pgbouncer" database as an auth_dbname',
    )
    pooler = make({"app": database(pg)}, **PLAIN, auth_dbname="nix")
    assert refusal(pooler, "alice", "x") == "bouncer config error"
    until(
        lambda: 'authentication database "nix" is not configured.' in pooler.log_text(),
        'authentication database "nix" is not configured.',
    )
    pooler = make({"app": database(pg), "keys": database(pg)}, **PLAIN, auth_dbname="keys")
    admin(pooler, "DISABLE keys")
    assert refusal(pooler, "alice", PASSWORDS["alice"]) == 'authentication database "keys" is disabled'
    admin(pooler, "ENABLE keys")
    assert refusal(pooler, "alice", PASSWORDS["alice"]) == ""


def test_console_users_may_be_looked_up(pg: Postgres, make: MakePooler) -> None:
    """With auth_dbname the console knows users by lookup too; their rights still come from the lists."""
    pooler = make(**PLAIN, auth_dbname="app")
    assert refusal(pooler, "alice", PASSWORDS["alice"], "pgbouncer") == "not allowed"
    assert refusal(make(**PLAIN), "alice", PASSWORDS["alice"], "pgbouncer") == "bouncer config error"


# -- what goes wrong


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("select 1, 2, 3 from pg_class where relname = $1", "expected 2 columns from auth_query, not 3"),
        ("select $1::text", "expected 2 columns from auth_query, not 1"),
        ("delete from pg_class where relname = $1 and false", "expected 2 columns from auth_query, not 0"),
        ("select nothing($1::text), 2", "error in auth_query: ERROR: function nothing(text) does not exist"),
        ("select 1/0, $1::text", "error in auth_query: ERROR: division by zero"),
        ("copy (select 1, 2) to stdout", "error response from auth_query"),
    ],
)
def test_useless_queries(pg: Postgres, make: MakePooler, query: str, line: str) -> None:
    """A query that gives no two columns is the operator's fault: the client hears no more, the log does."""
    pooler = make(**PLAIN, auth_query=query)
    for _ in range(2):
        assert refusal(pooler, "alice", PASSWORDS["alice"]) == "bouncer config error"
    until(lambda: line in pooler.log_text(), line)
    assert "internal error" not in pooler.log_text()


def test_an_auth_user_the_server_refuses(pg: Postgres, make: MakePooler) -> None:
    """Its error ends the logins that wait; the next hear of it without a further attempt."""
    pooler = make(**{**PLAIN, "auth_user": "phantom"})
    assert refusal(pooler, "alice", "x") == 'role "phantom" does not exist'
    cached = 'server login has been failing, cached error: role "phantom" does not exist (server_login_retry)'
    assert refusal(pooler, "alice", "x") == cached


def test_lookups_begin_again_after_a_failure(pg: Postgres, make: MakePooler) -> None:
    """When server_login_retry has passed the server is tried again, and logins work."""
    pooler = make(**{**PLAIN, "auth_user": "late"}, server_login_retry=1)
    assert refusal(pooler, "alice", "x") == 'role "late" does not exist'
    pg.query("create role late superuser login")
    try:
        until(lambda: refusal(pooler, "alice", PASSWORDS["alice"]) == "", "alice again")
    finally:
        pooler.stop()
        until(lambda: backends(pg, "late") == 0, "the end of late's connection")
        pg.query("drop role late")


def test_a_server_that_dies_during_the_lookup(engine: str) -> None:
    """The client is told, and the next login gets a new connection."""

    def script(server: ServerSide) -> None:
        server.log_in()
        server.read_until("S")
        if server.number == 0:
            return
        row = m.data_row("alice", "pw")
        first = m.data_row("pg_catalog"), m.command_complete("SELECT 1")
        done = m.command_complete("SELECT 1"), m.ready()
        ack = m.message(b"1") + m.message(b"2")
        server.send(ack, *first, ack, m.row_description("u", "p"), row, *done)
        server.hold()

    with FakeServer(script) as server:
        settings = {"engine": engine, **PLAIN}
        with Pooler({"app": server.database()}, **settings) as pooler:
            assert refusal(pooler, "alice", "pw") == "bouncer config error"
            assert refusal(pooler, "alice", "wrong") == "password authentication failed"
            assert len(server.connections) == 2


def test_lookups_wait_for_a_place(pg: Postgres, make: MakePooler) -> None:
    """With a pool of one server thirty logins at once are served one after another, on that one server."""
    pooler = make(**PLAIN, default_pool_size=1)
    failures: list[str] = []

    def one() -> None:
        failures.append(refusal(pooler, "alice", PASSWORDS["alice"]))

    threads = [threading.Thread(target=one) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [""] * 30
    assert backends(pg, LOOKER) == 1


def end_lookups(pg: Postgres) -> None:
    """Ends the backends that earlier tests left behind: one that sleeps outlives its connection."""
    pg.query(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{LOOKER}'")
    until(lambda: backends(pg, LOOKER) == 0, "the end of earlier lookups")


def test_a_slow_lookup_does_not_stop_others(pg: Postgres, make: MakePooler) -> None:
    """While one query hangs the pool grows for the next; who waits too long is told, and its server comes back."""
    slow = "select $1::text, case when $1 = 'slow' then pg_sleep(60)::text else 'pw' end"
    pooler = make(**PLAIN, auth_query=slow, client_login_timeout=2)
    end_lookups(pg)
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(m.startup({"user": "slow", "database": "app"}))
        until(lambda: backends(pg, LOOKER) == 1, "the slow lookup")
        assert refusal(pooler, "alice", "pw") == ""
        assert m.error_fields(client.read().payload)["M"] == "client_login_timeout"
    until(lambda: {row["state"] for row in admin(pooler, "SHOW SERVERS")} == {"idle"}, "the end of the slow lookup")


def test_waiting_for_a_place_has_its_limit(pg: Postgres, make: MakePooler) -> None:
    """query_wait_timeout counts for lookups in line, which SHOW POOLS shows."""
    slow = "select $1::text, case when $1 = 'slow' then pg_sleep(60)::text else 'pw' end"
    pooler = make(**PLAIN, auth_query=slow, default_pool_size=1, query_wait_timeout=2)
    end_lookups(pg)
    with FakeClient((pooler.host, pooler.port)) as first, FakeClient((pooler.host, pooler.port)) as second:
        first.send(m.startup({"user": "slow", "database": "app"}))
        until(lambda: backends(pg, LOOKER) == 1, "the slow lookup")
        second.send(m.startup({"user": "alice", "database": "app"}))
        until(lambda: counts(pooler) == (1, 1), "one active, one waiting")
        assert m.error_fields(second.read().payload)["M"] == "query_wait_timeout"
        pg.query(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{LOOKER}'")
        assert m.error_fields(first.read().payload)["M"] == "bouncer config error"


def counts(pooler: Pooler) -> tuple[int, int]:
    """(sv_active, cl_waiting) of the pool lookups run in."""
    (row,) = [row for row in admin(pooler, "SHOW POOLS") if row["user"] == LOOKER]
    return row["sv_active"], row["cl_waiting"]


def test_clients_that_leave_during_the_lookup(pg: Postgres, make: MakePooler) -> None:
    """Their places are given back and the server is not lost."""
    pooler = make(**PLAIN, auth_query="select $1::text, pg_sleep(0.2)::text || 'pw'", default_pool_size=1)
    for _ in range(5):
        with FakeClient((pooler.host, pooler.port)) as client:
            client.send(m.startup({"user": "alice", "database": "app"}))
    assert refusal(pooler, "alice", "pw") == ""
    lines = pooler.log_text().splitlines()
    assert len([line for line in lines if f"/{LOOKER}@" in line and "new connection" in line]) == 1
    assert "Traceback" not in pooler.log_text()


def test_pause_kill_and_reload(pg: Postgres, make: MakePooler) -> None:
    """A lookup waits through PAUSE; KILL, RECONNECT and a new auth_query each get a fresh session."""
    pooler = make(**PLAIN)
    secret = PASSWORDS["alice"]
    assert refusal(pooler, "alice", secret) == ""
    admin(pooler, "PAUSE app")
    with FakeClient((pooler.host, pooler.port)) as client:
        client.send(m.startup({"user": "alice", "database": "app"}))
        until(lambda: counts(pooler)[1] == 1, "the waiting lookup")
        admin(pooler, "RESUME app")
        client.finish_login("alice", secret)
    admin(pooler, "KILL app")
    admin(pooler, "RESUME app")
    assert refusal(pooler, "alice", secret) == ""
    admin(pooler, "RECONNECT")
    assert refusal(pooler, "alice", secret) == ""
    pooler.settings["auth_query"] = "select $1::text, 'new'"
    pooler.write_config()
    admin(pooler, "RELOAD")
    assert refusal(pooler, "alice", "new") == ""
    assert "Traceback" not in pooler.log_text()


def test_servers_used_once_or_checked(pg: Postgres, make: MakePooler) -> None:
    """server_lifetime=0 and server_check_delay=0 hold for lookups as for queries."""
    for settings in ({"server_lifetime": 0}, {"server_check_delay": 0, "server_check_query": "select 1"}):
        pooler = make(**PLAIN, default_pool_size=1, **settings)
        assert [refusal(pooler, "alice", PASSWORDS["alice"]) for _ in range(4)] == [""] * 4


# -- the session it runs on (field report 27)


def caught(pg: Postgres) -> list[tuple[str]]:
    """Who ran a function that was laid as a trap."""
    return pg.query("select who from caught", "app")


@pytest.mark.parametrize("query", ["", NOW, "select u, p from secret_of($1)"])
def test_27a_the_clients_search_path_stays_outside(pg: Postgres, make: MakePooler, query: str) -> None:
    """Functions, operators and views in a schema the client names are never seen by a lookup."""
    more = {"auth_query": query} if query else {}
    pooler = make(**PLAIN, track_extra_parameters="search_path", default_pool_size=1, **more)
    for path in ("evil", "evil, pg_catalog, public", "evil,pg_catalog"):
        assert refusal(pooler, "lapsed", "evil", search_path=path).endswith("authentication failed")
        assert refusal(pooler, "lasting", "lasting-secret", search_path=path) == ""
        options = f"-c search_path={path.replace(' ', '')}"
        assert refusal(pooler, "lasting", "evil", options=options).endswith("authentication failed")
    assert caught(pg) == []


def test_27a_an_owners_search_path_stays_outside(pg: Postgres, make: MakePooler) -> None:
    """Nor does a search path that the owner of the database has put before everybody."""
    pg.query("alter database app set search_path = evil, pg_catalog, public", "postgres")
    try:
        for more in ({}, {"auth_query": NOW}, {"auth_query": "select u, p from secret_of($1)"}):
            pooler = make(**PLAIN, **more)
            assert refusal(pooler, "lasting", "evil") == "password authentication failed"
            assert refusal(pooler, "lasting", "lasting-secret") == ""
            pooler.stop()
        assert caught(pg) == []
    finally:
        pg.query("alter database app reset search_path", "postgres")


def test_27a_nothing_of_auth_users_own_clients(pg: Postgres, make: MakePooler) -> None:
    """A client that logs in as auth_user shares no server with lookups, in neither direction."""
    pooler = make(**PLAIN, default_pool_size=1, server_reset_query="", pool_mode="session")
    with pooler.connect(user=LOOKER, password=SECRET[LOOKER]) as conn:
        conn.execute("create temp table pg_authid(rolname name, rolpassword text, rolvaliduntil timestamptz)")
        conn.execute("set search_path = evil, pg_catalog")
        conn.execute("set session authorization alice")
    assert refusal(pooler, "lasting", "lasting-secret") == ""
    with pooler.connect(user=LOOKER, password=SECRET[LOOKER]) as conn:
        (left,) = conn.execute("select to_regclass('pg_temp.pg_authid') is null, session_user::text").fetchall()
        assert left == (False, "alice")  # no reset query: a client meets what clients leave, and nothing of ours
    assert caught(pg) == []


def test_27a_the_path_of_an_own_query(pg: Postgres, make: MakePooler) -> None:
    """It is the same whatever client, role and database ask for; clients get the server's default."""
    pooler = make(**PLAIN, auth_query="select $1::text, current_setting('search_path')")
    path = 'pg_catalog, "$user", public, pg_temp'
    pg.query(f"alter role {LOOKER} set search_path = evil")
    try:
        assert refusal(pooler, "alice", path, search_path="evil") == ""
        assert pooler.query("show search_path", password=path) == [('"$user", public',)]
    finally:
        pg.query(f"alter role {LOOKER} reset search_path")


def test_27b_valid_until(pg: Postgres, make: MakePooler) -> None:
    """The default query refuses a password whose time is over, with every method that asks for one."""
    for auth_type in ("plain", "md5", "scram-sha-256"):
        pooler = make(**{**SCRAM, "auth_type": auth_type})
        assert refusal(pooler, "lapsed", "lapsed-secret").endswith("authentication failed")
        assert refusal(pooler, "lasting", "lasting-secret") == ""
        pooler.stop()


def test_27c_scram_pass_through_survives_reconnects(pg: Postgres, make: MakePooler) -> None:
    """With a verifier from the server and server_lifetime=1 a new server connection still logs in as the client."""
    pooler = make(**SCRAM, server_lifetime=1)
    secret = PASSWORDS["scram_user"]
    with pooler.connect(user="scram_user", password=secret) as conn:
        seen: set[int] = set()

        def another() -> bool:
            ((pid,),) = conn.execute("select pg_backend_pid()").fetchall()
            seen.add(pid)
            return len(seen) > 2

        until(another, "two further server connections")
    assert who(pooler, "scram_user", secret) == "scram_user"


def test_27d_the_forced_user_keeps_its_own_secret(pg: Postgres, make: MakePooler) -> None:
    """Whatever SCRAM secret the client was found with, the server sees the entry's user with the entry's password."""
    forced = database(pg, user="scram_user", password=PASSWORDS["scram_user"])
    other = derive_verifier("other", 4096).text()
    query = f"select $1::text, '{other}'"
    pooler = make({"app": forced, "keys": database(pg)}, **SCRAM, auth_dbname="keys", auth_query=query)
    for name in ("alice", "scram_user"):
        assert who(pooler, name, "other") == "scram_user"
    admin(pooler, "RECONNECT")
    assert who(pooler, "alice", "other") == "scram_user"
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.query("select 1", user="alice", password=PASSWORDS["scram_user"])
