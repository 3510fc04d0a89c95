"""Replication clients: a server for each, what it is asked for, when it goes, and that no limit of time holds."""

from __future__ import annotations

from typing import Any

import pytest

from pgshoal.worker.records import ServerState
from tests.support import messages as m
from tests.worker.replicas import QUERY, asked, enter, idle_server, streaming


@pytest.mark.parametrize(("kind", "word"), [("database", "database"), ("true", "yes"), ("on", "yes"), ("1", "yes")])
def test_server_is_asked_for_the_same(benches: Any, kind: str, word: str) -> None:
    """Kind, options and tracked parameters of the client; the entry's own where the client says nothing."""
    bench = benches({"app": "application_name=entry timezone=Asia/Tokyo dbname=real"})
    enter(bench, kind, application_name="mine", options="-c wal_sender_timeout=7s -c geqo=off")
    (server,) = bench.new_servers()
    assert asked(bench, server) == {
        "database": "real",
        "user": "alice",
        "replication": word,
        "application_name": "mine",
        "timezone": "Asia/Tokyo",
        "options": "-c wal_sender_timeout=7s -c geqo=off",
    }


def test_false_is_an_ordinary_client(benches: Any) -> None:
    """`replication=off` shares the pool."""
    bench = benches()
    enter(bench, "off")
    (server,) = bench.new_servers()
    assert "replication" not in asked(bench, server)
    assert server in bench.worker.pools.by_key["app", "alice"].servers


def test_client_is_told_what_its_server_reported(benches: Any) -> None:
    """Not what the pool knows; and nothing is set on the server, whatever the client has asked for."""
    bench = benches()
    idle_server(bench)
    client = enter(bench, TimeZone="asia/tokyo", search_path="x")
    (server,) = bench.new_servers()
    bench.welcome(server, TimeZone="Asia/Tokyo")
    heard = bench.heard(client)
    assert m.parameter_status("TimeZone", "Asia/Tokyo") in heard
    assert m.parameter_status("search_path", "x") in heard  # which this server does not report
    assert m.parameter_status("pgbouncer.pool_mode", "session") in heard
    assert heard.endswith(m.ready())
    bench.heard(server)
    bench.say(client, QUERY)
    assert bench.heard(server) == QUERY


def test_servers_are_never_shared(benches: Any) -> None:
    """A replication client takes no idle server, and nobody gets its own; it ends with it, without a reset."""
    bench = benches(server_reset_query="DISCARD ALL", server_reset_query_always=1, pool_mode="session")
    ordinary = bench.login()
    (shared,) = bench.serve(1)
    client = enter(bench)
    (own,) = bench.serve(1)
    bench.say(client, QUERY)
    bench.answer(own)
    bench.say(ordinary, m.query("select 1"))
    assert b"select 1" in bench.heard(shared)
    assert b"select 1" not in bench.heard(own)
    bench.say(client, m.message(b"X"))
    assert not bench.alive(own)
    assert bench.alive(shared)
    assert bench.log.has("closing because: replication client was closed")
    assert [pool.stream for pool in bench.worker.pools.by_id.values()] == [None]


def test_server_is_kept_between_queries(benches: Any) -> None:
    """In a transaction pool too: every query of the client goes to the same server."""
    bench = benches()
    client = enter(bench)
    (server,) = bench.serve(1)
    for _ in range(3):
        bench.say(client, QUERY)
        assert bench.heard(server).endswith(QUERY)
        bench.answer(server)
    assert bench.new_servers() == []


def test_first_word_before_the_welcome(benches: Any) -> None:
    """What a client sends while it waits is kept, and goes to its server once, in order."""
    bench = benches()
    client = enter(bench)
    bench.say(client, QUERY)
    (server,) = bench.new_servers()
    bench.welcome(server)
    assert bench.heard(server).endswith(QUERY)
    bench.answer(server)
    assert bench.heard(client).endswith(m.command_complete("SELECT 1") + m.ready())
    assert bench.new_servers() == []


def test_stream_goes_both_ways(benches: Any) -> None:
    """CopyData in both directions; the end of both sides leaves the session in order."""
    bench = benches()
    client, server = streaming(bench)
    wal, status = m.message(b"d", b"w" * 70_000), m.message(b"d", b"r" * 34)
    done = m.message(b"c")
    bench.say(server, wal)
    bench.say(client, status)
    assert bench.heard(client) == wal
    assert bench.heard(server) == status
    bench.say(server, done)
    bench.say(client, done)
    assert bench.heard(server) == done
    end = m.row_description("next") + m.data_row("2") + m.command_complete("SELECT") + m.command_complete("START")
    bench.say(server, end, m.ready())
    assert bench.heard(client) == done + end + m.ready()
    bench.say(client, QUERY)
    assert bench.heard(server) == QUERY


@pytest.mark.parametrize("how", ["eof", "terminate"])
def test_leaving_in_a_stream(benches: Any, how: str) -> None:
    """The server goes with its client, the pool is gone, and the slot is free again."""
    bench = benches(default_pool_size=1)
    client, server = streaming(bench)
    if how == "eof":
        bench.leave(client)
    else:
        bench.say(client, m.message(b"X"))
    assert not bench.alive(server)
    bench.pass_time(0.4)
    assert not bench.worker.pools.by_id
    enter(bench)
    bench.serve(1)


@pytest.mark.parametrize("stage", ["connecting", "logging in"])
def test_leaving_during_the_servers_login(benches: Any, stage: str) -> None:
    """The attempt is given up, and what the server says later reaches nobody."""
    bench = benches(default_pool_size=1)
    client = enter(bench)
    (server,) = bench.new_servers()
    if stage == "logging in":
        asked(bench, server)
    bench.leave(client)
    assert not bench.alive(server)
    assert not bench.worker.pools.by_id
    assert bench.worker.pools.databases["app"].server_connections == 0
    assert bench.worker.pools.databases["app"].client_connections == 0
    enter(bench)
    bench.serve(1)


def test_refused_login_is_its_own_affair(benches: Any) -> None:
    """The client hears `login failed`, the log why; ordinary clients of the same pool are not concerned."""
    bench = benches()
    client = enter(bench)
    (server,) = bench.new_servers()
    bench.connect(server)
    bench.say(server, b"N", m.error("28000", "no pg_hba.conf entry", "FATAL"))
    assert bench.error(client) == "login failed"
    assert bench.log.has("S: login failed: FATAL: no pg_hba.conf entry")
    assert not bench.worker.pools.by_id
    ordinary = bench.login()
    bench.serve(1)
    assert bench.heard(ordinary).endswith(m.ready())


def test_server_that_is_down_is_tried_again(benches: Any) -> None:
    """The client waits, and after server_login_retry there is another attempt."""
    bench = benches(server_login_retry=3.0)
    client = enter(bench)
    (server,) = bench.new_servers()
    bench.leave(server)
    assert bench.heard(client) == b""
    bench.pass_time(2.9)
    assert bench.new_servers() == []
    bench.pass_time(0.2)
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())


def test_no_limit_of_time_holds_for_a_stream(benches: Any) -> None:
    """Timeouts of queries, transactions and idle clients, and the ages of servers, are for shared pools."""
    bench = benches(
        query_timeout=1.0,
        idle_transaction_timeout=1.0,
        transaction_timeout=1.0,
        client_idle_timeout=1.0,
        server_idle_timeout=1.0,
        server_lifetime=1.0,
    )
    client, server = streaming(bench)
    silent = enter(bench)
    (other,) = bench.serve(1)
    bench.heard(silent)
    for _ in range(5):
        bench.pass_time(2.0)
    assert bench.error(client) == bench.error(silent) == ""
    assert bench.alive(server)
    assert bench.alive(other)


@pytest.mark.parametrize("state", ["silent", "streaming"])
def test_reconnect_closes_at_once(benches: Any, state: str) -> None:
    """Such a server is never free, so it is not waited for."""
    bench = benches()
    if state == "streaming":
        client, server = streaming(bench)
    else:
        client = enter(bench)
        (server,) = bench.serve(1)
    bench.worker.pause.reconnect(None)
    bench.worker.drain()
    assert not bench.alive(server)
    assert bench.error(client) == "database configuration changed"
    bench.pass_time(0.4)
    assert not bench.worker.pools.by_id


def test_reconnect_during_login(benches: Any) -> None:
    """The client is told, because its server would be the wrong one."""
    bench = benches()
    client = enter(bench)
    (server,) = bench.new_servers()
    bench.worker.pause.reconnect(None)
    bench.worker.drain()
    assert not bench.alive(server)
    assert bench.error(client) == "connect string changed"


def test_pause_waits_for_streams_and_holds_logins(benches: Any) -> None:
    """PAUSE is reached when the client has left; whoever logs in meanwhile gets its server at RESUME."""
    bench = benches()
    client, server = streaming(bench)
    early = enter(bench)
    (under_way,) = bench.new_servers()
    reached: list[bool] = []
    bench.worker.pause.pause(None, reached.append)
    bench.worker.drain()
    assert reached == []
    assert not bench.alive(under_way)
    assert bench.heard(early) == b""
    wal = m.message(b"d", b"wal")
    bench.say(server, wal)
    assert bench.heard(client) == wal
    bench.leave(client)
    assert reached == [True]
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    bench.worker.pause.resume(None)
    bench.worker.drain()
    bench.serve(1)
    assert bench.heard(early).endswith(m.ready())


def test_first_word_in_a_pause(benches: Any) -> None:
    """A client that has its server already is not held up."""
    bench = benches()
    client = enter(bench)
    (server,) = bench.serve(1)
    bench.heard(server)
    bench.worker.pause.pause(None, lambda reached: None)
    bench.say(client, QUERY)
    assert bench.heard(server) == QUERY


def test_kill_ends_it(benches: Any) -> None:
    """KILL tells the client and closes its server."""
    bench = benches()
    client, server = streaming(bench)
    bench.worker.pause.kill(bench.worker.pools.databases["app"])
    bench.worker.drain()
    assert bench.error(client) == "database removed"
    assert not bench.alive(server)
    assert not bench.worker.pools.by_id


def test_kill_during_the_servers_login(benches: Any) -> None:
    """KILL reaches those who still wait for their server, and the pools of others behind them."""
    bench = benches()
    clients = [enter(bench), enter(bench), bench.login()]
    bench.worker.pause.kill(bench.worker.pools.databases["app"])
    bench.worker.drain()
    assert [bench.error(client) for client in clients] == ["database removed"] * 3
    bench.pass_time(0.4)
    assert not bench.worker.servers.by_conn
    assert not bench.worker.pools.by_id


@pytest.mark.parametrize("mode", ["servers", "clients"])
def test_shutdown_waits_for_streams(benches: Any, mode: Any) -> None:
    """Both ways to end wait for the client; one without a server yet is refused where servers are awaited."""
    bench = benches()
    client, _ = streaming(bench)
    early = enter(bench)
    bench.worker.pause.shutdown(mode)
    bench.worker.drain()
    bench.pass_time(0.4)
    assert bench.error(early) == ("server shutting down" if mode == "servers" else "")
    assert bench.engine.facts(client).mode == "linked"


def test_crash_in_a_stream(benches: Any) -> None:
    """The client is told that its server is gone."""
    bench = benches()
    client, server = streaming(bench)
    bench.leave(server)
    assert bench.error(client) == "server conn crashed?"
    bench.pass_time(0.4)
    assert not bench.worker.pools.by_id


def test_server_ends_while_its_client_is_silent(benches: Any) -> None:
    """The client hears the server's last words, or that there were none."""
    bench = benches()
    first = enter(bench)
    (server,) = bench.serve(1)
    bench.heard(first)
    bench.say(server, m.error("57P01", "terminating connection", "FATAL"))
    assert bench.error(first) == "terminating connection"
    second = enter(bench)
    (server,) = bench.serve(1)
    bench.heard(second)
    bench.leave(server)
    assert bench.error(second) == "server conn crashed?"
    assert not bench.worker.pools.by_id


def test_connect_query_needs_sql(benches: Any) -> None:
    """It runs for logical replication; a server for physical replication knows no SQL."""
    bench = benches({"app": "connect_query='select 7'"})
    client = enter(bench)
    (server,) = bench.serve(1)
    assert bench.heard(server).endswith(m.query("select 7"))
    assert bench.heard(client)[-6:] != m.ready()
    bench.answer(server)
    assert bench.heard(client).endswith(m.ready())
    client = enter(bench, "true")
    (server,) = bench.serve(1)
    assert b"select 7" not in bench.heard(server)
    assert bench.heard(client).endswith(m.ready())


def test_counters_outlive_the_client(benches: Any) -> None:
    """What a stream has carried stays in its database's totals."""
    bench = benches()
    client, server = streaming(bench)
    wal = m.message(b"d", b"w" * 1000)
    bench.say(server, wal)
    before = bench.worker.stats.by_database()["app"]
    assert before.server_bytes >= len(wal)
    bench.leave(client)
    bench.pass_time(0.4)
    assert not bench.worker.pools.by_id
    assert bench.worker.stats.by_database()["app"].server_bytes == before.server_bytes
    assert bench.worker.stats.by_database()["app"].client_login_count == 1


def test_streams_do_not_move(benches: Any) -> None:
    """A process that is being replaced keeps them: their servers cannot go with them."""
    bench = benches()
    silent = enter(bench)
    (server,) = bench.serve(1)
    bench.worker.moving.leave()
    bench.worker.drain()
    assert silent in bench.worker.front.clients
    assert bench.worker.servers.by_conn[server].state is ServerState.STREAM
    bench.say(silent, QUERY)
    assert bench.heard(server).endswith(QUERY)


def test_login_attempt_is_logged(benches: Any) -> None:
    """In PgBouncer's words."""
    bench = benches()
    enter(bench)
    enter(bench, "true")
    enter(bench, "no")
    lines = [line.rpartition("tls=no ")[2] for line in bench.log.lines if "login attempt" in line]
    assert lines == ["replication=database", "replication=yes", "replication=no"]
