"""Each kind of measurement on each engine, in small: it yields its figures, and the pooler's memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.bench import runners
from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.stand import Sizes, Stand
from pgshoal.demo.pooler import Pooler

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """A stand for short runs."""
    with Stand(Sizes(seconds=1, rounds=1, idle_clients=100, copy_mb=60)) as made:
        yield made


@pytest.fixture(scope="module")
def pooler(stand: Stand, engine: str) -> Iterator[Pooler]:
    """One warm pooler per engine."""
    with stand.pooler(engine, BY_NAME["simple-16"]) as made:
        runners.warm_up(stand, made, BY_NAME["copy"])
        yield made


@pytest.mark.parametrize("name", ["simple-16", "prepared-16", "churn-trust", "copy", "idle"])
def test_an_experiment_yields_its_figures(stand: Stand, pooler: Pooler, name: str) -> None:
    """Every declared metric comes out as a number above zero."""
    experiment = BY_NAME[name]
    figures = runners.RUNNERS[experiment.kind](stand, pooler, experiment)
    assert all(figures[metric.name] >= 0 for metric in experiment.metrics)
    assert max(figures.values()) > 0


@pytest.mark.parametrize("name", ["tls", "churn-scram"])
def test_an_experiment_with_a_pooler_of_its_own(stand: Stand, engine: str, name: str) -> None:
    """TLS on both sides, and SCRAM for each connection, run on a pooler set up for them."""
    experiment = BY_NAME[name]
    with stand.pooler(engine, experiment) as own:
        assert runners.run_pgbench(stand, own, experiment)["cpu"] > 0


def test_memory_stays_bounded(stand: Stand, pooler: Pooler, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unread result of 2 GB, a COPY that nobody reads and a row of 200 MB each cost less than 16 MB."""
    monkeypatch.setattr(runners, "UNREAD_S", 1.0)
    figures = runners.run_memory(stand, pooler, BY_NAME["memory"])
    assert {name: value for name, value in figures.items() if value >= 16} == {}
