"""The cases of `compare` carry the promised bounds and are chosen by name."""

from __future__ import annotations

import pytest

from pgshoal.bench.experiments import cases, compare, engines, fleet
from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.measure.validity import CHECKS

BY_NAME = {one.name.removeprefix(cases.FAMILY): one for one in compare.EXPERIMENTS}


def knobs(quick: bool = False, **options: str) -> Knobs:
    """The knobs as a user would give them."""
    return resolve(options, {}, quick)


def run(given: Knobs) -> list[str]:
    """The cases that have cells."""
    return [name for name, one in BY_NAME.items() if one.cells(given)]


def bounds(name: str, metric: int = 0) -> dict[str, float]:
    """The bounds of a case's metric by the target's label."""
    return dict(BY_NAME[name].metrics[metric].targets)


def test_the_promises_are_declared() -> None:
    """The bounds of 16 and 256 clients, of TLS, of new connections and of memory stand where the table takes them."""
    for mode in ("simple", "prepared"):
        assert bounds(f"{mode}-16")["pgshoal engine=uring"] == 0.80
        assert bounds(f"{mode}-256")["pgshoal engine=uring"] == 0.65
        assert bounds(f"{mode}-1", 1) == {"pgshoal engine=uring": 1.05, "pgshoal engine=epoll": 1.05}
        assert bounds(f"{mode}-64") == {"pgshoal engine=epoll": 1.0, "pgshoal engine=python": 2.0}
    assert bounds("tls")["pgshoal engine=uring"] == 0.85
    assert bounds("churn-trust")["pgshoal engine=uring"] == bounds("churn-scram")["pgshoal engine=uring"] == 1.2
    assert bounds("copy")["pgshoal engine=epoll"] == 1.0
    assert set(bounds("idle").values()) == {2048.0}
    assert [set(metric.targets.values()) for metric in BY_NAME["memory"].metrics] == [{16.0}] * 4


def test_the_promises_of_fleets_are_declared() -> None:
    """Low load beside one worker, many clients beside one and beside as many PgBouncers, and what a worker needs."""
    least, pack = "pgshoal x4 accept=least", "pgshoal x4 accept=pack"
    assert bounds("fleet-1") == bounds("fleet-8") == {least: 0.95, pack: 0.95}
    assert [metric.base for metric in BY_NAME["fleet-256"].metrics] == ["pgshoal", "pgbouncer x4", "pgbouncer x4"]
    assert [bounds("fleet-256", at) for at in (0, 1)] == [{least: 1.15}, {least: 1.0}]
    assert bounds("fleet-churn") == {least: 1.1}
    assert bounds("fleet-stranded") == {"pgshoal x4 accept=kernel budget=elastic": 1.5}
    assert bounds("workers") == {least: 40.0}


def test_every_bound_is_of_a_target_that_is_run() -> None:
    """A bound under a label that no cell has would never be judged; nor would a ratio to a base that is not run."""
    for name, one in BY_NAME.items():
        labels = {cell.target.label for cell in one.cells(knobs(only=name))}
        for metric in one.metrics:
            assert set(metric.targets) <= labels
            assert metric.base in labels
        assert set(one.checks) <= set(CHECKS)
        assert {cell.experiment for cell in one.cells(knobs(only=name))} == {one.name}


def test_cases_are_chosen_by_name_or_by_the_beginning_of_names() -> None:
    """A full name is that case alone; without names all are run, or the small set of a quick run.

    That one covers each kind of promise about one process.
    """
    assert run(knobs(only="churn")) == ["churn-trust", "churn-scram"]
    assert run(knobs(only="simple-1,fleet-2")) == ["simple-1", "fleet-256"]
    assert run(knobs(only="compare-fleet-2, tls", quick=True)) == ["tls", "fleet-256"]
    assert run(knobs()) == list(BY_NAME)
    assert run(knobs(quick=True)) == ["simple-1", "simple-16", "tls", "churn-trust", "copy", "idle"]
    assert run(knobs(only="nonsense")) == []


def test_the_best_engine_that_runs_here_is_the_automatic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` becomes a name, so that its bounds are found; no engine is run twice."""
    monkeypatch.setattr(engines, "unusable", lambda engine: "old kernel" if engine == "uring" else "")
    assert engines.named(["auto", "epoll", "python"]) == ["epoll", "python"]


def test_an_engine_that_cannot_run_says_why() -> None:
    """The plain one always can; what is no engine cannot."""
    assert engines.unusable("python") == ""
    assert "swim" in engines.unusable("swim")


def test_contenders_are_told_apart_by_what_is_compared_only() -> None:
    """Within a case all have the same settings, load and user."""
    for name, one in BY_NAME.items():
        cells = one.cells(knobs(only=name))
        assert len(cells) >= 2
        assert {str((cell.load, cell.settings, cell.tls, cell.user)) for cell in cells} == {
            str((cells[0].load, cells[0].settings, cells[0].tls, cells[0].user))
        }
    assert fleet.PGBOUNCERS.processes == fleet.LEAST.processes
