"""Rounds alternate between the contenders, and one that fails does not take the others along."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, cast

import pytest

from pgshoal.bench import ratios, runners
from pgshoal.bench.old_experiments import EXPERIMENTS, Experiment
from pgshoal.bench.old_stand import Sizes, Stand

SIMPLE_16 = next(e for e in EXPERIMENTS if e.name == "simple-16")


class ScriptedPooler:
    """A pooler that only has a name."""

    running = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        if self.name == "uring":
            raise RuntimeError("no io_uring here")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class ScriptedStand:
    """A stand without servers."""

    sizes = Sizes(rounds=3)

    def pooler(self, contender: str, experiment: Experiment) -> ScriptedPooler:
        """Hands out poolers by name."""
        return ScriptedPooler(contender)


def test_rounds_alternate_and_failures_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round starts with another contender; a pooler that does not start is one error row."""
    monkeypatch.setattr(runners, "warm_up", lambda *given: None)
    monkeypatch.setitem(cast("dict[str, Any]", runners.RUNNERS), "pgbench", lambda *given: {"cpu": 1.0})
    found = list(ratios.measure(cast("Stand", ScriptedStand()), SIMPLE_16, ("pgbouncer", "uring", "epoll")))
    assert [(r.contender, r.error) for r in found[:1]] == [("uring", "no io_uring here")]
    assert [r.contender for r in found[1:]] == ["pgbouncer", "epoll", "epoll", "pgbouncer", "pgbouncer", "epoll"]


def test_a_wrong_engine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that does not exist ends the run before anything is started."""
    assert ratios.main(engines=["kqueue"]) == 1
    assert "kqueue" in capsys.readouterr().out
