"""Replication clients under limits: what makes room for their servers, and who waits."""

from __future__ import annotations

from typing import Any

from tests.support import messages as m
from tests.worker.replicas import asked, enter, idle_server, streaming


def test_full_pool_gives_one_idle_server(benches: Any) -> None:
    """Of two idle servers one is evicted, and the client has its own as soon as that is gone."""
    bench = benches(default_pool_size=2)
    first = bench.login()
    (one,) = bench.serve(1)
    second = bench.login()
    for client in (first, second):
        bench.say(client, m.query("begin"))
    (two,) = bench.serve(1)
    bench.answer(one)
    bench.answer(two)
    replica = enter(bench)
    assert [bench.alive(one), bench.alive(two)].count(True) == 1
    bench.pass_time(0.4)
    bench.serve(1)
    assert bench.heard(replica).endswith(m.ready())
    assert bench.log.has("evicted for pool_size")
    assert len(bench.worker.servers.by_conn) == 2


def test_above_pool_size_one_is_enough(benches: Any) -> None:
    """A pool that lives on its reserve gives one server for one client too, and stays as large as it was."""
    bench = benches(default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout=1.0)
    first, second = bench.login(), bench.login()
    (one,) = bench.serve(1)
    for client in (first, second):
        bench.say(client, m.query("begin"))
    bench.pass_time(1.1)
    (two,) = bench.serve(1)
    bench.answer(one)
    bench.answer(two)
    assert bench.alive(one)
    assert bench.alive(two)
    enter(bench)
    assert [bench.alive(one), bench.alive(two)].count(True) == 1
    bench.pass_time(0.4)
    bench.serve(1)
    assert len(bench.worker.servers.by_conn) == 2


def test_full_pool_without_idle_servers(benches: Any) -> None:
    """The next server that is released is closed for it, though others wait too, if it has waited longest."""
    bench = benches(default_pool_size=1)
    first, second = bench.login(), bench.login()
    (one,) = bench.serve(1)
    bench.say(first, m.query("select 1"))
    replica = enter(bench)
    bench.pass_time(0.1)
    bench.say(second, m.query("select 2"))
    assert bench.alive(one)
    bench.answer(one)
    assert not bench.alive(one)
    bench.pass_time(0.4)
    bench.serve(1)
    assert bench.heard(replica).endswith(m.ready())


def test_nothing_is_closed_for_a_client_that_left(benches: Any) -> None:
    """A busy server that was to make room serves on when nobody needs the room."""
    bench = benches(default_pool_size=1)
    first = bench.login()
    (one,) = bench.serve(1)
    bench.say(first, m.query("select 1"))
    replica = enter(bench)
    bench.leave(replica)
    bench.answer(one)
    assert bench.alive(one)


def test_waiting_for_room_has_its_limit(benches: Any) -> None:
    """query_wait_timeout holds for a client that is still without a server."""
    bench = benches(default_pool_size=1, query_wait_timeout=5.0)
    streaming(bench)
    late = enter(bench)
    bench.pass_time(4.9)
    assert bench.error(late) == ""
    bench.pass_time(0.2)
    assert bench.error(late) == "query_wait_timeout"


def test_other_limits_count_too(benches: Any) -> None:
    """max_db_connections: another user's idle server is evicted for it."""
    bench = benches(max_db_connections=1)
    shared = idle_server(bench, "bob")
    enter(bench)
    assert not bench.alive(shared)
    bench.pass_time(0.4)
    bench.serve(1)
    assert bench.log.has("evicted for max_db_connections")


def test_min_pool_size_is_for_the_shared_pool(benches: Any) -> None:
    """A replication client's pool is never filled."""
    bench = benches(min_pool_size=3)
    enter(bench)
    bench.serve(1)
    bench.pass_time(1.0)
    assert bench.new_servers() == []


def test_forced_user(benches: Any) -> None:
    """The entry's user replicates, and its pool is the one that must have room."""
    bench = benches({"app": "user=bob password=x"}, default_pool_size=1)
    shared = idle_server(bench)
    enter(bench)
    assert not bench.alive(shared)
    bench.pass_time(0.4)
    (server,) = bench.new_servers()
    assert asked(bench, server)["user"] == "bob"
