"""Each kind of measurement on each engine, in small: it yields its figures, and the pooler's memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.bench import runners
from pgshoal.bench.fleets import pids
from pgshoal.bench.old_experiments import EXPERIMENTS
from pgshoal.bench.old_stand import Sizes, Stand
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


def test_an_idle_worker_is_small(stand: Stand) -> None:
    """No worker without clients has more than 40 MB, whoever is the largest."""
    experiment = BY_NAME["workers"]
    with stand.pooler("least", experiment) as fleet:
        runners.warm_up(stand, fleet, experiment)
        figures = runners.run_workers(stand, fleet, experiment)
    assert 0 < figures["private"] <= figures["largest"] <= 40
    assert figures["supervisor"] > 0


def test_stranded_clients_use_what_the_fleet_has(stand: Stand) -> None:
    """All of them are on two workers of four, and the pool of eight serves them, as far as the budget lets it."""
    experiment = BY_NAME["fleet-stranded"]
    found = {}
    for budget in experiment.fleets:
        with stand.pooler(budget, experiment) as fleet:
            runners.warm_up(stand, fleet, experiment)
            found[budget] = runners.run_stranded(stand, fleet, experiment)
    # Queries of 5 ms: four servers cannot answer more than 800 a second, eight can.
    assert 0 < found["static"]["throughput"] <= 800
    assert found["elastic"]["throughput"] > found["static"]["throughput"]
    assert found["elastic"]["p99"] >= found["elastic"]["median"] > 5


def test_pgbouncers_side_by_side_are_measured_as_one(stand: Stand) -> None:
    """Their CPU is that of all processes, and each of them knows the others as peers."""
    experiment = BY_NAME["fleet-8"]
    with stand.pooler("4 PgBouncers", experiment) as fleet:
        runners.warm_up(stand, fleet, experiment)
        assert len(pids(fleet)) == 4
        assert runners.run_pgbench(stand, fleet, experiment)["cpu"] > 0
