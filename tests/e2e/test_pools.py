"""Pools as an operator knows them: sizes, limits, forced users, `*`, checks, resets and server logins."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import database
from tests.support.postgres import Postgres


def test_pool_size_bounds_the_servers(make: MakePooler, pg15: Postgres) -> None:
    """Eight clients at once never use more than pool_size servers, and all are served."""
    pooler = make(default_pool_size=2)
    pids: set[int] = set()

    def work() -> None:
        with pooler.connect() as conn:
            for _ in range(5):
                row = conn.execute("select pg_backend_pid() from pg_sleep(0.02)").fetchone()
                assert row is not None
                pids.add(row[0])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(pids) <= 2
    assert backends(pg15, "alice") == len(pids)


def test_forced_user(make: MakePooler, pg15: Postgres) -> None:
    """All clients of an entry with user= share its pool and its account, with the entry's password."""
    pooler = make({"app": database(pg15, user="scram_user", password="scram-secret", pool_size=1)})
    asked = "select current_user, pg_backend_pid()"
    assert len({pooler.query(asked, user=user)[0] for user in ("alice", "bob")}) == 1
    assert pooler.query(asked)[0][0] == "scram_user"


def test_min_pool_size_needs_no_client(make: MakePooler, pg15: Postgres) -> None:
    """An entry with a forced user is filled to min_pool_size before anyone connects."""
    make({"app": database(pg15, user="bob", min_pool_size=3)})
    until(lambda: backends(pg15, "bob") == 3, "three servers without a client")


def test_autodb(make: MakePooler, pg15: Postgres) -> None:
    """A name that only `*` knows reaches the database of that name; one no server has is refused in its words."""
    pooler = make({"*": f"host={pg15.host} port={pg15.port}"})
    assert pooler.query("select current_database()", dbname="other") == [("other",)]
    with pytest.raises(psycopg.OperationalError, match='database "nowhere" does not exist'):
        pooler.connect(dbname="nowhere")
    assert "registered new auto-database: other" in pooler.log_text()


def test_unknown_database(make: MakePooler) -> None:
    """Without `*` an unknown name is refused."""
    with pytest.raises(psycopg.OperationalError, match="no such database: nowhere"):
        make().connect(dbname="nowhere")


def test_max_db_connections_evicts(make: MakePooler, pg15: Postgres) -> None:
    """A full database gives one user's idle server to another user who waits."""
    pooler = make(max_db_connections=1)
    assert pooler.query("select 1", user="alice") == [(1,)]
    assert pooler.query("select 1", user="bob") == [(1,)]
    assert "closing because: evicted for max_db_connections" in pooler.log_text()
    until(lambda: backends(pg15, "alice") == 0, "the evicted server is gone")


def test_max_user_connections_evicts(make: MakePooler, pg15: Postgres) -> None:
    """A full user gives its idle server of one database to another."""
    entries = {"app": database(pg15), "other": database(pg15, "other")}
    pooler = make(entries, max_user_connections=1)
    assert pooler.query("select 1", dbname="app") == [(1,)]
    assert pooler.query("select current_database()", dbname="other") == [("other",)]
    assert "closing because: evicted for max_user_connections" in pooler.log_text()


def test_reserve_pool(make: MakePooler) -> None:
    """When the only server stays busy, the reserve opens after reserve_pool_timeout."""
    pooler = make(default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout=0.5)
    with pooler.connect() as holder, pooler.connect() as other:
        holder.execute("begin")
        assert other.execute("select 1").fetchone() == (1,)
    assert "taking connection from reserve_pool" in pooler.log_text()


def test_round_robin(make: MakePooler) -> None:
    """LIFO uses one warm server again and again; server_round_robin goes through all."""
    asked = "select pg_backend_pid()"
    for round_robin, expected in ((0, 1), (1, 3)):
        pooler = make(default_pool_size=3, server_round_robin=round_robin)
        with ExitStack() as stack:
            busy = [stack.enter_context(pooler.connect()) for _ in range(3)]
            for conn in busy:
                conn.execute("begin")
            for conn in busy:
                conn.execute("commit")
        assert len({pooler.query(asked)[0] for _ in range(6)}) == expected


def test_session_reset(make: MakePooler) -> None:
    """In session mode the next client finds a clean server, the same one."""
    pooler = make(pool_mode="session", default_pool_size=1)
    with pooler.connect() as conn:
        first = conn.execute("select pg_backend_pid()").fetchone()
        conn.execute("create temp table scratch(x int)")
        conn.execute("set work_mem = '77MB'")
    with pooler.connect() as conn:
        assert conn.execute("select pg_backend_pid(), to_regclass('scratch')").fetchone() == (*(first or ()), None)
        assert conn.execute("show work_mem").fetchone() != ("77MB",)


def test_reset_query_always(make: MakePooler) -> None:
    """server_reset_query_always cleans in transaction mode too."""
    pooler = make(default_pool_size=1, server_reset_query_always=1)
    with pooler.connect() as conn:
        conn.execute("set work_mem = '77MB'")
        assert conn.execute("show work_mem").fetchone() != ("77MB",)


def test_connect_query(make: MakePooler, pg15: Postgres) -> None:
    """connect_query runs once before the first use; its failure is only logged."""
    entry = database(pg15, connect_query="'set work_mem = ''66MB'''")
    pooler = make({"app": entry, "bad": database(pg15, connect_query="'selec'")})
    assert pooler.query("show work_mem") == [("66MB",)]
    assert pooler.query("select 1", dbname="bad") == [(1,)]
    assert "error while executing exec_on_query" in pooler.log_text()


@pytest.mark.parametrize("query", ["<empty>", "select 1"])
def test_check_query_before_every_use(make: MakePooler, pg15: Postgres, query: str) -> None:
    """With server_check_delay 0 each use is preceded by a check, and the same server goes on."""
    pooler = make(server_check_delay=0, server_check_query=query)
    assert len({pooler.query("select pg_backend_pid()")[0] for _ in range(4)}) == 1


def test_a_dead_idle_server_is_not_handed_out(make: MakePooler, pg15: Postgres) -> None:
    """After the backends are gone the next query gets a new one."""
    pooler = make()
    with pooler.connect() as conn:
        conn.execute("select 1")
        pg15.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'alice'")
        until(lambda: "server conn crashed?" in pooler.log_text() or "got dirty" in pooler.log_text(), "the loss seen")
        assert conn.execute("select 1").fetchone() == (1,)


def test_round_after_lifetime_zero(make: MakePooler) -> None:
    """server_lifetime 0: every transaction gets a fresh server."""
    pooler = make(server_lifetime=0)
    assert len({pooler.query("select pg_backend_pid()")[0] for _ in range(3)}) == 3


@pytest.mark.parametrize("user", ["plain_user", "md5_user", "scram_user"])
def test_server_passwords(make: MakePooler, user: str) -> None:
    """Cleartext, md5 and SCRAM requests of the server are answered from the user list."""
    assert make().query("select current_user", user=user) == [(user,)]


def test_wrong_server_password(make: MakePooler, pg15: Postgres) -> None:
    """The server's refusal reaches the client with its SQLSTATE."""
    pooler = make({"app": database(pg15, user="scram_user", password="wrong")})
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect()
    text = "server login failed: FATAL password authentication failed"
    until(lambda: text in pooler.log_text(), "the server's words in the log")
    assert "wrong" not in pooler.log_text()


def test_scram_pass_through(make: MakePooler, pg15: Postgres) -> None:
    """With only the SCRAM verifier on file, the client's own login opens the server, also again after a reconnect."""
    verifier = pg15.query("select rolpassword from pg_authid where rolname = 'scram_user'")[0][0]
    pooler = make(userlist={"scram_user": verifier}, auth_type="scram-sha-256", server_lifetime=0)
    with pooler.connect(user="scram_user", password="scram-secret") as conn:
        pids = {conn.execute("select pg_backend_pid()").fetchone() for _ in range(3)}
    assert len(pids) == 3


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
def test_server_tls_modes(make: MakePooler, pg15: Postgres, authority: Authority, mode: str) -> None:
    """Every server_tls_sslmode reaches a TLS server, encrypted in all modes but disable."""
    entry = database(pg15) if mode != "verify-full" else database(pg15).replace(pg15.host, "localhost")
    pooler = make({"app": entry}, server_tls_sslmode=mode, server_tls_ca_file=authority.ca_file)
    asked = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
    assert pooler.query(asked) == [(mode != "disable",)]


def test_scram_plus(make: MakePooler) -> None:
    """Over TLS the server's SCRAM-SHA-256-PLUS works, bound to its certificate."""
    pooler = make(server_tls_sslmode="require")
    assert pooler.query("select current_user", user="tls_user") == [("tls_user",)]


def test_wrong_certificate_is_refused(make: MakePooler, pg15: Postgres) -> None:
    """verify-full trusts no other authority; the client waits for a server that never comes."""
    stranger = Authority()
    pooler = make(server_tls_sslmode="verify-full", server_tls_ca_file=stranger.ca_file, query_wait_timeout=2)
    with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
        pooler.connect()
    assert "TLS handshake error" in pooler.log_text()


def plain_only(server: ServerSide) -> None:
    """Answers N to SSLRequest, then serves."""
    server.log_in()
    server.read()
    server.answer_rows("plain")
    server.hold()


@pytest.mark.parametrize("mode", ["allow", "prefer"])
def test_tls_is_optional(make: MakePooler, mode: str) -> None:
    """allow and prefer accept a server without TLS."""
    with FakeServer(plain_only) as server:
        pooler = make({"app": server.database()}, server_tls_sslmode=mode)
        assert pooler.query("select 1") == [("plain",)]


def test_tls_is_required(make: MakePooler) -> None:
    """require does not go on without TLS."""
    with FakeServer(plain_only) as server:
        pooler = make({"app": server.database()}, server_tls_sslmode="require", query_wait_timeout=1)
        with pytest.raises(psycopg.OperationalError, match="query_wait_timeout"):
            pooler.connect()
        assert "closing because: server refused SSL" in pooler.log_text()


def test_starting_server_keeps_clients_waiting(make: MakePooler) -> None:
    """57P03 is not passed on: the client gets in when the server has started."""

    def script(server: ServerSide) -> None:
        server.read_startup()
        if server.number == 0:
            server.send(m.error("57P03", "the database system is starting up", "FATAL"))
            return
        server.welcome()
        server.read()
        server.answer_rows("up")
        server.hold()

    with FakeServer(script) as server:
        pooler = make({"app": server.database()}, server_login_retry=0.2)
        assert pooler.query("select 1") == [("up",)]


def test_cached_login_error(make: MakePooler) -> None:
    """A logged-in client of a pool whose server refuses us is told the cached reason, and why it was not tried."""

    def script(server: ServerSide) -> None:
        server.read_startup()
        if server.number == 0:
            server.welcome()
            server.read()
            return
        server.send(m.error("28000", "no entry for you", "FATAL"))

    with FakeServer(script) as server:
        pooler = make({"app": server.database()}, server_login_retry=30)
        with pooler.connect() as first, pooler.connect() as second:
            with pytest.raises(psycopg.Error):
                first.execute("select 1")
            with pytest.raises(psycopg.OperationalError, match="no entry for you"):
                second.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="server login has been failing, cached error: no entry"):
            pooler.query("select 1")


def test_huge_iteration_count_stalls_nobody(make: MakePooler, pg15: Postgres) -> None:
    """A server that asks for a million SCRAM rounds costs a thread; other clients are served meanwhile."""

    def script(server: ServerSide) -> None:
        server.read_startup()
        server.send(m.auth(10, b"SCRAM-SHA-256\0\0"))
        first = server.read().payload
        nonce = first.rpartition(b"r=")[2]
        server.send(m.auth(11, b"r=" + nonce + b"more,s=QUFBQUFBQUE=,i=1000000"))
        server.read()

    with FakeServer(script) as server:
        pooler = make({"slow": server.database(), "app": database(pg15)}, client_login_timeout=5)
        pooler.query("select 1")

        def connect() -> None:
            with pytest.raises(psycopg.Error):
                pooler.connect("slow")

        stuck = threading.Thread(target=connect)
        stuck.start()
        server.wait_for(1)
        for _ in range(20):
            assert pooler.query("select 1") == [(1,)]
        stuck.join()
