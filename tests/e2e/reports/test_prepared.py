"""Recipes about prepared statements and pipelines that broke other poolers."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import psycopg
import pytest

from tests.e2e.reports.conftest import Lane, MakePooler
from tests.support import messages as m
from tests.support.fakeclient import Message
from tests.support.postgres import Postgres

OpenLane = Callable[..., Lane]


def kinds(found: list[Message]) -> str:
    """The types of the messages as one string."""
    return "".join(message.kind for message in found)


def state(found: list[Message]) -> str | None:
    """The SQLSTATE of the first error among the messages."""
    for message in found:
        if message.kind == "E":
            return m.error_fields(message.payload)["C"]
    return None


def tags(found: list[Message]) -> list[str]:
    """The command tags among the messages."""
    return [message.payload.rstrip(b"\0").decode() for message in found if message.kind == "C"]


@pytest.mark.parametrize("reset", ["DEALLOCATE ALL", "discard all ;"])
def test_pipelined_reset_then_parse(make_pooler: MakePooler, lanes: OpenLane, reset: str) -> None:
    """A reset that is answered late does not wipe a statement parsed behind it; the older one is gone."""
    a = lanes(make_pooler())
    assert kinds(a.ask(m.parse("a", "select 1"), m.SYNC)) == "1Z"
    found = a.ask(m.query(reset), m.parse("b", "select 2"), m.SYNC, syncs=2)
    assert kinds([x for x in found if x.kind != "S"]) == "CZ1Z"
    assert kinds(a.ask(m.bind("b"), m.execute(), m.SYNC)) == "2DCZ"
    assert state(a.ask(m.bind("a"), m.execute(), m.SYNC)) == "26000"
    assert kinds(a.ask(m.bind("b"), m.execute(), m.SYNC)) == "2DCZ"


def test_failed_parse_is_not_cached(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """A Parse that failed works once its table exists, for the same client and name and for another client."""
    table = f"late_{uuid.uuid4().hex}"  # a text that no server has prepared before
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    parse = m.parse("p", f"select * from {table}")
    assert state(a.ask(parse, m.SYNC)) == "42P01"
    pg15.query(f"create table {table}(x int); grant all on {table} to public", "app")
    assert kinds(a.ask(parse, m.SYNC)) == "1Z"
    assert kinds(a.ask(m.bind("p"), m.execute(), m.SYNC)) == "2CZ"
    assert kinds(b.ask(parse, m.SYNC, m.bind("p"), m.execute(), m.SYNC, syncs=2)) == "1Z2CZ"


def test_parse_of_a_client_that_vanished(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """A client that sends Parse and leaves before Sync does not spoil the same text for others."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    a.send(m.parse("v", "select 'vanished'"))
    a.client.reset()
    found = b.ask(m.parse("v", "select 'vanished'"), m.SYNC, m.bind("v"), m.execute(), m.SYNC, syncs=2)
    assert kinds(found) == "1Z2DCZ"


def test_close_after_failed_parse(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """Closing a name that failed to parse is no error."""
    a = lanes(make_pooler())
    assert state(a.ask(m.parse("x", "selec"), m.SYNC)) == "42601"
    assert kinds(a.ask(m.close("S", "x"), m.SYNC)) == "3Z"


def test_same_name_in_two_sessions(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """Two clients use one name for different statements and each gets its own command tag."""
    pg15.query("create table if not exists same_name(x int); grant all on same_name to public", "app")
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    assert kinds(a.ask(m.parse("S_1", "BEGIN"), m.SYNC)) == "1Z"
    assert kinds(b.ask(m.parse("S_1", "INSERT INTO same_name VALUES (1)"), m.SYNC)) == "1Z"
    for _ in range(4):
        assert tags(a.ask(m.bind("S_1"), m.execute(), m.SYNC)) == ["BEGIN"]
        assert tags(a.ask(m.query("ROLLBACK"))) == ["ROLLBACK"]
        assert tags(b.ask(m.bind("S_1"), m.execute(), m.SYNC)) == ["INSERT 0 1"]


def test_describe_on_another_server(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """A Describe alone, on a server that never saw the statement, is answered in full."""
    pooler = make_pooler(default_pool_size=2)
    a, b = lanes(pooler), lanes(pooler)
    assert kinds(a.ask(m.parse("q", "select $1::int as n"), m.SYNC)) == "1Z"
    assert kinds(b.ask(m.query("begin"))) == "CZ"
    assert kinds(a.ask(m.describe("S", "q"), m.SYNC)) == "tTZ"
    assert kinds(b.ask(m.query("rollback"))) == "CZ"


def test_flush_before_execute(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """A portal described under Flush stays usable in pages while another client works elsewhere."""
    pooler = make_pooler(default_pool_size=2)
    a, b = lanes(pooler), lanes(pooler)
    a.send(m.parse("", "select generate_series(1, 25)"), m.bind("", "c1"), m.describe("P", "c1"), m.FLUSH)
    assert kinds([a.client.read() for _ in range(3)]) == "12T"
    assert kinds(b.ask(m.query("select 1"))) == "TDCZ"
    for _ in range(2):
        a.send(m.execute("c1", 10), m.FLUSH)
        assert kinds(a.client.read_until("s")) == "D" * 10 + "s"
    assert kinds(a.ask(m.execute("c1", 10), m.SYNC)) == "D" * 5 + "CZ"


def test_error_of_a_set_reaches_its_client_once(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """A failing SET answers its own client; the next borrower of the server sees only its own answers."""
    pooler = make_pooler()
    a, b = lanes(pooler, application_name="a"), lanes(pooler, application_name="b")
    assert kinds(a.ask(m.parse("", "select 1"), m.bind(""), m.execute(), m.SYNC)) == "12DCZ"
    assert state(a.ask(m.query("SET lock_timeout TO nonsense"))) == "22023"
    assert kinds(b.ask(m.query("select 2"))) == "TDCZ"
    assert kinds(a.ask(m.query("select 3"))) == "TDCZ"
    assert state(a.ask(m.query("PREPARE bad AS selec"))) == "42601"
    assert state(a.ask(m.query("EXECUTE bad"))) == "26000"
    assert kinds(b.ask(m.query("select 4"))) == "TDCZ"


def test_ddl_under_a_cached_plan(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """After DDL changes a result type, each client that does not ask for descriptions gets the plain error once."""
    table = f"plan_{uuid.uuid4().hex}"
    pg15.query(f"create table {table}(x int); insert into {table} values (7); grant all on {table} to public", "app")
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    for lane in (a, b):
        found = lane.ask(m.parse("t", f"select * from {table}"), m.SYNC, m.bind("t"), m.execute(), m.SYNC, syncs=2)
        assert kinds(found) == "1Z2DCZ"
    pg15.query(f"alter table {table} alter x type bigint", "app")
    for lane in (a, b):
        assert state(lane.ask(m.bind("t"), m.execute(), m.SYNC)) == "0A000"
        assert kinds(lane.ask(m.bind("t"), m.execute(), m.SYNC)) == "2DCZ"
    pg15.query(f"alter table {table} alter x type numeric", "app")
    assert kinds(a.ask(m.query("begin"))) == "CZ"
    assert state(a.ask(m.bind("t"), m.execute(), m.SYNC)) == "0A000"
    assert kinds(a.ask(m.query("rollback"))) == "CZ"
    assert kinds(a.ask(m.bind("t"), m.execute(), m.SYNC)) == "2DCZ"


def test_unnamed_statement_split_by_sync(make_pooler: MakePooler, lanes: OpenLane) -> None:
    """Parse, Sync, then Bind of the unnamed statement works although another client used the server between."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    assert kinds(a.ask(m.parse("", "select 'mine'"), m.SYNC)) == "1Z"
    assert kinds(b.ask(m.parse("", "select 'other', 2"), m.bind(""), m.execute(), m.SYNC)) == "12DCZ"
    found = a.ask(m.bind(""), m.execute(), m.SYNC)
    assert kinds(found) == "2DCZ"
    assert found[1].payload.endswith(b"mine")
    assert state(a.ask(m.query("select 1"), m.bind(""), m.SYNC, syncs=2)) == "26000"


@pytest.mark.parametrize("deallocate", ["DEALLOCATE r1", 'deallocate prepare "r1";'])
def test_sql_deallocate_of_a_protocol_statement(make_pooler: MakePooler, lanes: OpenLane, deallocate: str) -> None:
    """DEALLOCATE by name in SQL, as Rails, PDO and psycopg send it, frees the name and breaks nobody else."""
    pooler = make_pooler()
    a, b = lanes(pooler), lanes(pooler)
    for lane in (a, b):
        assert kinds(lane.ask(m.parse("r1", "select 41 + 1"), m.SYNC)) == "1Z"
    assert tags(a.ask(m.query(deallocate))) == ["DEALLOCATE"]
    assert state(a.ask(m.bind("r1"), m.execute(), m.SYNC)) == "26000"
    assert kinds(a.ask(m.parse("r1", "select 'new'"), m.SYNC, m.bind("r1"), m.execute(), m.SYNC, syncs=2)) == "1Z2DCZ"
    extended = (m.parse("", deallocate), m.bind(""), m.execute(), m.SYNC)
    assert tags(a.ask(*extended)) == ["DEALLOCATE"]
    assert state(a.ask(m.bind("r1"), m.execute(), m.SYNC)) == "26000"
    assert kinds(b.ask(m.bind("r1"), m.execute(), m.SYNC)) == "2DCZ"
    assert state(b.ask(m.query("deallocate never_there"))) == "26000"


def test_least_recently_used_statements_go(make_pooler: MakePooler, lanes: OpenLane, pg15: Postgres) -> None:
    """A server keeps max_prepared_statements and prepares again what it dropped."""
    pooler = make_pooler(max_prepared_statements=3)
    a = lanes(pooler)
    for index in range(8):
        assert kinds(a.ask(m.parse(f"s{index}", f"select {index} as lru"), m.SYNC)) == "1Z"
    for index in range(8):
        found = a.ask(m.bind(f"s{index}"), m.execute(), m.SYNC)
        assert kinds(found) == "2DCZ"
        assert found[1].payload.endswith(str(index).encode())
    held = a.ask(m.query("select count(*) from pg_prepared_statements where statement like '%as lru'"))
    assert held[1].payload.endswith(b"3")


def test_psycopg_drops_its_statements(make_pooler: MakePooler) -> None:
    """psycopg's own LRU of prepared statements works through the pooler with more texts than it keeps."""
    pooler = make_pooler()
    dsn = pooler.dsn("app", "alice", password="alice-secret")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.prepared_max = 5
        for turn in range(3):
            for index in range(20):
                row = conn.execute(f"select {index} + %s::int", (turn,), prepare=True).fetchone()
                assert row == (index + turn,)
