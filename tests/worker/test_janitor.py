"""Timeouts that the janitor acts on, one tick at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import messages as m


@pytest.mark.parametrize(
    ("setting", "sql", "status", "text"),
    [
        ("query_timeout", "select 1", None, "query timeout"),
        ("idle_transaction_timeout", "begin", "T", "idle transaction timeout"),
        ("transaction_timeout", "begin", "T", "transaction timeout"),
    ],
)
def test_limits_that_cost_the_server(benches: Any, setting: str, sql: str, status: str | None, text: str) -> None:
    """The client is told, its server is closed for the same reason, and the accounts are right."""
    bench = benches(**{setting: 5.0})
    client = bench.login()
    (server,) = bench.serve()
    bench.heard(client)
    bench.say(client, m.query(sql))
    if status is not None:
        bench.answer(server, status)
    bench.pass_time(4.9)
    assert bench.alive(server)
    bench.heard(client)
    bench.pass_time(0.2)
    assert bench.error(client) == text
    assert not bench.alive(server)
    assert sum(f"closing because: {text}" in line for line in bench.log.lines) == 2


def test_query_wait_timeout_and_notice(benches: Any) -> None:
    """A client in line is told once that it waits, then that it waited too long."""
    bench = benches(default_pool_size=1, query_wait_notify=2, query_wait_timeout=10.0)
    holder, waiter = bench.login(), bench.login()
    (server,) = bench.serve()
    bench.say(holder, m.query("begin"))
    bench.answer(server, "T")
    bench.heard(waiter)
    bench.say(waiter, m.query("select 1"))
    bench.pass_time(2.5)
    assert bench.heard(waiter) == b""
    bench.pass_time(0.6)
    assert b"No server connection available" in bench.heard(waiter)
    bench.pass_time(3)
    assert bench.heard(waiter) == b""
    bench.pass_time(4)
    assert bench.error(waiter) == "query_wait_timeout"
    assert bench.alive(server)


def test_queued_query_timeout(benches: Any) -> None:
    """query_timeout bounds the wait too, with its own text."""
    bench = benches(default_pool_size=1, query_timeout=5.0)
    holder, waiter = bench.login(), bench.login()
    (server,) = bench.serve()
    bench.say(holder, m.query("begin"))
    bench.answer(server, "T")
    bench.heard(waiter)
    bench.say(waiter, m.query("select 1"))
    bench.pass_time(5.1)
    assert bench.error(waiter) == "query_timeout"


def test_server_down_at_login(benches: Any) -> None:
    """A client whose server never came is told which limit was behind it."""
    bench = benches(client_login_timeout=5.0, server_login_retry=100.0)
    client = bench.login()
    (server,) = bench.new_servers()
    bench.leave(server)
    bench.pass_time(5.1)
    assert bench.error(client) == "client_login_timeout (server down)"


def test_a_lost_tick_is_not_fatal(benches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in maintenance is logged; the next tick comes all the same."""
    bench = benches()

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.worker.growth, "tick", broken)
    bench.worker._tick()
    assert bench.log.has("internal error in maintenance")
