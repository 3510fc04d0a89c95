"""Limits on servers hold for several workers together; with a ledger and without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from pgshoal.worker.records import ServerState
from tests.support import messages as m
from tests.worker.bench import Bench


def used(bench: Bench) -> int:
    """Servers of the fleet's only pool."""
    (pool,) = bench.worker.pools.by_key.values()
    return bench.worker.budget.ledger.used(pool.rows.pool)


def busy(bench: Bench, clients: int, servers: int) -> tuple[list[int], list[int]]:
    """So many clients with a query each, on so many new servers."""
    conns = [bench.login() for _ in range(clients)]
    found = bench.new_servers()  # for the welcome, if no other worker has told it
    for conn in found:
        bench.welcome(conn)
    for conn in conns:
        bench.say(conn, m.query("select 1"))
    found += bench.serve(servers - len(found))
    return conns, found


def test_pool_size_is_for_all_workers(fleets: Any) -> None:
    """What one has taken, the other may not."""
    fleet = fleets(default_pool_size=3)
    busy(fleet[0], 2, 2)
    busy(fleet[1], 5, 1)
    assert used(fleet[0]) == 3
    fleet.pass_time(0.4)
    assert fleet[0].new_servers() == fleet[1].new_servers() == []


def test_a_slot_is_free_when_the_backend_is_gone_and_not_before(fleets: Any) -> None:
    """A server that is closed while its query may run counts until the supervisor says `gone`."""
    fleet = fleets(default_pool_size=1)
    (client,), (server,) = busy(fleet[0], 1, 1)
    fleet.fleets[0].prompt = False
    fleet[0].leave(client)
    assert not fleet[0].alive(server)
    late = fleet[1].login()
    fleet[1].say(late, m.query("select 2"))
    fleet.pass_time(0.4)
    assert fleet[1].new_servers() == []
    assert fleet.fleets[0].buried[0]["busy"] is True
    assert fleet.fleets[0].end() == 1
    fleet.look()
    assert len(fleet[1].new_servers()) == 1


def test_the_same_within_one_worker(fleets: Any) -> None:
    """Its own next client waits for `gone` as well, and then gets a server at once."""
    fleet = fleets(1, default_pool_size=1)
    (client,), _ = busy(fleet[0], 1, 1)
    fleet.fleets[0].prompt = False
    fleet[0].leave(client)
    late = fleet[0].login()
    fleet[0].say(late, m.query("select 2"))
    assert fleet[0].new_servers() == []
    fleet.fleets[0].end()
    fleet[0].worker.settle()
    assert len(fleet[0].new_servers()) == 1


def test_a_server_that_ended_first_frees_its_slot_at_once(fleets: Any) -> None:
    """Its backend is gone: nobody need be asked."""
    fleet = fleets(1, default_pool_size=1)
    (client,), (server,) = busy(fleet[0], 1, 1)
    fleet.fleets[0].prompt = False
    fleet[0].leave(server)
    assert fleet[0].error(client) == "server conn crashed?"
    assert used(fleet[0]) == 0
    assert [verb for verb, _ in fleet.fleets[0].sent if verb in ("lost", "bury")] == ["lost"]


def test_a_dropped_pool_still_counts_its_dying_servers(fleets: Any) -> None:
    """KILL removes the pool; what its backends held of the database's limit is free when they are gone."""
    fleet = fleets(default_pool_size=2, max_db_connections=2)
    busy(fleet[0], 2, 2)
    fleet.fleets[0].prompt = False
    worker = fleet[0].worker
    worker.pause.kill(worker.pools.databases["app"])
    assert worker.pools.by_id == {}
    late = fleet[1].login()
    fleet.pass_time(0.4)
    assert fleet[1].new_servers() == []
    fleet.fleets[0].end()
    fleet.look()
    fleet[1].serve(1)
    fleet[1].say(late, m.query("select 1"))
    assert len(fleet[1].new_servers()) == 0


def test_the_reserve_is_for_all_workers(fleets: Any) -> None:
    """It opens for a worker whose client has waited reserve_pool_timeout, once for the fleet."""
    fleet = fleets(default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout=5.0, server_idle_timeout=0)
    busy(fleet[0], 2, 1)
    busy(fleet[1], 1, 0)
    fleet.pass_time(4.9)
    assert used(fleet[0]) == 1
    for _ in range(3):
        fleet.pass_time(0.4)
    assert used(fleet[0]) == 2
    assert len(fleet[0].new_servers()) + len(fleet[1].new_servers()) == 1


def test_min_pool_size_is_for_all_workers(fleets: Any) -> None:
    """Workers with clients of the pool fill it together, and no further."""
    fleet = fleets(4, min_pool_size=5)
    for bench in fleet.benches:
        bench.login()
        for conn in bench.new_servers():
            bench.welcome(conn)
    for _ in range(9):
        fleet.pass_time(0.4)
        for bench in fleet.benches:
            for conn in bench.new_servers():
                bench.welcome(conn)
    assert used(fleet[0]) == 5


def test_static_parts(fleets: Any) -> None:
    """budget = static: each worker has its part of a limit, the remainder going to the lowest numbers."""
    fleet = fleets(2, static=True, default_pool_size=5, server_connect_parallel=9)
    busy(fleet[0], 9, 3)
    busy(fleet[1], 9, 2)
    fleet.pass_time(0.4)
    assert used(fleet[0]) == 5


def test_a_static_limit_below_the_workers_is_shared(fleets: Any) -> None:
    """One slot for two workers cannot be divided."""
    fleet = fleets(2, static=True, default_pool_size=1)
    busy(fleet[1], 1, 1)
    assert used(fleet[1]) == 1


def test_a_static_reserve_that_can_be_divided_beside_a_size_that_cannot(fleets: Any) -> None:
    """One slot for two workers is shared, but with the reserve each has one: nobody waits beyond the timeout."""
    fleet = fleets(2, static=True, default_pool_size=1, reserve_pool_size=1, reserve_pool_timeout=5.0)
    busy(fleet[0], 2, 1)
    busy(fleet[1], 1, 0)
    fleet.pass_time(4.9)
    assert fleet[1].new_servers() == []
    for _ in range(3):
        fleet.pass_time(0.4)
    assert len(fleet[1].new_servers()) == 1
    assert used(fleet[0]) == 2


def test_surplus_after_a_limit_was_lowered(fleets: Any) -> None:
    """Each worker gives up what it holds above its share, until the fleet is within the limit again."""
    fleet = fleets(2, default_pool_size=6, server_connect_parallel=9)
    servers = [busy(fleet[number], 3, 3)[1] for number in range(2)]
    for number, conns in enumerate(servers):
        for conn in conns:
            fleet[number].answer(conn)
    for bench in fleet.benches:
        database = bench.worker.pools.databases["app"]
        database.config = type(database.config)("app", hosts=("127.0.0.1",), pool_size=4)
    fleet.pass_time(0.4)
    fleet.pass_time(0.4)
    assert [sum(map(fleet[n].alive, conns)) for n, conns in enumerate(servers)] == [2, 2]


def test_surplus_under_steady_load(fleets: Any) -> None:
    """Servers that are never seen idle go at their release when a limit was lowered, as many as needed."""
    fleet = fleets(1, default_pool_size=4, server_connect_parallel=9)
    bench = fleet[0]
    _, servers = busy(bench, 6, 4)
    database = bench.worker.pools.databases["app"]
    database.config = type(database.config)("app", hosts=("127.0.0.1",), pool_size=3)
    bench.pass_time(0.4)
    for server in servers:
        bench.answer(server)
    assert sum(map(bench.alive, servers)) == 3


def test_an_attempt_that_never_began_costs_nothing(fleets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without an address: the slot is back, and the next attempt may come."""
    fleet = fleets(1, default_pool_size=1)
    bench = fleet[0]
    monkeypatch.setattr(bench.worker.resolver, "find", lambda host, found: found([]))
    bench.login()
    assert used(bench) == 0
    assert bench.worker.pools.databases["app"].server_connections == 0


def test_rows_are_forgotten_with_their_pool(fleets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped pool's rows are kept until its last backend is gone, so that nobody else gets them meanwhile."""
    fleet = fleets(1, default_pool_size=1)
    busy(fleet[0], 1, 1)
    bench = fleet[0]
    (pool,) = bench.worker.pools.by_id.values()
    forgotten: list[int] = []
    monkeypatch.setattr(bench.worker.budget.ledger, "forget", forgotten.append)
    fleet.fleets[0].prompt = False
    bench.worker.pause.kill(pool.database)
    assert forgotten == []
    fleet.fleets[0].end()
    assert forgotten == list(pool.rows)


def test_lookups_have_a_size_of_their_own(fleets: Any) -> None:
    """A pool of auth_query and a client pool of the same names do not share pool_size, but they share the database."""
    fleet = fleets(1, default_pool_size=1)
    worker = fleet[0].worker
    database, user = worker.pools.databases["app"], worker.pools.users["alice"]
    mine, lookups = worker.pools.pool(database, user), worker.pools.lookup_pool(database, "alice")
    assert mine.rows.pool != lookups.rows.pool
    assert (mine.rows.database, mine.rows.user) == (lookups.rows.database, lookups.rows.user)


def test_cancel_carriers_are_not_counted(fleets: Any) -> None:
    """A connection that carries a cancel request is no backend."""
    fleet = fleets(1, default_pool_size=1)
    (client,), (server,) = busy(fleet[0], 1, 1)
    bench = fleet[0]
    key = bench.worker.front.clients[client].cancel_key
    carrier = bench.engine.accept_manual(1)
    bench.worker.drain()
    bench.say(carrier, m.cancel_request(key))
    (conn,) = bench.new_servers()
    assert bench.worker.servers.by_conn[conn].state is ServerState.CANCEL
    assert used(bench) == 1
    bench.connect(conn)
    bench.leave(conn)
    assert used(bench) == 1
    assert bench.alive(server)


@pytest.mark.parametrize("command", ["pause", "wait_close"])
def test_who_waits_for_servers_to_go_waits_for_their_backends(fleets: Any, command: str) -> None:
    """PAUSE and WAIT_CLOSE are answered when PostgreSQL has forgotten the connections; a dead host ends the wait."""
    fleet = fleets(1)
    bench = fleet[0]
    (client,), (server,) = busy(bench, 1, 1)
    bench.answer(server)
    fleet.fleets[0].prompt = False
    pause, answers = bench.worker.pause, list[bool]()
    if command == "wait_close":
        pause.reconnect(None)
    getattr(pause, command)(None, answers.append)
    assert answers == []
    fleet.fleets[0].end()
    assert answers == [True]
    if command == "wait_close":
        bench.say(client, m.query("select 1"))
        (server,) = bench.serve(1)
        bench.answer(server)
        pause.reconnect(None)
        pause.wait_close(None, answers.append)
        assert answers == [True]
        bench.pass_time(1.1)
        assert answers == [True, True]
