"""Lookups step by step on an engine that only records: order, counts, credentials, and who shares what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import pytest

from pgshoal.auth.secret import Keys
from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings
from pgshoal.engine.contract import Event
from pgshoal.fleet.ledger import Kind
from pgshoal.policy.lookup import Row
from pgshoal.worker.records import Server, ServerState
from pgshoal.worker.reload import apply
from pgshoal.worker.server_login import credential, holder
from tests.support import messages as m
from tests.worker.stub import Bench, Talk

LOOKER = {"looker": Secret("plain", "looker-secret")}
ACK = m.message(b"1") + m.message(b"2")
HEAD = ACK + m.data_row("pg_catalog") + m.command_complete("SELECT 1") + ACK + m.row_description("u", "p")
DONE = m.command_complete("SELECT 1") + m.ready()


class Desk(Bench):
    """A worker with one pool for lookups, whose idle servers the test gives."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(LOOKER, cold=True, **{"auth_user": "looker", "auth_type": "plain", **settings})
        self.idle: list[int] = []
        engine: Any = self.engine
        engine.idle_servers = lambda pool: [(conn, 0) for conn in self.idle]
        engine.take = self._take
        engine.facts = lambda conn: SimpleNamespace(mode="dialogue", recv_pending=0)

    def _take(self, conn: int) -> bool:
        self.idle.remove(conn)
        return True

    def __enter__(self) -> Self:
        return self

    @property
    def pool(self) -> Any:
        """Where lookups run."""
        return self.worker.lookups.pools["app", "looker"]

    def give(self) -> Server:
        """A server of the pool becomes idle."""
        server = self.server(self.pool)
        self.idle.append(server.conn)
        self.worker.lookups.serve(self.pool)
        return server

    def say(self, server: Server, data: bytes) -> None:
        """The server's words."""
        while data:
            size = 1 + int.from_bytes(data[1:5])
            self.event(Event.MESSAGE, server.conn, data[0], data[5:size])
            data = data[size:]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A worker that asks for cleartext passwords and looks users up."""
    with Desk() as made:
        yield made


def asked(desk: Desk, server: Server) -> bool:
    """Whether a lookup was sent to this server."""
    return m.SYNC in desk.engine.sent.pop(server.conn, b"")


def test_a_lookup_waits_runs_and_ends_in_the_exchange(desk: Desk) -> None:
    """No server: the pool is to grow. A server: it is asked, given back, and the client is asked for its password."""
    talk = desk.login("jo")
    assert ("grow", desk.pool) in desk.engine.calls
    assert desk.worker.lookups.waiting(desk.pool) == 1
    server = desk.give()
    assert asked(desk, server)
    assert server.state is ServerState.LOOKUP
    assert talk.got == b""
    desk.say(server, HEAD + m.data_row("jo", "pw") + DONE)
    assert ("park", server.conn) in desk.engine.calls
    assert talk.got[:1] == b"R"
    talk.password(b"pw\0")
    user = desk.worker.pools.forced["jo"]
    assert (user.client_connections, user.found["app"].secret.text) == (1, "pw")


def test_lookups_are_served_in_order(desk: Desk) -> None:
    """A server that comes back goes to the next in line."""
    first, second = desk.login("jo"), desk.login("al")
    server = desk.give()
    assert b"jo" in desk.engine.sent.pop(server.conn)
    desk.idle.append(server.conn)  # as the engine has it after `park`
    desk.say(server, HEAD + m.data_row("jo", "pw") + DONE)
    assert b"al" in desk.engine.sent.pop(server.conn)
    assert (first.got[:1], second.got) == (b"R", b"")


def test_nothing_is_taken_while_paused(desk: Desk) -> None:
    """A lookup waits through PAUSE."""
    desk.login("jo")
    desk.pool.database.paused = True
    assert not asked(desk, desk.give())


def test_a_client_that_leaves(desk: Desk) -> None:
    """Waiting, it leaves the line; running, its lookup ends for nobody, and the server stays."""
    gone = desk.login("jo")
    gone.gone()
    assert desk.worker.lookups.waiting(desk.pool) == 0
    talk = desk.login("jo")
    server = desk.give()
    talk.gone()
    desk.say(server, HEAD + m.data_row("jo", "pw") + DONE)
    assert ("park", server.conn) in desk.engine.calls
    assert not desk.worker.front.logins
    assert desk.pool.database.client_connections == 0


@pytest.mark.parametrize("end", ["closed", "crashed", "oversize"])
def test_a_server_that_is_lost(desk: Desk, end: str) -> None:
    """Whoever closes it, its client hears `bouncer config error`."""
    talk = desk.login("jo")
    server = desk.give()
    if end == "closed":
        desk.worker.servers.close(server, "evicted")
    elif end == "crashed":
        desk.event(Event.CLOSED, server.conn, "server conn crashed?")
    else:
        desk.event(Event.OVERSIZE, server.conn, b"D\xff\xff\xff\xff")
    assert talk.refused() == "bouncer config error"
    assert not desk.worker.lookups.running


def test_a_dropped_pool_refuses_those_in_line(desk: Desk) -> None:
    """And the next lookup makes another."""
    talk, old = desk.login("jo"), None
    old = desk.pool
    desk.worker.pools.drop(old)
    assert talk.refused() == "bouncer config error"
    desk.login("jo")
    assert desk.pool is not old


def test_limits_in_time(desk: Desk) -> None:
    """query_wait_timeout for those in line, client_login_timeout for lookups that hang."""
    hangs = desk.login("jo")
    server = desk.give()
    waits = desk.login("al")
    desk.engine.clock_us += 61_000_000
    desk.worker.lookups.expire(desk.engine.clock_us)
    assert desk.engine.closed[server.conn].reason == "query timeout"
    assert hangs.refused() == "bouncer config error"
    desk.engine.clock_us += 61_000_000
    desk.worker.lookups.expire(desk.engine.clock_us)
    assert waits.refused() == "query_wait_timeout"


def test_too_early_for_another_attempt(desk: Desk) -> None:
    """After a failed connection the cached error is told until server_login_retry has passed."""
    desk.login("jo").gone()
    desk.pool.last_connect_failed_us, desk.pool.last_error = desk.engine.clock_us, "connect failed"
    text = "server login has been failing, cached error: connect failed (server_login_retry)"
    assert desk.login("jo").refused() == text
    desk.engine.clock_us += 16_000_000
    assert desk.login("jo").open


def test_guesses_do_not_fill_the_registry() -> None:
    """A database that only `*` knows and no server has is forgotten after the retry time."""
    with Desk(databases={}, autodb=DatabaseConfig("*")) as desk:
        talk = desk.login("jo", "guess")
        pool = desk.worker.lookups.pools["guess", "looker"]
        pool.last_connect_failed_us = desk.engine.clock_us
        talk.gone()
        desk.worker.lookups.expire(desk.engine.clock_us)
        assert "guess" in desk.worker.pools.databases
        desk.engine.clock_us += 16_000_000
        desk.worker.lookups.expire(desk.engine.clock_us)
        assert "guess" not in desk.worker.pools.databases
        assert not desk.worker.lookups.pools


def test_lookups_and_clients_never_share_a_pool(desk: Desk) -> None:
    """auth_user itself, as a client of the same database, has another pool."""
    desk.login("jo")
    database, looker = desk.worker.pools.database("app"), desk.worker.pools.user("looker")
    assert database is not None
    assert looker is not None
    assert desk.worker.pools.pool(database, looker) is not desk.pool


def test_what_servers_are_shown(desk: Desk) -> None:
    """The found secret and its SCRAM keys log in; a new secret forgets the keys; a forced entry does not mislead."""
    lookups, pools = desk.worker.lookups, desk.worker.pools
    user, found = lookups.user(Row("jo", "one"), "app")
    found.scram_keys = Keys(b"c", b"s")
    assert lookups.user(Row("jo", "one"), "app")[1] is found
    database = pools.database("app")
    assert database is not None
    pool = pools.pool(database, user)
    assert credential(desk.worker.config, pool) == Secret("plain", "one")
    assert holder(pool).scram_keys is not None
    lookups.user(Row("jo", "two"), "app")
    assert holder(pool).scram_keys is None
    forced = pools.database("forced")
    assert forced is not None
    assert credential(desk.worker.config, pools.lookup_pool(forced, "looker")) == LOOKER["looker"]


def test_null_secret_fits_nothing(desk: Desk) -> None:
    """Not even the empty password, nor the answer to an empty md5 secret."""
    talk = answered(desk, m.data_row("jo", None))
    talk.password(b"x\0")
    assert talk.refused() == "password authentication failed"


def answered(desk: Desk, row: bytes) -> Talk:
    """A login whose lookup has ended with this row."""
    talk = desk.login("jo")
    desk.say(desk.give(), HEAD + row + DONE)
    return talk


def test_plain_secrets_are_derived_at_load_and_reload() -> None:
    """With SCRAM no first login pays for a derivation, and so none tells who exists."""
    with Bench({"alice": Secret("plain", "pw")}, auth_type="scram-sha-256", scram_iterations=10) as bench:
        cache = bench.worker.key_cache
        assert cache.adhoc("pw", 10) is None
        bench.worker.warm()
        assert cache.adhoc("pw", 10) is not None
        fresh = Config(
            "test.ini",
            Settings(auth_type="scram-sha-256", scram_iterations=10),
            databases=bench.config.databases,
            secrets={"alice": Secret("plain", "new"), "bob": Secret("md5", "md5" + "0" * 32)},
        )
        apply(bench.worker, fresh)
        assert cache.adhoc("new", 10) is not None


def counts(desk: Desk, *names: str) -> list[int]:
    """Clients of the fleet that count against the limits of these users."""
    ledger = desk.worker.fleet.ledger
    rows = [ledger.row(Kind.USER_CLIENTS, name) for name in names]
    for row in rows:
        ledger.forget(row)
    return [ledger.used(row) for row in rows]


def test_a_client_counts_for_whom_the_lookup_says_it_is() -> None:
    """max_user_client_connections: not for the name it gave, and nothing stays when it leaves at whatever point."""
    with Desk(max_user_client_connections=1) as desk:
        for leaves_early in (True, False):
            talk = desk.login("carol")
            server = desk.give()
            if leaves_early:
                talk.gone()
            desk.say(server, HEAD + m.data_row("carola", "x") + DONE)
            if not leaves_early:
                assert counts(desk, "carol", "carola") == [0, 1]
                late = desk.login("carol")
                desk.say(desk.give(), HEAD + m.data_row("carola", "x") + DONE)
                assert late.refused() == "client connections exceeded (max_user_client_connections)"
                talk.gone()
            assert counts(desk, "carol", "carola") == [0, 0]


class Remembering(Desk):
    """A worker that uses answers again for a minute."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(auth_query_cache_ttl=60.0, **settings)

    def learn(self, name: str = "jo", secret: str = "pw") -> Server:
        """One lookup with its answer; the client is asked for its password."""
        server = self.give()
        assert asked(self, server)
        self.say(server, HEAD + m.data_row(name, secret) + DONE)
        return server


def test_an_answer_is_used_again() -> None:
    """Within auth_query_cache_ttl no server is asked, and the login is the same; afterwards one is."""
    with Remembering() as desk:
        desk.login("jo")
        desk.learn()
        again = desk.login("jo")
        assert desk.worker.lookups.waiting(desk.pool) == 0
        assert again.got[:1] == b"R"
        again.password(b"pw\0")
        assert again.open
        desk.engine.clock_us += 60_000_000
        desk.login("jo")
        assert desk.worker.lookups.waiting(desk.pool) == 1


def test_without_the_setting_nothing_is_remembered(desk: Desk) -> None:
    """Every login is a lookup."""
    desk.login("jo")
    server = desk.give()
    desk.say(server, HEAD + m.data_row("jo", "pw") + DONE)
    desk.login("jo")
    assert desk.worker.lookups.waiting(desk.pool) == 1


def test_a_wrong_password_is_looked_up_anew_next_time() -> None:
    """It may be a new one: the second try with it succeeds if the server says so."""
    with Remembering() as desk:
        desk.login("jo")
        desk.learn()
        changed = desk.login("jo")
        changed.password(b"new\0")
        assert changed.refused() == "password authentication failed"
        second = desk.login("jo")
        desk.learn(secret="new")
        second.password(b"new\0")
        assert second.open


def test_users_who_were_not_found_are_not_remembered() -> None:
    """A user who is made the next moment can log in."""
    with Remembering() as desk:
        talk = desk.login("jo")
        server = desk.give()
        desk.say(server, HEAD + m.command_complete("SELECT 0") + m.ready())
        assert talk.refused() == "no such user"
        desk.login("jo")
        assert desk.worker.lookups.waiting(desk.pool) == 1


def test_a_reload_forgets_what_was_remembered() -> None:
    """Also an answer that was under way, if the query is another one now."""
    with Remembering() as desk:
        desk.login("jo")
        server = desk.give()
        config = desk.worker.config
        changed = replace(config, settings=replace(config.settings, auth_query="select 2"))
        apply(desk.worker, changed, tls=False)
        desk.say(server, HEAD + m.data_row("jo", "pw") + DONE)
        desk.login("jo")
        assert desk.worker.lookups.waiting(desk.pool) == 1
        desk.learn()
        apply(desk.worker, changed, tls=False)
        desk.login("jo")
        assert desk.worker.lookups.waiting(desk.pool) == 1


def test_a_remembered_answer_is_not_for_another_database() -> None:
    """Unless the lookups of both run in the same place."""
    with Remembering() as desk:
        desk.login("jo")
        desk.learn()
        desk.login("jo", "forced")
        assert desk.worker.lookups.waiting(desk.worker.lookups.pools["forced", "looker"]) == 1
