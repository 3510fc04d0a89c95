"""Clients from their welcome to their end."""

from __future__ import annotations

import pytest

from pgshoal.config.model import UserConfig
from pgshoal.errors import refuse
from pgshoal.worker import clients
from pgshoal.worker.log import ERROR
from pgshoal.worker.records import Welcome
from tests.support import messages as m
from tests.worker.stub import REPORTED, Bench


def test_clients_wait_for_the_pools_first_server_and_are_welcomed_in_order() -> None:
    """Nothing is sent until the welcome is there; a server is asked for."""
    with Bench(cold=True) as bench:
        first, second = bench.login(), bench.login(application_name="two")
        assert (first.got, second.got) == (b"", b"")
        assert first.client is not None
        pool = first.client.pool
        assert ("grow", pool) in bench.engine.calls
        assert list(pool.login_queue) == [first.conn, second.conn]
        pool.welcome = Welcome(list(REPORTED))
        clients.welcome_waiting(bench.worker, pool)
        assert list(bench.engine.admitted) == [first.conn, second.conn]
        assert first.messages()[-1].kind == second.messages()[-1].kind == "Z"
        assert pool.login_queue == {}
        assert bench.worker.front.unwelcomed == {}


def test_a_servers_refusal_reaches_all_who_wait() -> None:
    """Its text and SQLSTATE, to every client of the pool that waits for it."""
    with Bench(cold=True) as bench:
        first, second = bench.login(), bench.login()
        assert first.client is not None
        refused = refuse("server_login_error", sqlstate="3D000", text='database "x" does not exist')
        clients.refuse_waiting(bench.worker, first.client.pool, refused)
        assert first.refused() == second.refused() == 'database "x" does not exist'
        assert m.error_fields(bench.engine.closed[first.conn].data[5:])["C"] == "3D000"


def test_a_client_that_leaves_while_it_waits_is_forgotten_everywhere() -> None:
    """No table keeps it, and counters stand at zero."""
    with Bench(cold=True) as bench:
        talk = bench.login()
        assert talk.client is not None
        client = talk.client
        talk.gone()
        assert (client.pool.clients, client.pool.login_queue) == ({}, {})
        assert bench.worker.front.connections() == 0
        assert bench.worker.front.unwelcomed == {}
        assert bench.worker.front.find_key(client.cancel_key) is None
        assert client.database.client_connections == client.user.client_connections == 0


def test_both_limits_of_waiting_for_the_first_server() -> None:
    """query_wait_timeout counts from the end of the login, client_login_timeout from the connect."""
    with Bench(cold=True, query_wait_timeout=20.0, client_login_timeout=60.0) as bench:
        talk = bench.login()
        bench.engine.clock_us += 21_000_000
        clients.expire(bench.worker, bench.engine.clock_us)
        assert talk.refused() == "query_wait_timeout"
    with Bench(cold=True, query_wait_timeout=0.0, client_login_timeout=60.0) as bench:
        talk = bench.login()
        bench.engine.clock_us += 61_000_000
        clients.expire(bench.worker, bench.engine.clock_us)
        assert talk.refused() == "client_login_timeout (server down)"


def test_login_notify_message_stands_before_ready() -> None:
    """The NOTICE is the last but one message of the welcome."""
    with Bench(login_notify_message="hello") as bench:
        got = bench.login().messages()
        assert [message.kind for message in got[-3:]] == ["K", "N", "Z"]
        assert m.error_fields(got[-2].payload) == {"S": "NOTICE", "C": "00000", "M": "hello"}


@pytest.mark.parametrize(
    ("key", "detail", "text"),
    [
        ("server_crashed", "", "server conn crashed?"),
        ("server_closed", "", "server connection closed"),
        ("server_closed", "query timeout", "query timeout"),
        ("bad_packet_header", "5100000003", "bad packet header: '5100000003'"),
        ("unknown_pkt", "", "unknown pkt"),
        ("statement_mode_transaction", "", "transaction blocks not allowed in statement pooling mode"),
        ("something new", "", "something new"),
    ],
)
def test_faults_are_told_in_pgbouncers_words(key: str, detail: str, text: str) -> None:
    """Each FAULT of the engine ends the client with the text of that key."""
    with Bench() as bench:
        talk = bench.login()
        talk.fault(key, detail)
        assert talk.refused() == text
        assert bench.worker.front.connections() == 0


def test_a_server_that_refuses_a_parameter_is_quoted_in_the_log() -> None:
    """The client gets the general text; the server's own words are for the operator."""
    with Bench() as bench:
        talk = bench.login()
        talk.fault("invalid_server_parameter", 'invalid value for parameter "TimeZone"')
        assert talk.refused() == "invalid server parameter"
        errors = [text for level, text in bench.log.lines if level == ERROR]
        assert errors[0].endswith('varcache_apply failed: ERROR: invalid value for parameter "TimeZone"')


def test_overdue_clients_are_told_or_ended() -> None:
    """The notice leaves the client in the line; a timeout ends it, and its server gets the same reason."""
    with Bench() as bench:
        talk = bench.login()
        talk.messages()
        clients.overdue(bench.worker, talk.conn, "query_wait_notify")
        (notice,) = talk.messages()
        assert m.error_fields(notice.payload)["M"].startswith("No server connection available")
        clients.overdue(bench.worker, talk.conn, "query_timeout")
        assert talk.refused() == bench.engine.closed[talk.conn].reason == "query timeout"


def test_limits_follow_the_login_user() -> None:
    """client_idle_timeout of [users] comes first; query_wait_timeout is left to the pool unless the user differs."""
    users = {"alice": UserConfig("alice", client_idle_timeout=5.0, query_wait_timeout=7.0)}
    with Bench(users=users) as bench:
        talk = bench.login()
        assert ("limits", talk.conn, 5_000_000, -1) in bench.engine.calls
        bench.welcome("forced", "alice")
        talk = bench.login(database="forced")
        assert ("limits", talk.conn, 5_000_000, 7_000_000) in bench.engine.calls


def test_a_reload_retunes_clients_and_welcomes() -> None:
    """Clients get new limits, and the next login hears the new values."""
    with Bench() as bench:
        talk = bench.login()
        object.__setattr__(bench.config.settings, "client_idle_timeout", 9.0)
        object.__setattr__(bench.config.settings, "max_prepared_statements", 5)
        object.__setattr__(bench.config.settings, "ignore_startup_parameters", ("geqo",))
        clients.retune(bench.worker)
        assert ("readmit", talk.conn, 9_000_000, -1) in bench.engine.calls
        later = bench.login(geqo="off")
        assert b"pgbouncer.max_prepared_statements\x005\0" in later.got


def test_closing_a_pool_ends_all_its_clients() -> None:
    """Those who wait and those who are in get the same text."""
    with Bench() as bench:
        one, two = bench.login(), bench.login()
        assert one.client is not None
        clients.close_pool(bench.worker, one.client.pool, refuse("database_removed"))
        assert one.refused() == two.refused() == "database removed"
        assert bench.worker.front.connections() == 0


def test_logins_are_counted_per_pool() -> None:
    """Each proved login counts once, with or without a welcome."""
    with Bench() as bench:
        bench.login()
        talk = bench.login()
        bench.login("ghost")
        assert talk.client is not None
        assert talk.client.pool.client_logins == 2


def test_a_client_that_died_in_the_same_wake_harms_nobody() -> None:
    """Welcoming, refusing and retuning go on with the others, and its CLOSED cleans up."""
    with Bench(cold=True) as bench:
        dead, alive = bench.login(), bench.login()
        assert dead.client is not None
        pool = dead.client.pool
        bench.engine.dead.add(dead.conn)
        pool.welcome = Welcome(list(REPORTED))
        clients.welcome_waiting(bench.worker, pool)
        assert alive.messages()[-1].kind == "Z"
        clients.retune(bench.worker)
        clients.overdue(bench.worker, dead.conn, "query_wait_notify")
        dead.gone()
        assert list(pool.clients) == [alive.conn]
        bench.engine.dead.add(alive.conn)
        clients.close_pool(bench.worker, pool, refuse("database_removed"))
        alive.gone()
        assert bench.worker.front.connections() == 0
