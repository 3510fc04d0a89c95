"""Replication clients byte by byte: their own servers, what the console says of them, and how streams begin and end."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres
from tests.support.walstreams import ROLE, decoded, owned_folder, replicating, start_stream

BIG = 10_000_000


@pytest.fixture(scope="module")
def source() -> Iterator[Postgres]:
    """PostgreSQL 15."""
    with replicating(15) as server:
        yield server


def entered(pooler: Pooler, kind: str = "database", **parameters: str) -> FakeClient:
    """A replication client that is logged in."""
    client = FakeClient((pooler.host, pooler.port), wait_s=20)
    try:
        client.login(ROLE, "app", replication=kind, **parameters)
    except LoginRefused:
        client.close()
        raise
    return client


def shown(pooler: Pooler, table: str) -> list[dict[str, Any]]:
    """Rows of SHOW that are not the console's."""
    return [row for row in pooler.admin(f"show {table}") if row["database"] != "pgbouncer"]


def walsenders(source: Postgres) -> int:
    """How many the server has."""
    return int(source.query("select count(*) from pg_stat_activity where backend_type = 'walsender'")[0][0])


@pytest.mark.parametrize(("kind", "name"), [("database", "logical"), ("true", "physical")])
def test_console_shows_the_pair(make: MakePooler, source: Postgres, kind: str, name: str) -> None:
    """Client and server are active, of that kind, and linked from the start; the pool counts both."""
    pooler = make({"app": database(source)})
    with entered(pooler, kind, application_name="mirror") as client:
        for _ in range(2):  # before and after its first word
            (mine,) = shown(pooler, "clients")
            (its,) = shown(pooler, "servers")
            for row in (mine, its):
                assert (row["replication"], row["state"], row["application_name"]) == (name, "active", "mirror")
            assert mine["link"] == its["ptr"]
            assert its["link"] == mine["ptr"]
            (pool,) = shown(pooler, "pools")
            assert (pool["cl_active"], pool["sv_active"], pool["sv_idle"], pool["cl_waiting"]) == (1, 1, 0, 0)
            client.query("IDENTIFY_SYSTEM")
        pid = its["remote_pid"]
        assert source.query(f"select backend_type from pg_stat_activity where pid = {pid}") == [("walsender",)]
    until(lambda: not shown(pooler, "servers"), "the server goes with its client")
    until(lambda: walsenders(source) == 0, "its backend too")
    (counted,) = shown(pooler, "stats")
    assert counted["total_query_count"] == 2
    assert counted["total_client_login_count"] == 1


def test_options_reach_the_server(make: MakePooler, source: Postgres) -> None:
    """As they are, also names an ordinary client may not set."""
    pooler = make({"app": database(source)})
    with entered(pooler, options="-c wal_sender_timeout=7s --geqo=off", DateStyle="German") as client:
        assert client.query("SHOW wal_sender_timeout")[1].payload.endswith(b"7s")
        assert client.query("SHOW geqo")[1].payload.endswith(b"off")
        assert client.parameters["DateStyle"] == "German, DMY"


def test_message_of_any_size(make: MakePooler, source: Postgres) -> None:
    """Ten megabytes in one CopyData reach a client that reads late; meanwhile the server is not read."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client:
        start_stream(client, "big")
        made = source.query(f"select md5(x) from (select repeat('0123456789', {BIG // 10}) x) t")[0][0]
        source.query(f"select pg_logical_emit_message(true, 'test', repeat('0123456789', {BIG // 10}))", "app")

        def buffered() -> int:
            return sum(row["send_avail"] + row["recv_pos"] for row in shown(pooler, "sockets"))

        until(lambda: buffered() > 0, "the client's buffers are full")
        assert buffered() < 2_000_000
        text = decoded(client, "content:")[-1]
        assert hashlib.md5(text.partition(b"content:")[2]).hexdigest() == made


def test_other_direction(make: MakePooler) -> None:
    """Large CopyData of the client, in pieces, while the server speaks too."""
    heard = threading.Event()
    body = b"r" * 3_000_000

    def script(side: ServerSide) -> None:
        side.log_in()
        side.read_until("Q")
        side.send(m.message(b"W", b"\0\0\0"), m.message(b"d", body))
        got = side.read_until("d")[-1]
        if got.payload == body:
            heard.set()
        side.read_until("c")
        side.send(m.message(b"c"), m.command_complete("START_STREAMING"), m.ready())
        side.hold()

    with FakeServer(script) as server:
        pooler = make({"app": f"host=127.0.0.1 port={server.port} dbname=app"})
        with entered(pooler, "true") as client:
            client.send(m.query("START_REPLICATION 0/0"))
            assert client.read().kind == "W"
            client.send_cut(m.message(b"d", body), size=50_000)
            assert client.read().payload == body
            assert heard.wait(20)
            client.send(m.message(b"c"))
            assert [got.kind for got in client.read_until("Z")] == ["c", "C", "Z"]


def test_leaving_during_the_servers_login(make: MakePooler) -> None:
    """A client that gives up takes the attempt with it; the pooler and later clients do not notice."""
    begun, left = threading.Event(), threading.Event()

    def script(side: ServerSide) -> None:
        side.read_startup()
        begun.set()
        if side.number == 0:
            side.socket.settimeout(20)
            if side.socket.recv(1) == b"":
                left.set()
            return
        side.welcome()
        side.hold()

    with FakeServer(script) as server:
        pooler = make({"app": f"host=127.0.0.1 port={server.port} dbname=app"}, default_pool_size=1)
        with FakeClient((pooler.host, pooler.port)) as early:
            early.send(m.startup({"user": ROLE, "database": "app", "replication": "true"}))
            assert begun.wait(10)
            assert [row["state"] for row in shown(pooler, "servers")] == ["new"]
        assert left.wait(10)
        with entered(pooler, "true"):
            pass
    assert "closing because: replication client was closed" in pooler.log_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_full_pool_gives_an_idle_server(make: MakePooler, source: Postgres, workers: int) -> None:
    """Wherever in the fleet it is; the limit holds, and ordinary clients wait until the stream has ended."""
    pooler = make({"app": database(source)}, default_pool_size=1, workers=workers, query_wait_timeout=20)
    with pooler.connect() as ordinary:
        ordinary.execute("select 1")
        with entered(pooler, "true") as client:
            assert client.query("IDENTIFY_SYSTEM")[-1].kind == "Z"
            assert [row["replication"] for row in shown(pooler, "servers")] == ["physical"]
            waits = threading.Thread(target=lambda: ordinary.execute("select 2"))
            waits.start()
            until(lambda: [row["cl_waiting"] for row in shown(pooler, "pools")] == [1], "an ordinary client waits")
        waits.join(20)
        assert not waits.is_alive()


def test_busy_pool_makes_room(make: MakePooler, source: Postgres) -> None:
    """Without an idle server the next one that is released goes."""
    pooler = make({"app": database(source)}, default_pool_size=1)
    with pooler.connect() as ordinary:
        ordinary.execute("begin")
        with FakeClient((pooler.host, pooler.port)) as client:
            client.send(m.startup({"user": ROLE, "database": "app", "replication": "true"}))
            until(lambda: [row["cl_waiting"] for row in shown(pooler, "pools")] == [1], "it waits")
            assert client.silent_for(0.5)
            ordinary.execute("commit")
            client.finish_login(ROLE, "")
    assert "closing because: evicted for pool_size" in pooler.log_text()


def test_cancel_ends_what_a_walsender_does(make: MakePooler, source: Postgres) -> None:
    """The client's own key works for a stream; the session goes on."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client:
        start_stream(client, "cancelled")
        with FakeClient((pooler.host, pooler.port)) as other:
            other.send(m.cancel_request(client.key))
            other.read_to_end()
        seen = client.read_until("Z")
        (error,) = [got for got in seen if got.kind == "E"]
        assert m.error_fields(error.payload)["C"] == "57014"
        assert client.query("IDENTIFY_SYSTEM")[-1].kind == "Z"


@pytest.mark.parametrize(
    ("command", "text"), [("reconnect", "database configuration changed"), ("kill app", "database removed")]
)
def test_console_ends_streams(make: MakePooler, source: Postgres, command: str, text: str) -> None:
    """RECONNECT does not wait for a server that is never free; KILL for nobody."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client:
        start_stream(client, "ended")
        pooler.admin(command)
        last = client.read_to_end()[-1]
        assert m.error_fields(last.payload)["M"] == text
    until(lambda: walsenders(source) == 0, "the walsender is gone")


def test_changed_entry_ends_streams(make: MakePooler, source: Postgres) -> None:
    """A RELOAD that leads the database elsewhere closes them, one that changes nothing does not."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client:
        start_stream(client, "reloaded")
        pooler.admin("reload")
        source.query("select pg_logical_emit_message(true, 'test', 'still here')", "app")
        decoded(client, "still here")
        pooler.databases["app"] = database(source, "other")
        pooler.write_config()
        pooler.admin("reload")
        last = client.read_to_end()[-1]
        assert m.error_fields(last.payload)["M"] == "database configuration changed"


def test_pause_waits_for_a_stream(make: MakePooler, source: Postgres) -> None:
    """PAUSE answers when the stream has ended by itself; until then it goes on."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client:
        start_stream(client, "paused")
        pausing = threading.Thread(target=lambda: pooler.admin("pause app"))
        pausing.start()
        until(lambda: [r["paused"] for r in pooler.admin("show databases") if r["name"] == "app"] == [1], "paused")
        source.query("select pg_logical_emit_message(true, 'test', 'in the pause')", "app")
        decoded(client, "in the pause")
        assert pausing.is_alive()
    pausing.join(20)
    assert not pausing.is_alive()


def test_refused_by_the_server(make: MakePooler, source: Postgres) -> None:
    """A role that may not replicate hears `login failed`, and can still be an ordinary client."""
    pooler = make({"app": database(source)})
    with FakeClient((pooler.host, pooler.port)) as client, pytest.raises(LoginRefused) as caught:
        client.login("bob", "app", replication="database")
    assert (caught.value.fields["C"], caught.value.fields["M"]) == ("08P01", "login failed")
    assert "S: login failed: FATAL: must be superuser or replication role to start walsender" in pooler.log_text()
    assert pooler.query("select 1", user="bob") == [(1,)]


def test_server_that_dies(make: MakePooler, source: Postgres) -> None:
    """Its last words reach a client in a stream, and one that has not said anything yet."""
    pooler = make({"app": database(source)})
    with entered(pooler) as client, entered(pooler, "true") as silent:
        start_stream(client, "dying")
        source.query("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'walsender'")
        for each in (client, silent):
            errors = [m.error_fields(got.payload)["M"] for got in each.read_to_end() if got.kind == "E"]
            assert "terminating connection due to administrator command" in errors
    until(lambda: not shown(pooler, "servers"), "both are gone")


def test_worker_that_dies(make: MakePooler, source: Postgres) -> None:
    """Its streams end, on the server too, and another worker has the slot at once."""
    pooler = make({"app": database(source)}, default_pool_size=1, workers=2)
    with entered(pooler) as client:
        start_stream(client, "orphan")
        (its,) = shown(pooler, "servers")
        seat = int(its["ptr"], 16) >> 64  # as SHOW WORKERS counts
        (pid,) = (row["pid"] for row in pooler.admin("show workers") if row["seat"] == seat)
        os.kill(pid, signal.SIGKILL)
        client.read_to_end()
    with entered(pooler) as client:
        assert client.query("IDENTIFY_SYSTEM")[-1].kind == "Z"
        assert walsenders(source) == 1


def test_hba_has_a_word_for_physical_replication(make: MakePooler, source: Postgres) -> None:
    """`replication` in the database column is for physical clients alone; `all` does not cover them."""
    with owned_folder(source) as folder:
        rules = folder / "hba"
        rules.write_text("host replication all 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 reject\n")
        pooler = make({"app": database(source)}, auth_type="hba", auth_hba_file=rules)
        with entered(pooler, "true") as client:
            assert client.query("IDENTIFY_SYSTEM")[-1].kind == "Z"
        with pytest.raises(LoginRefused, match="login rejected"):
            entered(pooler, "database")


def test_scram_keys_serve_a_replication_login(make: MakePooler, source: Postgres) -> None:
    """With a SCRAM secret in auth_file the client's own proof opens its server."""
    source.query("alter role scram_user replication")
    secret = source.query("select rolpassword from pg_authid where rolname = 'scram_user'")[0][0]
    pooler = make({"app": database(source)}, auth_type="scram-sha-256", userlist={"scram_user": secret})
    with FakeClient((pooler.host, pooler.port)) as client:
        client.login("scram_user", "app", "scram-secret", replication="database")
        assert b"app" in client.query("IDENTIFY_SYSTEM")[1].payload
