"""Cancels as a load: one that arrives ends the query, one that is lost does not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgshoal.bench.load import cancels
from pgshoal.bench.load.cancels import CancelLoad
from pgshoal.bench.model import Target
from tests.bench.load.conftest import Staging

SPREAD = True


def test_cancels_arrive_through_a_fleet(staging: Staging, engine: str) -> None:
    """Each is the end of its query, whichever worker it comes to."""
    load = CancelLoad(10, 30.0)
    with staging(load, Target("pgshoal", 2, (("engine", engine),))) as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["failed"], outcome.figures["share"]) == (10, 0, 1)
    assert [one.number for one in outcome.clients] == list(range(10))
    assert 0 < outcome.figures["cancel_ms"] < 30_000


def test_a_cancel_that_is_lost_is_a_failure(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query ran to its end: nothing was cancelled, however long that took."""
    monkeypatch.setattr(psycopg.Connection, "cancel_safe", lambda self: None)
    load = CancelLoad(3, 0.2)
    with staging(load) as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["share"], outcome.transactions) == (0, 0, 0)
    assert {one.error for one in outcome.clients} == {"the query ran to its end"}
    assert "cancel_ms" not in outcome.figures


def test_a_cancel_comes_when_the_query_runs(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL has been seen at work on it before; an attempt that cannot connect is a failure with its reason."""
    seen: list[Any] = []
    waiting = cancels.wait_until_it_runs

    def look(watcher: psycopg.Connection[Any], query: str, sleeping: Any) -> None:
        waiting(watcher, query, sleeping)
        seen.append(watcher.execute(cancels.RUNS, (query,)).fetchone())

    monkeypatch.setattr(cancels, "wait_until_it_runs", look)
    load = CancelLoad(2, 30.0)
    with staging(load) as scene:
        load.run(scene)
    assert seen == [(1,), (1,)]
    with staging(load, user="nobody_here") as scene:
        outcome = load.run(scene)
    assert outcome.figures["failed"] == 2
    assert outcome.clients[0].error == 'FATAL: role "nobody_here" does not exist'
