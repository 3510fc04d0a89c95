"""Hosts of an entry in a whole worker: dead ones are passed over, unfit ones left, and changes of role are noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.worker.hosts import RECHECK_US
from tests.support import messages as m
from tests.worker.bench import Bench, close

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
PRIMARY = {"in_hot_standby": "off", "default_transaction_read_only": "off"}
STANDBY = {"in_hot_standby": "on", "default_transaction_read_only": "off"}


class Stage:
    """A worker whose one entry has a list of hosts."""

    def __init__(self, hosts: str, more: str = "") -> None:
        # Without TLS and at full patience: pauses would be seen.
        self.bench = Bench(
            {"app": f"host={hosts} {more}"},
            server_login_retry=2,
            server_connect_timeout=15,
            server_tls_sslmode="disable",
            pool_mode="transaction",
        )

    def begun(self) -> list[str]:
        """The hosts of the attempts that were begun since, each kept for `conn`."""
        self.fresh = self.bench.new_servers()
        return [self.bench.worker.servers.by_conn[conn].address for conn in self.fresh]

    @property
    def conn(self) -> int:
        """The one attempt that was begun last."""
        (conn,) = self.fresh
        return conn

    def client(self) -> int:
        """A client that begins a transaction, so that no other can have its server."""
        conn = self.bench.login()
        self.bench.say(conn, m.message(b"Q", b"begin\0"))
        return conn

    def refuse(self) -> None:
        """Nobody listens where the last attempt went."""
        self.bench.leave(self.conn)

    def failed_at(self) -> int:
        """Since when the pool waits for server_login_retry; 0 = it does not."""
        (pool,) = self.bench.worker.pools.by_id.values()
        return pool.last_connect_failed_us


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    """Closes what a test has made."""
    made: list[Stage] = []
    yield made
    for stage in made:
        close(stage.bench)


def stage_of(stages: list[Stage], hosts: str, more: str = "") -> Stage:
    """A stage that is closed at the end."""
    stages.append(Stage(hosts, more))
    return stages[-1]


def test_the_next_host_is_tried_at_once(stages: list[Stage]) -> None:
    """One that refuses costs no pause, until all have; then the pool waits as with one host."""
    stage = stage_of(stages, f"{A},{B},{C}")
    stage.client()
    for host in (A, B, C):
        assert (stage.begun(), stage.failed_at()) == ([host], 0)
        stage.refuse()
    assert stage.begun() == []
    assert stage.failed_at() > 0
    stage.bench.pass_time(15)
    assert stage.begun() == [A]


def test_one_host_alone_is_as_ever(stages: list[Stage]) -> None:
    """Its failure is that of the pool."""
    stage = stage_of(stages, A)
    stage.client()
    assert stage.begun() == [A]
    stage.refuse()
    assert (stage.begun(), stage.failed_at() > 0) == ([], True)


def test_nobody_waits_for_an_attempt_in_doubt(stages: list[Stage]) -> None:
    """A host that failed is tried again by one attempt, and if that hangs its client is served by another host."""
    stage = stage_of(stages, f"{A},{B}")
    stage.client()
    stage.begun()
    stage.refuse()
    assert stage.begun() == [B]
    stage.bench.welcome(stage.conn)
    stage.bench.answer(stage.conn, "T")
    stage.bench.pass_time(15)
    stage.client()
    assert stage.begun() == [A]
    stage.bench.pass_time(0.1)
    assert stage.begun() == [B]
    second = stage.conn
    stage.bench.pass_time(0.1)
    assert stage.begun() == []  # now somebody is on the way
    stage.bench.welcome(second)
    stage.bench.answer(second, "T")
    stage.bench.pass_time(14)  # the attempt still hangs
    stage.client()
    assert stage.begun() == [B]


def test_what_one_pool_learns_all_know(stages: list[Stage]) -> None:
    """Another pool of the worker does not go where nobody listens."""
    stage = stage_of(stages, f"{A},{B}")
    stage.client()
    assert stage.begun() == [A]
    stage.refuse()
    assert stage.begun() == [B]
    other = stage.bench.login("bob")
    stage.bench.say(other, m.message(b"Q", b"begin\0"))
    assert stage.begun() == [B]


@pytest.mark.parametrize(
    ("sqlstate", "goes_on"), [("57P03", True), ("53300", True), ("28P01", False), ("3D000", False)]
)
def test_refusals_of_the_hour_and_of_the_user(stages: list[Stage], sqlstate: str, goes_on: bool) -> None:
    """A host that starts up or is full is passed over; a wrong password would be wrong everywhere."""
    stage = stage_of(stages, f"{A},{B}")
    client = stage.client()
    stage.begun()
    stage.bench.connect(stage.conn)
    stage.bench.say(stage.conn, m.message(b"E", f"SFATAL\0C{sqlstate}\0Mno\0\0".encode()))
    assert stage.begun() == ([B] if goes_on else [])
    assert (stage.failed_at() == 0) is goes_on
    assert stage.bench.error(client) == ("" if goes_on else "no")


def test_an_unfit_host_is_left_for_the_next(stages: list[Stage]) -> None:
    """The standby's login is closed and the primary is asked; later attempts go to the primary at once."""
    stage = stage_of(stages, f"{A},{B}", "target_session_attrs=primary")
    stage.client()
    assert stage.begun() == [A]
    stage.bench.welcome(stage.conn, **STANDBY)
    assert stage.begun() == [B]
    stage.bench.welcome(stage.conn, **PRIMARY)
    assert stage.bench.alive(stage.conn)
    stage.client()
    assert (stage.begun(), stage.failed_at()) == ([B], 0)
    assert stage.bench.log.has("server is in hot standby mode (target_session_attrs=primary)")


def test_a_pool_waits_when_nobody_fits(stages: list[Stage]) -> None:
    """As when nobody can be reached: clients keep waiting and the next attempt is made after server_login_retry."""
    stage = stage_of(stages, f"{A},{B}", "target_session_attrs=primary")
    client = stage.client()
    for _ in range(2):
        stage.begun()
        stage.bench.welcome(stage.conn, **STANDBY)
    assert (stage.begun(), stage.bench.error(client)) == ([], "")
    assert stage.failed_at() > 0
    stage.bench.pass_time(15)
    assert len(stage.begun()) == 1
    stage.bench.welcome(stage.conn, **PRIMARY)
    assert stage.failed_at() == 0


def test_prefer_standby_comes_back_to_the_primary(stages: list[Stage]) -> None:
    """The primary is left while a standby may be found, and taken when there is none."""
    stage = stage_of(stages, f"{A},{B}", "target_session_attrs=prefer-standby")
    stage.client()
    assert stage.begun() == [A]
    stage.bench.welcome(stage.conn, **PRIMARY)
    assert stage.begun() == [B]
    stage.refuse()
    assert stage.begun() == [A]
    stage.bench.welcome(stage.conn, **PRIMARY)
    assert stage.bench.alive(stage.conn)


def test_old_servers_are_asked(stages: list[Stage]) -> None:
    """Before PostgreSQL 14 nothing is reported: one query tells, and one that fails is a failed login."""
    stage = stage_of(stages, f"{A},{B}", "target_session_attrs=read-write")
    stage.client()
    stage.begun()
    first = stage.conn
    stage.bench.welcome(first)
    assert b"pg_is_in_recovery" in stage.bench.heard(first)
    stage.bench.say(first, row("f", "on"), m.ready())
    assert not stage.bench.alive(first)
    assert stage.begun() == [B]
    stage.bench.welcome(stage.conn)
    stage.bench.say(stage.conn, row("f", "off"), m.ready())
    assert stage.bench.alive(stage.conn)
    stage.client()
    stage.begun()
    stage.bench.welcome(stage.conn)
    stage.bench.say(stage.conn, m.message(b"E", b"SERROR\0C42883\0Mno such function\0\0"), m.ready())
    assert not stage.bench.alive(stage.conn)


def row(*values: str) -> bytes:
    """One DataRow."""
    cells = b"".join(len(v).to_bytes(4) + v.encode() for v in values)
    return m.message(b"D", len(values).to_bytes(2) + cells)


def test_a_promotion_is_noticed(stages: list[Stage]) -> None:
    """Idle servers are asked again now and then; the ones of a host that no longer fits go, busy ones at release."""
    stage = stage_of(stages, A, "target_session_attrs=standby")
    clients, servers = [], []
    for _ in range(2):
        clients.append(stage.client())
        assert stage.begun() == [A]
        servers.append(stage.conn)
        stage.bench.welcome(stage.conn, **STANDBY)
        assert stage.bench.heard(stage.conn).endswith(b"begin\0")
        stage.bench.answer(stage.conn, "T")
    (busy, idle), (working, resting) = clients, servers
    worker = stage.bench.worker
    stage.bench.say(idle, m.message(b"Q", b"commit\0"))
    stage.bench.heard(resting)
    stage.bench.answer(resting)
    worker.servers.hosts.tick()
    assert stage.bench.heard(resting) == b""  # its login was not long ago
    stage.bench.engine.set_now(stage.bench.engine.now_us() + RECHECK_US)
    worker.servers.hosts.tick()
    assert b"pg_is_in_recovery" in stage.bench.heard(resting)
    stage.bench.say(resting, row("f", "off"), m.ready())
    assert not stage.bench.alive(resting)
    assert stage.bench.alive(working)
    stage.bench.say(busy, m.message(b"Q", b"commit\0"))
    stage.bench.answer(working)
    assert not stage.bench.alive(working)


def test_a_server_that_still_fits_goes_on(stages: list[Stage]) -> None:
    """A busy one is asked when it is released; after a good answer it serves whoever waits."""
    stage = stage_of(stages, A, "target_session_attrs=standby pool_size=1")
    busy = stage.client()
    stage.begun()
    server = stage.conn
    stage.bench.welcome(server, **STANDBY)
    stage.bench.heard(server)
    stage.bench.answer(server, "T")
    waiting = stage.client()
    stage.bench.engine.set_now(stage.bench.engine.now_us() + RECHECK_US)
    stage.bench.worker.servers.hosts.tick()
    assert stage.bench.heard(server) == b""
    stage.bench.say(busy, m.message(b"Q", b"commit\0"))
    stage.bench.heard(server)
    stage.bench.answer(server)
    assert b"pg_is_in_recovery" in stage.bench.heard(server)
    stage.bench.say(server, row("t", "off"), m.ready())
    assert stage.bench.heard(server).endswith(b"begin\0")
    stage.bench.answer(server, "T")
    assert stage.bench.error(waiting) == ""


def test_a_pool_that_nobody_uses_comes_to_rest(stages: list[Stage]) -> None:
    """Being asked is no use: after server_idle_timeout its servers are left alone, and close when it is over again."""
    stage = stage_of(stages, A, "target_session_attrs=standby")
    client = stage.client()
    stage.begun()
    server = stage.conn
    stage.bench.welcome(server, **STANDBY)
    stage.bench.answer(server, "T")
    stage.bench.say(client, m.message(b"Q", b"commit\0"))
    stage.bench.answer(server)
    hosts = stage.bench.worker.servers.hosts
    asked = 0
    for _ in range(13):
        stage.bench.heard(server)
        hosts.tick()
        if stage.bench.heard(server):
            asked += 1
            stage.bench.say(server, row("t", "off"), m.ready())
        stage.bench.pass_time(100)
    assert asked == 5
    assert not stage.bench.alive(server)


def test_a_server_that_does_not_answer_is_closed(stages: list[Stage]) -> None:
    """After server_connect_timeout, at its login and later."""
    stage = stage_of(stages, A, "target_session_attrs=standby")
    client = stage.client()
    stage.begun()
    stage.bench.welcome(stage.conn)
    assert b"pg_is_in_recovery" in stage.bench.heard(stage.conn)
    stage.bench.pass_time(15.1)
    assert not stage.bench.alive(stage.conn)
    stage.bench.pass_time(15.1)
    stage.begun()
    stage.bench.welcome(stage.conn, **STANDBY)
    stage.bench.answer(stage.conn, "T")
    stage.bench.say(client, m.message(b"Q", b"commit\0"))
    stage.bench.answer(stage.conn)
    for _ in range(2):
        assert stage.bench.alive(stage.conn)
        stage.bench.pass_time(15.1)
        stage.bench.worker.servers.hosts.tick()
    assert not stage.bench.alive(stage.conn)


def test_a_name_that_is_back_is_good_again(stages: list[Stage]) -> None:
    """A host whose look-up failed is passed over only as long as it has no address."""
    stage = stage_of(stages, f"db.test,{A}")
    worker = stage.bench.worker
    worker.resolver.find = lambda host, found: found([] if host == "db.test" else [host])  # type: ignore[method-assign]
    stage.client()
    assert stage.begun() == [A]
    (pool,) = worker.pools.by_id.values()
    assert worker.servers.hosts.address(pool, "db.test", [B]) == B
    assert worker.servers.hosts.pick(pool) == "db.test"


def test_nobody_is_asked_where_any_server_will_do(stages: list[Stage]) -> None:
    """Without the setting nothing is sent that was not sent before."""
    stage = stage_of(stages, f"{A},{B}")
    client = stage.client()
    stage.begun()
    stage.bench.welcome(stage.conn, **STANDBY)
    stage.bench.heard(stage.conn)
    stage.bench.answer(stage.conn, "T")
    stage.bench.say(client, m.message(b"Q", b"commit\0"))
    stage.bench.heard(stage.conn)
    stage.bench.answer(stage.conn)
    stage.bench.engine.set_now(stage.bench.engine.now_us() + 10 * RECHECK_US)
    stage.bench.worker.servers.hosts.tick()
    assert stage.bench.heard(stage.conn) == b""
