"""Servers from open to close: growth, release, reset, check, limits, failures; on a manual clock."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import messages as m


def test_first_client_opens_one_server_and_is_welcomed_by_it(benches: Any) -> None:
    """Three clients that wait for the welcome need one server, and all get in when it has logged in."""
    bench = benches()
    clients = [bench.login() for _ in range(3)]
    bench.serve(1)
    for client in clients:
        assert bench.heard(client).endswith(m.ready())


def test_pool_grows_with_demand_up_to_its_size(benches: Any) -> None:
    """Five queries at once, pool_size 3: three servers, and no more attempts while full."""
    bench = benches(default_pool_size=3)
    clients = [bench.login() for _ in range(5)]
    (first,) = bench.serve(1)
    for client in clients:
        bench.heard(client)
        bench.say(client, m.query("select 1"))
    others = bench.serve(2)
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    for server in (first, *others, first, others[0]):
        bench.answer(server)
    for client in clients:
        assert bench.heard(client).endswith(m.ready())


def test_attempts_at_once_are_bounded(benches: Any) -> None:
    """server_connect_parallel bounds attempts under way; each that succeeds makes room for the next."""
    bench = benches(server_connect_parallel=2)
    clients = [bench.login() for _ in range(6)]
    bench.serve(1)
    for client in clients:
        bench.say(client, m.query("select 1"))
    one, two = bench.new_servers()
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    bench.welcome(one)
    assert len(bench.new_servers()) == 1
    assert bench.alive(two)


def test_refused_login_reaches_all_who_wait(benches: Any) -> None:
    """The server's words and SQLSTATE go to the clients; nothing is tried again before server_login_retry."""
    bench = benches(server_login_retry=15.0)
    client = bench.login()
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.say(server, b"N", m.error("28000", "no entry", "FATAL"))
    heard = bench.heard(client)
    assert b"C28000\0" in heard
    assert b"Mno entry\0" in heard
    bench.login()
    bench.pass_time(14)
    assert bench.new_servers() == []
    bench.pass_time(1.1)
    assert len(bench.new_servers()) == 1


def test_starting_server_is_not_told(benches: Any) -> None:
    """57P03 leaves clients waiting."""
    bench = benches(server_login_retry=1.0)
    client = bench.login()
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.say(server, b"N", m.error("57P03", "starting up", "FATAL"))
    assert bench.heard(client) == b""
    bench.pass_time(1.1)
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())


def test_cached_error_for_who_comes_later(benches: Any) -> None:
    """A query in a pool whose last login was refused gets the cached reason at once."""
    bench = benches(server_login_retry=15.0, server_idle_timeout=1.0)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.leave(server)
    bench.say(client, m.query("select 1"))
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.say(server, b"N", m.error("28P01", "bad secret", "FATAL"))
    assert bench.error(client) == "bad secret"
    late = bench.login()
    assert bench.heard(late).endswith(m.ready())
    bench.say(late, m.query("select 1"))
    assert bench.error(late) == "server login has been failing, cached error: bad secret (server_login_retry)"


def test_connect_failure_keeps_clients_waiting(benches: Any) -> None:
    """Nobody is told that a host is down; they wait until query_wait_timeout."""
    bench = benches(server_login_retry=1.0, query_wait_timeout=10.0)
    client = bench.login()
    (server,) = bench.new_servers()
    bench.leave(server)
    assert bench.heard(client) == b""
    assert not bench.alive(server)
    for _ in range(9):
        bench.pass_time(1.1)
        for conn in bench.new_servers():
            bench.leave(conn)
    bench.pass_time(1.1)
    assert bench.error(client) == "query_wait_timeout"


def test_connect_timeout_covers_the_whole_login(benches: Any) -> None:
    """A server that falls silent in the middle of its login is given up."""
    bench = benches(server_connect_timeout=5.0)
    bench.login()
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.say(server, b"N", m.auth(0))
    bench.pass_time(4.9)
    assert bench.alive(server)
    bench.pass_time(0.2)
    assert not bench.alive(server)
    assert bench.log.has("closing because: connect timeout (age=5s)")


def test_reset_query_between_sessions(benches: Any) -> None:
    """A released session server runs the reset query, also when that fails, and then serves the next in line."""
    bench = benches(pool_mode="session", default_pool_size=1)
    first, second = bench.login(), bench.login()
    (server,) = bench.serve(1)
    bench.say(first, m.query("select 1"))
    bench.answer(server)
    bench.say(second, m.query("select 2"))
    bench.heard(server)
    bench.say(first, m.message(b"X"))
    assert bench.heard(server) == m.query("DISCARD ALL")
    bench.say(server, m.error("0A000", "no"), m.ready())
    assert bench.heard(server) == m.query("select 2")


def test_reset_that_leaves_a_transaction_closes(benches: Any) -> None:
    """A reset query that ends in any state but idle costs the server."""
    bench = benches(server_reset_query_always=True, server_reset_query="begin")
    client = bench.login()
    (server,) = bench.serve(1)
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    bench.answer(server, "T")
    assert not bench.alive(server)
    assert bench.log.has("closing because: reset query failed")


def test_check_query_after_the_delay(benches: Any) -> None:
    """A server idle longer than server_check_delay is checked when somebody wants it, and then used."""
    bench = benches(server_check_query="<empty>", server_check_delay=30.0)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.pass_time(31)
    bench.heard(server)
    bench.say(client, m.query("select 1"))
    assert bench.heard(server) == m.query("")
    bench.say(server, m.message(b"I"), m.ready())
    assert bench.heard(server) == m.query("select 1")
    assert bench.new_servers() == []


def test_failed_check_opens_another(benches: Any) -> None:
    """A server that dies in its check is replaced; the client only waits longer."""
    bench = benches(server_check_query="<empty>", server_check_delay=30.0)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.heard(client)
    bench.pass_time(31)
    bench.say(client, m.query("select 1"))
    bench.leave(server)
    (fresh,) = bench.serve(1)
    assert bench.heard(client) == b""
    bench.answer(fresh)
    assert bench.heard(client).endswith(m.ready())


def test_idle_timeout_and_lifetime(benches: Any) -> None:
    """Idle servers go after server_idle_timeout."""
    bench = benches(server_idle_timeout=60.0)
    bench.login()
    (server,) = bench.serve(1)
    bench.pass_time(60)
    assert bench.alive(server)
    bench.pass_time(0.4)
    assert not bench.alive(server)
    assert bench.log.has("closing because: server idle timeout")


def test_lifetime_reaches_a_busy_server(benches: Any) -> None:
    """A server that is linked when its time is over goes at its release, and is replaced for who waits."""
    bench = benches(server_lifetime=100.0, default_pool_size=1)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.say(client, m.query("select 1"))
    bench.pass_time(101)
    assert bench.alive(server)
    bench.answer(server)
    assert not bench.alive(server)
    assert bench.log.has("closing because: server lifetime over")
    bench.say(client, m.query("select 2"))
    bench.serve(1)


def test_min_pool_size(benches: Any) -> None:
    """A pool with a client, or with a forced user, is kept at its minimum."""
    bench = benches({"app": "", "forced": "user=bob"}, min_pool_size=2)
    bench.pass_time(0.4)
    assert len(bench.new_servers()) == 2
    bench.login()
    assert len(bench.new_servers()) == 1
    bench.pass_time(0.4)
    assert len(bench.new_servers()) == 1


def test_shrinking(benches: Any) -> None:
    """After pool_size was lowered, surplus idle servers go at the next tick."""
    bench = benches(default_pool_size=3)
    clients = [bench.login() for _ in range(3)]
    servers = bench.serve(1)
    for client in clients:
        bench.say(client, m.query("select 1"))
    servers += bench.serve(2)
    for server in servers:
        bench.answer(server)
    database = bench.worker.pools.databases["app"]
    database.config = type(database.config)("app", hosts=("127.0.0.1",), pool_size=1)
    bench.pass_time(0.4)
    assert sum(map(bench.alive, servers)) == 1
    assert bench.log.has("closing because: too many servers in the pool")


def test_accounts_are_exact(benches: Any) -> None:
    """After every way to end, the counts of database and user are zero."""
    bench = benches(server_idle_timeout=1.0)
    database, user = bench.worker.pools.databases["app"], bench.worker.pools.users["alice"]
    client = bench.login()
    (first,) = bench.new_servers()
    assert (database.server_connections, user.server_connections) == (1, 1)
    bench.leave(first)
    assert (database.server_connections, user.server_connections) == (0, 0)
    bench.pass_time(16)
    bench.serve(1)
    bench.say(client, m.message(b"X"))
    bench.pass_time(2)
    assert (database.server_connections, user.server_connections) == (0, 0)
    assert (database.client_connections, user.client_connections) == (0, 0)


def test_fair_shares_under_a_database_limit(benches: Any) -> None:
    """Two users, one limit: the one that came first gives servers back while both wait."""
    bench = benches(max_db_connections=4, default_pool_size=20)
    clients = [bench.login("alice") for _ in range(8)]
    servers = bench.serve(1)
    for client in clients:
        bench.say(client, m.query("select 1"))
    servers += bench.serve(3)
    late = [bench.login("bob") for _ in range(8)]
    owners: dict[str, int] = {}
    for _ in range(30):
        for server in [s for s in servers if bench.alive(s)]:
            bench.answer(server)
        for conn in bench.new_servers():
            bench.welcome(conn)
            servers.append(conn)
        for client in (*clients, *late):
            if bench.engine.facts(client).mode == "parked":
                bench.say(client, m.query("select 1"))
        bench.pass_time(0.4)
        owners = {}
        for record in bench.worker.servers.by_conn.values():
            owners[record.pool.user.name] = owners.get(record.pool.user.name, 0) + 1
    assert sum(owners.values()) <= 4
    assert min(owners.get("alice", 0), owners.get("bob", 0)) >= 1
    assert abs(owners["alice"] - owners["bob"]) <= 1


def test_nothing_is_sent_behind_half_a_message(benches: Any) -> None:
    """A server closed while its client is inside a message gets no Terminate, which would complete it."""
    bench = benches(transaction_timeout=5.0)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.say(client, m.query("begin"))
    bench.answer(server, "T")
    bench.heard(server)
    bench.say(client, m.query("delete from t where name = 'abcdefgh'")[:-9])
    sent = bench.heard(server)
    bench.worker.servers.close(bench.worker.servers.by_conn[server], "test")
    assert b"X\0\0\0\4" not in sent + bench.heard(server)


def test_an_idle_server_is_told_goodbye(benches: Any) -> None:
    """A server that is closed in peace gets a Terminate, so that PostgreSQL logs no lost connection."""
    bench = benches()
    bench.login()
    (server,) = bench.serve(1)
    bench.heard(server)
    assert bench.engine.take(server)
    bench.worker.servers.close(bench.worker.servers.by_conn[server], "test")
    assert bench.heard(server) == m.message(b"X")


def test_an_address_the_engine_has_no_use_for(benches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a failed attempt like any other: not counted, logged, tried again later."""
    bench = benches(server_login_retry=1)
    connect, calls = bench.engine.connect, []

    def refuse(address: object, options: object) -> int:
        calls.append(address)
        raise ValueError("no such interface")

    monkeypatch.setattr(bench.engine, "connect", refuse)
    client = bench.login()
    assert bench.log.has("no such interface")
    assert bench.worker.pools.databases["app"].server_connections == 0
    bench.pass_time(0.5)
    assert len(calls) == 1
    monkeypatch.setattr(bench.engine, "connect", connect)
    bench.pass_time(1)
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())


def test_a_fault_in_growth_does_not_end_the_worker(benches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged as an internal error, and the next round tries again."""
    bench = benches()

    def fail(pool: object) -> None:
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(bench.worker.servers, "open", fail)
        client = bench.login()
        assert bench.log.has("internal error while looking for servers")
    bench.pass_time(0.4)
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())


def test_a_busy_old_server_whose_client_is_thrown_out(benches: Any) -> None:
    """The round in which a limit ends client and server goes on to the end."""
    bench = benches(server_lifetime=1, query_timeout=1)
    client = bench.login()
    (server,) = bench.serve(1)
    bench.say(client, m.query("select pg_sleep(9)"))
    bench.pass_time(3)
    assert not bench.alive(server)
    assert not bench.log.has("internal error")


def test_attempts_without_an_address_have_their_line(benches: Any) -> None:
    """Each one that ends because its host has no address is told like a closed server, unless nobody wants to know."""
    for wanted in (True, False):
        bench = benches(server_login_retry=1.0, log_disconnections=wanted)
        bench.worker.resolver.find = lambda host, found: found([])
        bench.login()
        bench.pass_time(1.1)
        line = "S-0x0: app/alice@(bad-af):0 closing because: server DNS lookup failed (age=0s)"
        assert bench.log.lines.count(line) == (2 if wanted else 0)
        assert bench.worker.servers.by_conn == {}
