"""Servers go to the worker whose clients wait for them; with a ledger and without sockets."""

from __future__ import annotations

from typing import Any

from tests.support import messages as m
from tests.worker.neighbours import Neighbours
from tests.worker.test_budget import busy, used


def hold(fleet: Neighbours, number: int, count: int) -> list[int]:
    """So many idle servers in one worker."""
    clients, servers = busy(fleet[number], count, count)
    for server in servers:
        fleet[number].answer(server)
    for client in clients:
        fleet[number].heard(client)
    return servers


def ask(fleet: Neighbours, number: int, user: str = "alice") -> int:
    """A client that waits for a server in another worker."""
    client = fleet[number].login(user)
    fleet[number].say(client, m.query("select 1"))
    return client


def test_an_idle_server_is_given(fleets: Any) -> None:
    """All slots are idle in one worker: the one idle longest goes, and the other worker opens its own."""
    fleet = fleets(default_pool_size=2)
    servers = hold(fleet, 0, 2)
    fleet.pass_time(0.1)
    client = ask(fleet, 1)
    fleet.look()
    assert [fleet[0].alive(server) for server in servers].count(False) == 1
    (server,) = fleet[1].serve(1)
    fleet[1].answer(server)
    assert fleet[1].heard(client).endswith(m.ready())
    assert used(fleet[1]) == 2
    assert fleet[0].log.has("closing because: given to another worker")


def test_nothing_is_given_while_nobody_waits(fleets: Any) -> None:
    """Idle servers stay where they are."""
    fleet = fleets(default_pool_size=2)
    servers = hold(fleet, 0, 2)
    fleet.pass_time(1)
    assert all(map(fleet[0].alive, servers))


def test_a_server_used_just_now_is_kept_by_a_worker_within_its_share(fleets: Any) -> None:
    """Its own client will ask again: it goes only when it has rested for a moment."""
    fleet = fleets(default_pool_size=4)
    hold(fleet, 0, 2)
    busy(fleet[1], 3, 2)
    fleet.look()
    assert len(fleet[0].worker.servers.by_conn) == 2
    fleet.pass_time(0.03)
    assert len(fleet[0].worker.servers.by_conn) == 1
    assert len(fleet[1].new_servers()) == 1


def test_one_waiter_gets_one_server(fleets: Any) -> None:
    """Two workers with idle servers do not both give one for the same client."""
    fleet = fleets(3, default_pool_size=6)
    hold(fleet, 0, 3)
    hold(fleet, 1, 3)
    fleet.pass_time(0.1)
    ask(fleet, 2)
    fleet.look()
    fleet.look()
    assert [len(bench.worker.servers.by_conn) for bench in fleet.benches] in ([3, 2, 1], [2, 3, 1])


def test_a_busy_server_goes_at_its_release(fleets: Any) -> None:
    """Who holds more than its share gives, without breaking a client, until the other has its own share."""
    fleet = fleets(default_pool_size=2)
    clients, servers = busy(fleet[0], 2, 2)
    ask(fleet, 1)
    fleet.look()
    assert all(map(fleet[0].alive, servers))
    gone = None
    for client, server in zip(clients, servers, strict=True):
        fleet[0].answer(server)
        assert fleet[0].heard(client).endswith(m.ready())
        gone = server if not fleet[0].alive(server) else gone
    assert gone is not None
    fleet.look()
    assert len(fleet[1].new_servers()) == 1


def test_a_worker_within_its_share_keeps_its_busy_servers(fleets: Any) -> None:
    """Both wait, both have their share: nothing moves."""
    fleet = fleets(default_pool_size=2)
    one, two = busy(fleet[0], 1, 1), busy(fleet[1], 1, 1)
    for number in (0, 1, 0, 1):
        ask(fleet, number)
    fleet.look()
    fleet[0].answer(one[1][0])
    fleet[1].answer(two[1][0])
    assert fleet[0].alive(one[1][0])
    assert fleet[1].alive(two[1][0])


def test_who_leaves_takes_its_wish_along(fleets: Any) -> None:
    """A client that gives up waiting leaves nothing behind that others would give way for."""
    fleet = fleets(default_pool_size=2)
    servers = hold(fleet, 0, 2)
    client = ask(fleet, 1)
    fleet[1].leave(client)
    fleet[1].worker.growth.recheck()
    fleet[1].worker.settle()
    fleet.pass_time(0.4)
    assert all(map(fleet[0].alive, servers))


def test_a_pool_whose_own_clients_wait_gives_nothing_idle(fleets: Any) -> None:
    """A paused line in front of an idle server is still a line."""
    fleet = fleets(default_pool_size=1)
    (server,) = hold(fleet, 0, 1)
    worker = fleet[0].worker
    (pool,) = worker.pools.by_key.values()
    worker.engine.pause_pool(pool.id, True)
    ask(fleet, 0)
    fleet.pass_time(0.1)
    ask(fleet, 1)
    fleet.look()
    assert fleet[0].alive(server)


def test_another_pool_of_the_database_gives_way(fleets: Any) -> None:
    """max_db_connections: idle servers of one user in one worker make room for another user in another."""
    fleet = fleets(max_db_connections=2)
    hold(fleet, 0, 2)
    fleet.pass_time(0.1)
    ask(fleet, 1, "bob")
    fleet.look()
    assert len(fleet[1].new_servers()) == 1
    assert fleet[0].log.has("evicted for max_db_connections")


def test_a_server_set_aside_for_a_check_is_given_too(fleets: Any) -> None:
    """Nobody uses it either."""
    fleet = fleets(default_pool_size=1, server_check_query="select 1", server_check_delay=1.0)
    (server,) = hold(fleet, 0, 1)
    fleet.pass_time(2)
    fleet.pass_time(0.4)
    ask(fleet, 1)
    fleet.look()
    assert not fleet[0].alive(server)
    assert len(fleet[1].new_servers()) == 1


def test_more_workers_than_slots_take_turns(fleets: Any) -> None:
    """One slot, two workers whose clients always wait: each gets it again and again."""
    fleet = fleets(default_pool_size=1)
    owners = []
    clients = [ask(fleet, 0), ask(fleet, 1)]
    for _ in range(12):
        for number, bench in enumerate(fleet.benches):
            for conn in bench.new_servers():
                bench.welcome(conn)
            for conn in list(bench.worker.servers.by_conn):
                owners.append(number)
                bench.answer(conn)
            bench.heard(clients[number])
            if bench.engine.facts(clients[number]).mode == "parked":
                bench.say(clients[number], m.query("select 1"))
        fleet.pass_time(0.2)
    assert min(owners.count(0), owners.count(1)) >= 3


def test_a_server_that_comes_to_rest_in_another_pool_here(fleets: Any) -> None:
    """While clients wait, the pools of their own worker are looked at as often as others are asked."""
    fleet = fleets(1, max_db_connections=1)
    _, (server,) = busy(fleet[0], 1, 1)
    ask(fleet, 0, "bob")
    for conn in fleet[0].new_servers():
        fleet[0].welcome(conn)
    assert not fleet[0].worker.growth.recheck()
    fleet[0].answer(server)
    assert fleet[0].worker.growth.recheck()
    fleet.fleets[0].prompt = False
    fleet[0].worker.settle()
    assert not fleet[0].alive(server)
    fleet.fleets[0].end()
    fleet[0].worker.settle()
    assert len(fleet[0].new_servers()) == 1


def test_a_promise_is_kept_by_whichever_server_is_released_first(fleets: Any) -> None:
    """A long transaction on one server does not hold up the other worker while another server comes back."""
    fleet = fleets(default_pool_size=2)
    _, (first, second) = busy(fleet[0], 2, 2)
    ask(fleet, 1)
    fleet.look()
    fleet[0].answer(second)
    assert fleet[0].alive(first)
    assert not fleet[0].alive(second)
    fleet.look()
    assert len(fleet[1].new_servers()) == 1
    fleet[0].answer(first)
    assert fleet[0].alive(first)


def test_an_idle_server_goes_although_a_busy_one_is_promised(fleets: Any) -> None:
    """Whoever waits does not wait for the end of a session when there is something at hand."""
    fleet = fleets(default_pool_size=2)
    _, (first, second) = busy(fleet[0], 2, 2)
    fleet[0].heard(second)
    waiting = ask(fleet, 1)
    fleet.look()
    promises, (pool,) = fleet[0].worker.servers.promises, fleet[0].worker.pools.by_key.values()
    assert promises.owed_for(pool.rows.pool) == 1
    fleet[0].worker.engine.decide(second, False)
    fleet[0].answer(second)
    fleet.look()
    assert not fleet[0].alive(second)
    assert promises.owed_for(pool.rows.pool) == 0
    assert fleet[1].alive(fleet[1].serve(1)[0])
    fleet[1].heard(waiting)
    fleet[0].answer(first)
    assert fleet[0].alive(first)


def test_a_promise_nobody_waits_for_is_void(fleets: Any) -> None:
    """The other worker's client has gone meanwhile: the server stays."""
    fleet = fleets(default_pool_size=2)
    _, servers = busy(fleet[0], 2, 2)
    client = ask(fleet, 1)
    fleet.look()
    fleet[1].leave(client)
    fleet[1].worker.growth.recheck()
    fleet[1].worker.settle()
    for server in servers:
        fleet[0].answer(server)
    assert all(map(fleet[0].alive, servers))


def test_a_new_server_keeps_its_pools_promise(fleets: Any) -> None:
    """The busy server of the promise is lost, another takes its place: it goes at its first release."""
    fleet = fleets(default_pool_size=2, max_db_connections=3)
    bench = fleet[0]
    _, (first, second) = busy(bench, 2, 2)
    (pool,) = bench.worker.pools.by_key.values()
    bench.worker.servers.promises.make(pool, "test")
    bench.leave(first)
    ask(fleet, 0)
    (third,) = bench.serve(1)
    bench.answer(third)
    assert not bench.alive(third)
    assert bench.alive(second)


def test_any_pool_of_the_database_keeps_the_promise(fleets: Any) -> None:
    """The larger pool's servers are in long transactions: the other pool's server goes when it is released."""
    fleet = fleets(max_db_connections=3)
    _, servers = busy(fleet[0], 2, 2)
    ask(fleet, 0, "bob")
    for conn in fleet[0].new_servers():
        fleet[0].welcome(conn)
    (other,) = [conn for conn in fleet[0].worker.servers.by_conn if conn not in servers]
    ask(fleet, 1, "carol")
    fleet.look()
    fleet[0].answer(other)
    assert not fleet[0].alive(other)
    assert all(map(fleet[0].alive, servers))
    fleet.look()
    assert len(fleet[1].new_servers()) == 1
