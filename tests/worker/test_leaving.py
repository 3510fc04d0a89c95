"""A worker that drains: when it ends, whom it tells, and whom it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pgshoal.worker.leaving import ANSWER_LIMIT_US, Leaving
from tests.support import messages as m
from tests.worker.bench import Bench, close


class Drain:
    """A worker whose timers the test runs."""

    def __init__(self) -> None:
        self.bench = Bench(pool_mode="session")
        self.timers: list[Callable[[], object]] = []
        self.bench.worker.loop.call_later = self._later  # type: ignore[method-assign, assignment]
        Leaving(self.bench.worker)

    def _later(self, delay: float, call: Callable[..., object], *arguments: object) -> object:
        self.timers.append(lambda: call(*arguments))
        return None

    def begin(self, deadline_s: float = 30) -> None:
        """Told to drain."""
        self.bench.fleet.hear("drain", deadline_s=deadline_s)
        self.bench.worker.drain()

    def after(self, seconds: float) -> int | None:
        """That much later; the exit code if it has ended."""
        self.bench.engine.set_now(self.bench.engine.now_us() + round(seconds * 1e6))
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()
        self.bench.worker.drain()
        return self.bench.worker.exit_code


@pytest.fixture
def draining() -> Iterator[Drain]:
    """One worker."""
    made = Drain()
    yield made
    close(made.bench)


def held(draining: Drain) -> int:
    """A client with a session that holds its server."""
    conn = draining.bench.login()
    (server,) = draining.bench.serve()
    draining.bench.say(conn, m.query("select 1"))
    draining.bench.answer(server)
    draining.bench.heard(conn)
    return conn


def test_without_clients_it_ends_soon(draining: Drain) -> None:
    """But not before all who were accepted are known."""
    draining.begin()
    assert draining.after(1) is None
    assert draining.after(1) == 0
    assert draining.bench.worker.draining


def test_a_client_may_finish(draining: Drain) -> None:
    """The process ends when it has left."""
    conn = held(draining)
    draining.begin()
    assert draining.after(20) is None
    assert draining.bench.heard(conn) == b""
    draining.bench.leave(conn)
    assert draining.after(1) == 0


def test_at_the_deadline_clients_are_told(draining: Drain) -> None:
    """With the state of a server that shuts down; then it ends."""
    conn = held(draining)
    draining.begin(deadline_s=5)
    assert draining.after(4.9) is None
    assert draining.after(0.2) is None
    heard = draining.bench.heard(conn)
    assert b"C57P01\0Mserver shutting down\0" in heard
    assert draining.after(0.2) == 0


def test_a_console_gets_its_answer_first(draining: Drain) -> None:
    """It may be the one that asked for the restart; that too has a limit."""
    held(draining)
    draining.begin(deadline_s=5)
    draining.bench.fleet.asking = 1
    assert draining.after(6) is None
    assert draining.bench.worker.front.connections() == 1
    draining.after(ANSWER_LIMIT_US / 1e6)
    assert draining.bench.worker.front.connections() == 0


def test_stop_and_shutdown_are_heard(draining: Drain) -> None:
    """The end with a code, and the wait for all clients of the fleet."""
    draining.bench.fleet.hear("shutdown", mode="clients")
    assert draining.bench.worker.shutdown == "clients"
    draining.bench.fleet.hear("stop", code=4)
    assert draining.bench.worker.exit_code == 4
