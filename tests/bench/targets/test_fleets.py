"""Fleets of PgBouncers are put together as operators do, and their limits add up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pgshoal.bench.targets.fleets import PgBouncers, introduce, members, pin, share
from pgshoal.demo.pooler import PgBouncer, Pooler

NOWHERE = Path("/nowhere/pgbouncer")
DATABASES = {"app": "host=127.0.0.1"}


@contextmanager
def fleets(*sizes: int, **settings: object) -> Iterator[list[PgBouncers]]:
    """Fleets that are never started."""
    with ExitStack() as stack:
        made = [PgBouncers(NOWHERE, DATABASES, size, **settings) for size in sizes]
        for one in made:
            stack.callback(one.remove)
        yield made


def test_limits_on_servers_are_divided() -> None:
    """Rounded down, what is off stays off, and nothing becomes 0: PgBouncer takes that for no limit."""
    given = {"default_pool_size": 10, "max_db_connections": "8", "min_pool_size": 0, "reserve_pool_size": 1}
    assert share(given, 1, 4) == {
        "default_pool_size": 2, "max_db_connections": 2, "min_pool_size": 0, "reserve_pool_size": 1,
    }  # fmt: skip
    assert share(given, 3, 4)["default_pool_size"] == 7


def test_limits_on_clients_are_not() -> None:
    """Nobody knows how the kernel divides clients among the processes."""
    assert share({"max_client_conn": 100}, 1, 4) == {"max_client_conn": 100}


def test_they_share_a_port_and_the_budget() -> None:
    """One port, so_reuseport, and pools that add up to no more than was allowed."""
    with fleets(4, default_pool_size=20) as (fleet,):
        everybody = members(fleet)
        assert len(everybody) == 4
        assert {one.settings["listen_port"] for one in everybody} == {fleet.port}
        assert {one.settings["so_reuseport"] for one in everybody} == {1}
        assert [one.settings["default_pool_size"] for one in everybody] == [5] * 4


def test_introduced_they_know_each_other() -> None:
    """All processes of all nodes get a number, and a list of everybody by their Unix sockets."""
    with fleets(2, 2) as nodes:
        introduce(nodes)
        everybody = [one for node in nodes for one in members(node)]
        assert [one.settings["peer_id"] for one in everybody] == [1, 2, 3, 4]
        for one in everybody:
            assert one.peers == {n: f"host={peer.folder} port={peer.port}" for n, peer in enumerate(everybody, 1)}


def test_one_alone_has_no_peers() -> None:
    """Nothing is written for a single process, nor for a fleet that was not introduced."""
    with fleets(2) as (fleet,):
        single = Pooler(DATABASES)
        introduce([single])
        assert [one.peers for one in (single, *members(fleet))] == [{}, {}, {}]
        assert "peer_id" not in single.settings
        single.remove()


class Sleeper(PgBouncer):
    """A process that stands for a PgBouncer."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, DATABASES)
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.fixture
def sleepers() -> Iterator[list[Sleeper]]:
    """Two of them."""
    made = [Sleeper(), Sleeper()]
    yield made
    for one in made:
        assert one._process is not None
        assert one._process.stdin is not None
        one._process.stdin.close()
        one._process.wait()
        one.remove()


def test_pinned_each_has_a_processor(sleepers: list[Sleeper]) -> None:
    """The first the first one, the second the second one; where there is but one they share it."""
    usable = sorted(os.sched_getaffinity(0))
    pin(sleepers)
    wanted = [{usable[number % len(usable)]} for number in range(2)]
    assert [os.sched_getaffinity(one.pid) for one in sleepers] == wanted
