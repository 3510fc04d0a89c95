"""Replication by PostgreSQL's own tools through the pooler: WAL, decoded changes, base backups, subscriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgshoal.demo.cluster import Cluster
from tests.e2e.conftest import MakePooler, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres
from tests.support.walstreams import HBA_REPLICATION, ROLE, SETTINGS, digest, owned_folder, replicating, slots, tool

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


@pytest.fixture(scope="module")
def source15() -> Iterator[Postgres]:
    """PostgreSQL 15."""
    with replicating(15) as server:
        yield server


@pytest.fixture(scope="module")
def source18() -> Iterator[Postgres]:
    """PostgreSQL 18."""
    with replicating(18) as server:
        yield server


@pytest.fixture(params=["source15", "source18"])
def source(request: pytest.FixtureRequest) -> Postgres:
    """Both, one after the other."""
    server: Postgres = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def folder(source: Postgres) -> Iterator[Path]:
    """Where a tool may write."""
    with owned_folder(source) as made:
        yield made


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def pooler(make: MakePooler, source: Postgres, request: pytest.FixtureRequest) -> Pooler:
    """A transaction pool; libpq asks for the database `replication` when it is given none."""
    entries = {"app": database(source), "replication": database(source, "postgres")}
    return make(entries, workers=request.param, query_timeout=1)


def through(pooler: Pooler, *more: str) -> list[str]:
    """The arguments that lead a tool to the pooler."""
    return ["-h", pooler.host, "-p", str(pooler.port), "-U", ROLE, *more]


def flushed(source: Postgres) -> str:
    """How far the server's WAL stands; it goes on behind that, because tools stop only beyond their end."""
    end = str(source.query("select pg_current_wal_insert_lsn()")[0][0])
    source.query("select pg_logical_emit_message(true, 'test', 'end')", "app")
    source.query("checkpoint")
    return end


def test_wal_is_received(source: Postgres, pooler: Pooler, folder: Path) -> None:
    """pg_receivewal makes a slot, and a whole segment it has streamed is the server's own, byte for byte."""
    asked = through(pooler, "-S", "walslot", "-w")
    tool(source, "pg_receivewal", *asked, "--create-slot")
    try:
        assert slots(source) == ["walslot"]
        # The first run reserves what the second one streams.
        tool(source, "pg_receivewal", *asked, "-D", folder, "-E", flushed(source), "-n")
        segment = source.query("select pg_walfile_name(pg_current_wal_lsn())")[0][0]
        source.query("create table if not exists filled (t text)", "app")
        source.query("insert into filled select repeat('w', 1000) from generate_series(1, 3000)", "app")
        source.query("select pg_switch_wal()")
        source.query("insert into filled values ('behind')", "app")
        tool(source, "pg_receivewal", *asked, "-D", folder, "-E", flushed(source), "-n", "--synchronous")
        assert digest(folder / segment) == digest(source.data / "pg_wal" / segment)
        tool(source, "pg_receivewal", *asked, "--drop-slot")
    finally:
        source.query("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    assert "replication=yes" in pooler.log_text()
    until(lambda: not pooler.admin("show servers"), "the servers have left with their clients")


def test_changes_are_received(source: Postgres, pooler: Pooler, folder: Path) -> None:
    """pg_recvlogical makes a slot, receives what was inserted, and drops the slot."""
    source.query("create table if not exists told (n int primary key)", "app")
    source.query("truncate told", "app")
    source.query("drop publication if exists everything", "app")
    source.query("create publication everything for table told", "app")
    asked = through(pooler, "-d", "app", "-S", "changes", "-w")
    tool(source, "pg_recvlogical", *asked, "--create-slot", "-P", "pgoutput")
    try:
        source.query("insert into told select generate_series(1, 500)", "app")
        end = flushed(source)
        wishes = ("-o", "proto_version=1", "-o", "publication_names=everything")
        tool(source, "pg_recvlogical", *asked, "--start", "-E", end, "-n", "-f", folder / "got", *wishes)
        got = (folder / "got").read_bytes()
        # An Insert is I, the relation's number, N, the row: one column of text, of that many bytes.
        assert got.count(b"N\0\x01t\0\0\0") == 500
        assert b"N\0\x01t\0\0\0\x03500" in got
        tool(source, "pg_recvlogical", *asked, "--drop-slot")
        assert slots(source) == []
    finally:
        source.query("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    assert "replication=database" in pooler.log_text()


def test_base_backup(source: Postgres, pooler: Pooler, folder: Path) -> None:
    """pg_basebackup with its second connection for the WAL; every file is as the server's manifest says."""
    target = folder / "copy"
    wishes = ("-X", "stream", "-c", "fast", "--no-sync", "--manifest-checksums=SHA256")
    tool(source, "pg_basebackup", *through(pooler, "-w"), "-D", target, *wishes)
    files = json.loads((target / "backup_manifest").read_bytes())["Files"]
    assert len(files) > 900
    for file in files:
        assert digest(target / file["Path"]) == file["Checksum"]
    if source.programs.major == 15:  # the embedded one's program crashes
        tool(source, "pg_verifybackup", target)  # which reads the WAL too
    assert pooler.log_text().count("replication=yes") == 2


def test_subscription(make: MakePooler, source15: Postgres, source18: Postgres) -> None:
    """A server subscribes to another one through the pooler, with a first copy and what is inserted later."""
    pooler = make({"app": database(source15)})
    for server in (source15, source18):
        server.query("create table if not exists shared (n int primary key)", "app")
        server.query("truncate shared", "app")
    source15.query(f"grant select on shared to {ROLE}", "app")
    source15.query("insert into shared values (1), (2)", "app")
    source15.query("drop publication if exists shared_pub", "app")
    source15.query("create publication shared_pub for table shared", "app")
    where = f"host={pooler.host} port={pooler.port} user={ROLE} dbname=app"
    source18.query(f"create subscription through_pooler connection '{where}' publication shared_pub", "app")
    try:

        def count() -> int:
            return int(source18.query("select count(*) from shared", "app")[0][0])

        until(lambda: count() == 2, "the first copy")
        source15.query("insert into shared select generate_series(3, 1000)", "app")
        until(lambda: count() == 1000, "what was inserted later")
        kinds = [row["replication"] for row in pooler.admin("show servers")]
        assert "logical" in kinds
    finally:
        source18.query("drop subscription through_pooler", "app")
    assert slots(source15) == []


@contextmanager
def standby_of(source: Postgres, pooler: Pooler) -> Iterator[Postgres]:
    """A copy made through the pooler, started as a standby that streams through it."""
    primary = f"host={pooler.host} port={pooler.port} user={ROLE}"
    settings = {"primary_conninfo": primary, "wal_retrieve_retry_interval": "200ms", **SETTINGS}
    standby = Standby(15, settings=settings, hba=HBA_REPLICATION)
    if standby.account is not None:
        standby.account.own(standby.folder)
    try:
        tool(source, "pg_basebackup", *through(pooler, "-w"), "-D", standby.data, "-R", "-c", "fast", "--no-sync")
        with standby:
            yield standby
    finally:
        standby.remove()


class Standby(Postgres):
    """It has users and databases already."""

    def start(self) -> None:
        """As any cluster."""
        Cluster.start(self)


def test_standby(make: MakePooler, source15: Postgres) -> None:
    """A standby has what its primary has, through the pooler, and comes back after a RECONNECT."""
    pooler = make({"replication": database(source15, "postgres")})
    source15.query("create table if not exists mirrored (n int)", "app")
    source15.query("truncate mirrored", "app")
    with standby_of(source15, pooler) as standby:

        def count() -> int:
            return int(standby.query("select count(*) from mirrored", "app")[0][0])

        source15.query("insert into mirrored select generate_series(1, 1000)", "app")
        until(lambda: count() == 1000, "what the primary has")
        pooler.admin("reconnect")
        source15.query("insert into mirrored values (0)", "app")
        until(lambda: count() == 1001, "its way back")
        assert [row["replication"] for row in pooler.admin("show servers")] == ["physical"]


def test_psycopg_asks_who_the_server_is(make: MakePooler, source15: Postgres) -> None:
    """A driver that speaks the simple protocol gets the answer of its own walsender."""
    pooler = make({"app": database(source15)})
    with psycopg.connect(pooler.dsn("app", ROLE, replication="database"), autocommit=True) as conn:
        answer = conn.pgconn.exec_(b"IDENTIFY_SYSTEM")
        assert answer.get_value(0, 3) == b"app"
        assert conn.info.parameter_status("pgbouncer.pool_mode") == "session"
