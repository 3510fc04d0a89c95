"""The fleets that are compared are what their names say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.bench.fleets import FLEETS, PGBOUNCERS, PROCESSES, PgBouncers, fleet
from pgshoal.bench.old_experiments import EXPERIMENTS
from pgshoal.bench.old_stand import COMMON


@pytest.fixture
def pgbouncers() -> Iterator[PgBouncers]:
    """A fleet of PgBouncers that is never started."""
    made = fleet(PGBOUNCERS, Path("/nowhere/pgbouncer"), {"app": "host=127.0.0.1"}, dict(COMMON))
    assert isinstance(made, PgBouncers)
    yield made
    made.remove()


def test_every_fleet_of_an_experiment_exists() -> None:
    """Each contender, and each base of a metric, can be made."""
    for experiment in EXPERIMENTS:
        bases = {metric.base for metric in experiment.metrics if metric.base}
        assert bases <= set(experiment.fleets) <= set(FLEETS)


def test_pgbouncers_share_a_port_and_know_each_other(pgbouncers: PgBouncers) -> None:
    """One port, a peer id for each, and all of them in each list."""
    everybody = [pgbouncers, *pgbouncers.others]
    assert len(everybody) == PROCESSES
    assert {one.settings["listen_port"] for one in everybody} == {pgbouncers.port}
    assert {one.settings["so_reuseport"] for one in everybody} == {1}
    assert [one.settings["peer_id"] for one in everybody] == [1, 2, 3, 4]
    for one in everybody:
        assert one.peers == {n: f"host={peer.folder} port={one.port}" for n, peer in enumerate(everybody, 1)}


def test_their_limits_are_divided(pgbouncers: PgBouncers) -> None:
    """In sum they may open as many server connections as one fleet of ours."""
    assert [one.settings["default_pool_size"] for one in (pgbouncers, *pgbouncers.others)] == [5] * PROCESSES


def test_our_fleets_differ_in_what_is_compared_only() -> None:
    """The settings of the stand stay, the number of workers is the contender's."""
    for name in ("1 worker", "least", "static"):
        made = fleet(name, Path("/nowhere"), {"app": "host=127.0.0.1"}, dict(COMMON))
        changed = {key for key in made.settings if key in COMMON and made.settings[key] != COMMON[key]}
        assert changed == (set() if name == "1 worker" else {"workers"})
        made.remove()
