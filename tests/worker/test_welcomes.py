"""What one worker's server has reported greets the clients of all workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pgshoal.worker.link import Place
from pgshoal.worker.reload import apply
from tests.support import messages as m
from tests.worker.alone import Alone
from tests.worker.bench import Bench

TOLD = {"database": "app", "user": "alice", "parameters": [["server_version", "15.9"], ["TimeZone", "UTC"]]}


def said(bench: Bench) -> list[Any]:
    """The parameters of the welcomes this worker has told the others."""
    return [fields["parameters"] for verb, fields in bench.fleet.sent if verb == "welcome"]


def test_the_first_login_is_told_once(benches: Any) -> None:
    """Later servers of the pool say nothing new."""
    bench = benches()
    clients = [bench.login(), bench.login()]
    bench.serve(1)
    for client in clients:
        bench.say(client, m.query("select 1"))
    bench.serve(1)
    assert len(said(bench)) == 1
    assert ("server_version", "15.0") in said(bench)[0]


def test_who_waits_is_greeted_by_what_another_worker_tells(benches: Any) -> None:
    """No server of one's own is needed; the attempt under way goes on."""
    bench = benches()
    client = bench.login()
    assert bench.heard(client) == b""
    bench.fleet.hear("welcome", **TOLD)
    heard = bench.heard(client)
    assert b"server_version\x0015.9\0" in heard
    assert heard.endswith(m.ready())


def test_a_worker_that_is_started_later_knows_all(benches: Any) -> None:
    """The supervisor hands the welcomes over at boot: a login opens no server."""
    bench = benches(fleet=Alone(Place(state={"welcomes": [TOLD]})))
    client = bench.login()
    assert bench.heard(client).endswith(m.ready())
    assert bench.new_servers() == []


def test_its_own_server_knows_better(benches: Any) -> None:
    """What a pool's own login reports replaces what it was told, and is told to the others."""
    bench = benches(fleet=Alone(Place(state={"welcomes": [TOLD]})))
    client = bench.login()
    bench.heard(client)
    bench.say(client, m.query("select 1"))
    bench.serve(1)
    late = bench.login()
    assert b"server_version\x0015.0\0" in bench.heard(late)
    assert len(said(bench)) == 1


def test_reconnect_forgets(benches: Any) -> None:
    """The others are told so, and the next login waits for a new server."""
    bench = benches()
    bench.login()
    bench.serve(1)
    bench.worker.pause.reconnect(None)
    assert said(bench)[-1] is None
    client = bench.login()
    assert bench.heard(client) == b""
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())
    assert said(bench)[-1] is not None


def reconnect(bench: Bench) -> None:
    """The operator says that servers may have become others."""
    bench.worker.pause.reconnect(None)


def renew(bench: Bench) -> None:
    """A reload after which the entry leads elsewhere."""
    config = bench.worker.config
    entry = replace(config.databases["app"], dbname="another")
    apply(bench.worker, replace(config, databases={**config.databases, "app": entry}))


@pytest.mark.parametrize("change", [reconnect, renew])
def test_hearsay_is_forgotten_without_a_pool(benches: Any, change: Callable[[Bench], None]) -> None:
    """A worker that has no pool yet does not greet its first client with what another said before the change."""
    bench = benches()
    bench.fleet.hear("welcome", **TOLD)
    change(bench)
    client = bench.login()
    assert bench.heard(client) == b""
    bench.serve(1)
    assert b"server_version\x0015.0\0" in bench.heard(client)


def test_forgetting_elsewhere_takes_nothing_from_a_pool(benches: Any) -> None:
    """A worker forgets when it is told to reconnect itself: its fresh welcome must not fall to another's late word."""
    bench = benches()
    bench.login()
    bench.serve(1)
    bench.fleet.hear("welcome", database="app", user="alice", parameters=None)
    late = bench.login()
    assert bench.heard(late).endswith(m.ready())


def test_forgetting_elsewhere_leaves_those_who_wait(benches: Any) -> None:
    """They are still there when a welcome comes."""
    bench = benches()
    client = bench.login()
    bench.fleet.hear("welcome", database="app", user="alice", parameters=None)
    bench.serve(1)
    assert bench.heard(client).endswith(m.ready())


def test_lookup_pools_keep_theirs(benches: Any) -> None:
    """A pool of auth_query is nobody's to be welcomed to."""
    bench = benches()
    worker = bench.worker
    pool = worker.pools.lookup_pool(worker.pools.databases["app"], "alice")
    worker.welcomes.told(pool, [("server_version", "15.0")])
    assert said(bench) == []
