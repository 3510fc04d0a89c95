"""Clients are counted for the whole fleet, and every way a connection can end gives its place back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pgshoal.config.model import UserConfig
from pgshoal.fleet.ledger import Kind
from pgshoal.worker import clients
from tests.support import messages as m
from tests.worker.bench import Bench

TOO_MANY = "no more connections allowed (max_client_conn)"
TOO_MANY_DB = "client connections exceeded (max_db_client_connections)"
TOO_MANY_USER = "client connections exceeded (max_user_client_connections)"


def counted(bench: Bench, kind: Kind, name: str = "") -> int:
    """Clients of the fleet that count in a row."""
    ledger = bench.worker.fleet.ledger
    row = ledger.row(kind, name)
    ledger.forget(row)
    return ledger.used(row)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("max_client_conn", TOO_MANY),
        ("max_db_client_connections", TOO_MANY_DB),
        ("max_user_client_connections", TOO_MANY_USER),
    ],
)
def test_limits_are_for_all_workers(fleets: Any, setting: str, text: str) -> None:
    """One client here and one there: a third is one too many anywhere, until somebody leaves."""
    fleet = fleets(**{setting: 2})
    first = fleet[0].login()
    fleet[1].login()
    assert fleet[0].error(fleet[0].login()) == text
    assert fleet[1].error(fleet[1].login()) == text
    fleet[0].leave(first)
    assert fleet[1].error(fleet[1].login()) == ""


def test_a_star_database_counts_before_anybody_knows_it(fleets: Any) -> None:
    """max_db_client_connections holds for a name that this worker has not seen yet."""
    fleet = fleets(databases={"app": ""}, autodb="max_db_client_connections=1")
    fleet[0].login(dbname="new")
    late = fleet[1].login(dbname="new")
    assert fleet[1].error(late) == TOO_MANY_DB
    assert fleet[1].error(fleet[1].login(dbname="other")) == ""


def leaves(bench: Bench) -> None:
    """A client in the middle of its session."""
    bench.leave(bench.login())


def says_goodbye(bench: Bench) -> None:
    """Terminate."""
    client = bench.login()
    for conn in bench.new_servers():
        bench.welcome(conn)
    bench.say(client, m.message(b"X"))


def is_unknown(bench: Bench) -> None:
    """A user who does not exist."""
    client = bench.login("nobody")
    bench.leave(client)


def asks_for_no_database(bench: Bench) -> None:
    """A database that does not exist."""
    bench.leave(bench.login(dbname="nowhere"))


def is_thrown_out(bench: Bench) -> None:
    """By KILL."""
    bench.login()
    bench.worker.pause.kill(None)
    bench.worker.pause.resume(None)
    bench.worker.pools.databases["app"].paused = False


def waits_too_long(bench: Bench) -> None:
    """For its welcome."""
    bench.login()
    bench.pass_time(200)


def goes_while_it_waits(bench: Bench) -> None:
    """In the line of its pool."""
    client = bench.login()
    for conn in bench.new_servers():
        bench.welcome(conn)
    bench.say(client, m.query("select 1"))
    bench.leave(client)


def cancels(bench: Bench) -> None:
    """A cancel request is no client."""
    conn = bench.engine.accept_manual(1)
    bench.worker.drain()
    bench.say(conn, m.cancel_request(b"12345678"))


def talks_nonsense(bench: Bench) -> None:
    """A second startup packet, after the first was counted."""
    bench.say(bench.login("bob"), b"\0\0\0\x08\0\0\0\0")


@pytest.mark.parametrize(
    "way",
    [
        leaves, says_goodbye, is_unknown, asks_for_no_database, is_thrown_out, waits_too_long, goes_while_it_waits,
        cancels, talks_nonsense,
    ],
    ids=lambda way: way.__name__,
)  # fmt: skip
@pytest.mark.parametrize("auth_type", ["trust", "plain"])
def test_nothing_leaks(fleets: Any, way: Any, auth_type: str) -> None:
    """Whatever becomes of a connection, its places are free at the end."""
    limits = dict.fromkeys(("max_client_conn", "max_db_client_connections", "max_user_client_connections"), 9)
    bench = fleets(1, auth_type=auth_type, query_wait_timeout=100.0, client_login_timeout=60.0, **limits)[0]
    way(bench)
    bench.pass_time(100)
    for kind, name in ((Kind.CLIENTS, ""), (Kind.DATABASE_CLIENTS, "app"), (Kind.USER_CLIENTS, "alice")):
        assert counted(bench, kind, name) == 0, kind


def test_a_limit_that_comes_with_a_reload_counts_those_who_are_in(fleets: Any) -> None:
    """And one that goes does not stay with them."""
    fleet = fleets(1, users={"alice": UserConfig("alice", max_user_client_connections=5)})
    bench = fleet[0]
    client = bench.login()
    assert counted(bench, Kind.USER_CLIENTS, "alice") == 1
    _set(bench, max_db_client_connections=1, users={})
    assert counted(bench, Kind.USER_CLIENTS, "alice") == 0
    assert counted(bench, Kind.DATABASE_CLIENTS, "app") == 1
    assert bench.error(bench.login()) == TOO_MANY_DB
    bench.leave(client)
    assert counted(bench, Kind.DATABASE_CLIENTS, "app") == 0
    assert counted(bench, Kind.CLIENTS) == 0


def test_a_login_in_the_middle_of_a_reload(fleets: Any) -> None:
    """It is counted for the new limit once, not at its end again."""
    bench = fleets(1, auth_type="plain")[0]
    client = bench.login()
    _set(bench, max_user_client_connections=1, max_db_client_connections=1)
    assert counted(bench, Kind.USER_CLIENTS, "alice") == 1
    bench.say(client, m.message(b"p", b"x\0"))
    assert counted(bench, Kind.USER_CLIENTS, "alice") == 1
    bench.leave(client)
    assert counted(bench, Kind.USER_CLIENTS, "alice") == 0
    assert counted(bench, Kind.DATABASE_CLIENTS, "app") == 0


def test_many_names_do_not_fill_the_ledger(fleets: Any) -> None:
    """Rows of databases nobody is in any more are given up."""
    bench = fleets(1, databases={"app": ""}, autodb="max_db_client_connections=1")[0]
    forgotten: list[int] = []
    bench.worker.fleet.ledger.forget = forgotten.append
    for number in range(300):
        bench.leave(bench.login(dbname=f"guess{number}"))
    bench.pass_time(1)
    assert len(set(forgotten)) >= 300


def _set(bench: Bench, users: dict[str, UserConfig] | None = None, **settings: Any) -> None:
    """What a reload does for clients."""
    old = bench.worker.config
    bench.worker.config = replace(
        old, settings=replace(old.settings, **settings), users=old.users if users is None else users
    )
    clients.retune(bench.worker)
