"""PAUSE, RESUME, KILL, DISABLE, RECONNECT, WAIT_CLOSE and SHUTDOWN on a manual clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pgshoal.worker.records import ServerState
from tests.support import messages as m
from tests.worker.bench import Bench, close


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker with two databases."""
    made = Bench({"app": "", "other": ""}, default_pool_size=2)
    yield made
    close(made)


def test_pause_waits_for_busy_servers_only(bench: Bench) -> None:
    """PAUSE closes idle servers at once, busy ones at their release, and then answers."""
    client = bench.login()
    (server,) = bench.serve()
    bench.say(client, m.query("select 1"))
    told: list[bool] = []
    bench.worker.pause.pause(None, told.append)
    assert told == []
    bench.answer(server)
    assert told == [True]
    assert bench.log.has("closing because: pause mode")


def test_paused_clients_wait_and_resume_serves_them(bench: Bench) -> None:
    """While paused a query waits without any new connection; RESUME opens one."""
    client = bench.login()
    bench.serve()
    told: list[bool] = []
    bench.worker.pause.pause(None, told.append)
    assert told == [True]
    bench.say(client, m.query("select 1"))
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    bench.worker.pause.resume(None)
    bench.worker.drain()
    assert len(bench.new_servers()) == 1


def test_to_repeat_changes_nothing(bench: Bench) -> None:
    """A worker that came late may be told what it was booted with."""
    pause, app = bench.worker.pause, bench.worker.pools.databases["app"]
    told: list[bool] = []
    pause.resume(None)
    pause.resume(app)
    for _ in range(2):
        pause.pause(None, told.append)
        pause.pause(app, told.append)
        pause.disable(app)
    assert told == [True] * 4
    for _ in range(2):
        pause.resume(None)
        pause.resume(app)
        pause.enable(app)
    assert (pause.everything, app.paused, app.disabled) == (False, False, False)


def test_a_worker_stands_as_the_others_do() -> None:
    """One that is started during a PAUSE is paused from its first moment, names of `*` included."""
    made = Bench({"app": "", "other": ""}, autodb="")
    try:
        state = {"paused": False, "paused_databases": ["app", "auto", "\udce9"], "disabled_databases": ["other"]}
        made.worker.pause.adopt(state)
        databases = made.worker.pools.databases
        assert [name for name, one in databases.items() if one.paused] == ["app", "auto", "\udce9"]
        assert made.error(made.login(dbname="other")) == 'database "other" is disabled'
        made.login()
        made.pass_time(0.4)
        assert made.new_servers() == []
        made.worker.pause.adopt({"paused": True, "shutdown": "clients"})
        assert made.worker.pause.everything
        assert made.worker.shutdown == "clients"
    finally:
        close(made)


def test_interrupted_pause_is_answered(bench: Bench) -> None:
    """A RESUME tells those who still waited for the PAUSE."""
    client = bench.login()
    bench.serve()
    bench.say(client, m.query("select 1"))
    told: list[bool] = []
    bench.worker.pause.pause(None, told.append)
    bench.worker.pause.resume(None)
    assert told == [False]


def test_waiters_hear_only_of_their_own(bench: Bench) -> None:
    """PAUSE of one database is not answered by what happens in another, nor by a WAIT_CLOSE."""
    app, other = (bench.worker.pools.databases[name] for name in ("app", "other"))
    first = bench.login()
    (server,) = bench.serve()
    bench.say(first, m.query("select 1"))
    second = bench.login(dbname="other")
    (second_server,) = bench.serve()
    bench.say(second, m.query("select 1"))
    paused: list[bool] = []
    closed: list[bool] = []
    bench.worker.pause.pause(app, paused.append)
    bench.worker.pause.reconnect(other)
    bench.worker.pause.wait_close(other, closed.append)
    assert (paused, closed) == ([], [])
    bench.answer(second_server)
    assert (paused, closed) == ([], [True])
    bench.answer(server)
    assert (paused, closed) == ([True], [True])


def test_database_pause_is_independent_of_the_global_one(bench: Bench) -> None:
    """A plain RESUME leaves a paused database paused."""
    app = bench.worker.pools.databases["app"]
    client = bench.login()
    bench.serve()
    bench.worker.pause.pause(app, lambda reached: None)
    bench.worker.pause.pause(None, lambda reached: None)
    bench.worker.pause.resume(None)
    bench.say(client, m.query("select 1"))
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    bench.worker.pause.resume(app)
    bench.worker.drain()
    assert len(bench.new_servers()) == 1


def test_kill(bench: Bench) -> None:
    """KILL drops clients and servers of its database; new logins wait for RESUME."""
    app = bench.worker.pools.databases["app"]
    client, stranger = bench.login(), bench.login(dbname="other")
    servers = bench.serve(2)
    bench.heard(client)
    bench.heard(stranger)
    bench.worker.pause.kill(app)
    assert bench.error(client) == "database removed"
    assert bench.heard(stranger) == b""
    assert sum(map(bench.alive, servers)) == 1
    late = bench.login()
    bench.pass_time(0.4)
    assert bench.new_servers() == []
    bench.worker.pause.resume(app)
    bench.worker.drain()
    bench.serve()
    assert bench.heard(late).endswith(m.ready())


def test_disable(bench: Bench) -> None:
    """A disabled database refuses logins and keeps its clients."""
    app = bench.worker.pools.databases["app"]
    client = bench.login()
    (server,) = bench.serve()
    bench.worker.pause.disable(app)
    assert bench.error(bench.login()) == 'database "app" is disabled'
    bench.heard(client)
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    assert bench.heard(client).endswith(m.ready())
    bench.worker.pause.enable(app)
    assert bench.heard(bench.login()).endswith(m.ready())


def test_disabled_names_of_the_asterisk() -> None:
    """An entry that was dropped because nobody used it comes back disabled, as it is in other workers."""
    made = Bench(autodb="", autodb_idle_timeout=1)
    try:
        pools, pause = made.worker.pools, made.worker.pause
        auto = pools.database("auto")
        assert auto is not None
        pause.disable(auto)
        made.pass_time(5)
        assert "auto" not in pools.databases
        assert made.error(made.login(dbname="auto")) == 'database "auto" is disabled'
        back = pools.database("auto")
        assert back is not None
        pause.enable(back)
        assert not back.disabled
    finally:
        close(made)


def test_reconnect_replaces_servers(bench: Bench) -> None:
    """RECONNECT closes what is idle now and what is busy at its release, and asks for the welcome anew."""
    client = bench.login()
    (server,) = bench.serve()
    bench.say(client, m.query("begin"))
    bench.worker.pause.reconnect(None)
    assert bench.alive(server)
    bench.answer(server)
    assert not bench.alive(server)
    assert bench.log.has("closing because: close_needed")
    late = bench.login()
    assert bench.heard(late) == b""
    bench.serve()
    assert bench.heard(late).endswith(m.ready())


def test_reconnect_drops_logins_under_way(bench: Bench) -> None:
    """A server that is just logging in may already be the wrong one."""
    bench.login()
    (server,) = bench.new_servers()
    bench.worker.pause.reconnect(None)
    bench.worker.drain()
    assert not bench.alive(server)
    assert bench.log.has("closing because: connect string changed")
    assert len(bench.new_servers()) == 1


def test_pause_while_a_server_logs_in(bench: Bench) -> None:
    """PAUSE drops it without a penalty: after RESUME the next connection is tried at once."""
    client = bench.login()
    (server,) = bench.new_servers()
    told: list[bool] = []
    bench.worker.pause.pause(None, told.append)
    bench.worker.drain()
    assert (told, bench.alive(server)) == ([True], False)
    bench.worker.pause.resume(None)
    bench.worker.drain()
    bench.serve()
    assert bench.heard(client).endswith(m.ready())


def empties(bench: Bench) -> list[bool]:
    """What the supervisor was told of the end under way."""
    return [fields["empty"] for verb, fields in bench.fleet.sent if verb == "empty"]


def test_shutdown_waits_for_servers(bench: Bench) -> None:
    """Waiting clients are told, busy ones finish, and the supervisor hears when no server is left."""
    busy, waiting = bench.login(), bench.login()
    (server,) = bench.serve()
    bench.say(busy, m.query("select 1"))
    bench.say(waiting, m.query("select 1"))
    bench.heard(waiting)
    bench.worker.pause.shutdown("servers")
    assert bench.error(waiting) == "server shutting down"
    bench.pass_time(0.4)
    assert empties(bench) == [False]
    bench.worker.pause.resume(None)
    assert bench.worker.pause.everything
    bench.answer(server)
    bench.pass_time(0.4)
    assert empties(bench) == [False, True]
    assert bench.worker.exit_code is None


def test_shutdown_waits_for_clients(bench: Bench) -> None:
    """Clients go on as before; the supervisor hears when the last has left, and when another comes to the console."""
    client = bench.login()
    (server,) = bench.serve()
    bench.worker.pause.shutdown("clients")
    bench.say(client, m.query("select 1"))
    bench.answer(server)
    bench.pass_time(0.4)
    assert empties(bench) == [False]
    bench.say(client, m.message(b"X"))
    bench.pass_time(0.4)
    bench.engine.accept_manual(1)
    bench.pass_time(0.4)
    bench.pass_time(0.4)
    assert empties(bench)[:2] == [False, True]
    bench.worker.pause.shutdown("servers")
    bench.worker.pause.shutdown("clients")
    assert bench.worker.shutdown == "servers"


def test_a_server_that_died_in_the_same_wake(bench: Bench) -> None:
    """RECONNECT and PAUSE go on to the other servers; what was read of the dead one follows."""
    client, other = bench.login(), bench.login()
    bench.serve()
    for conn in (client, other):
        bench.say(conn, m.query("select 1"))
    bench.serve()
    first, second = bench.worker.servers.by_conn
    bench.answer(first)
    bench.engine.received_eof(first)
    bench.worker.pause.reconnect(None)
    assert bench.worker.servers.by_conn[second].close_needed
    bench.engine.received_eof(second)
    told: list[bool] = []
    bench.worker.pause.pause(None, told.append)
    bench.worker.drain()
    assert told == [True]
    assert bench.worker.servers.by_conn == {}


def test_a_server_set_aside_that_died_in_the_same_wake(bench: Bench) -> None:
    """Its check is not begun, and the client that wanted it gets another one."""
    settings = replace(bench.worker.config.settings, server_check_query="select 1", server_check_delay=1)
    bench.worker.config = replace(bench.worker.config, settings=settings)
    client = bench.login()
    (server,) = bench.serve()
    bench.pass_time(2)
    assert bench.worker.servers.by_conn[server].state is ServerState.USED
    bench.engine.received(client, m.query("select 1"))
    bench.engine.received_eof(server)
    bench.worker.growth.tick()
    bench.worker.growth.run()
    bench.worker.drain()
    bench.pass_time(0.4)
    assert not bench.alive(server)
    assert len(bench.new_servers()) == 1
    assert not bench.log.has("internal error")
