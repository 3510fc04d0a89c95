"""Signals: what each does, and its log line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.worker import signals
from tests.worker.bench import Bench, close


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One worker."""
    made = Bench()
    yield made
    close(made)


def test_hangup_reloads_and_survives_failure(bench: Bench) -> None:
    """SIGHUP with an unreadable file is logged and changes nothing."""
    before = bench.worker.config
    signals.hangup(bench.worker)
    assert bench.worker.config is before
    assert bench.log.has("got SIGHUP, re-reading config")


def test_term_waits_for_clients_and_a_second_does_not(bench: Bench) -> None:
    """SIGTERM twice: first patience, then the end."""
    bench.login()
    signals.terminate(bench.worker)
    assert bench.worker.shutdown == "clients"
    assert bench.log.has("got SIGTERM, shutting down, waiting for all clients disconnect")
    signals.terminate(bench.worker)
    assert bench.worker.exit_code == 0
    assert bench.log.has("got SIGTERM while shutting down, fast exit")


def test_any_signal_of_the_pair_ends_a_shutdown(bench: Bench) -> None:
    """SIGTERM after SIGINT is a fast exit too."""
    signals.interrupt(bench.worker)
    assert bench.worker.shutdown == "servers"
    assert bench.worker.exit_code is None
    signals.terminate(bench.worker)
    assert bench.worker.exit_code == 0


def test_quit_ends_at_once(bench: Bench) -> None:
    """SIGQUIT waits for nobody."""
    bench.login()
    signals.quit_now(bench.worker)
    assert bench.worker.exit_code == 0


def test_usr1_and_usr2(bench: Bench) -> None:
    """PAUSE and RESUME, and what is said when there is nothing to do."""
    signals.resume(bench.worker)
    assert bench.log.has("got SIGUSR2, but not paused/suspended")
    signals.pause(bench.worker)
    assert bench.worker.pause.everything
    signals.pause(bench.worker)
    assert bench.log.has("got SIGUSR1, but already paused/suspended")
    signals.resume(bench.worker)
    assert not bench.worker.pause.everything
    signals.terminate(bench.worker)
    signals.resume(bench.worker)
    assert bench.log.has("got SIGUSR2 while shutting down, ignoring")
