"""Loads about the pooler's own memory: they yield their figures, and it stays bounded on each engine."""

from __future__ import annotations

import pytest

from pgshoal.bench.load.memory import CopyLoad, IdleLoad, MemoryLoad, WorkersLoad
from pgshoal.bench.model import Load, Target
from tests.bench.load.conftest import DIRECT, Staging

#: A single worker on the engine that every machine has.
ONE = Target("pgshoal", options=(("engine", "python"),))


def test_memory_stays_bounded(staging: Staging, engine: str) -> None:
    """An unread result of 2 GB, a COPY that nobody reads and a row of 200 MB each cost less than 16 MB."""
    load = MemoryLoad(patience_s=1.0)
    with staging(load, Target("pgshoal", options=(("engine", engine),))) as scene:
        figures = load.run(scene).figures
    assert set(figures) == {"unread_mb", "deaf_mb", "row_peak_mb", "row_after_mb"}
    assert {name: value for name, value in figures.items() if value >= 16} == {}


def test_a_copy_is_read_whole(staging: Staging) -> None:
    """Speed and CPU for each MiB come out."""
    load = CopyLoad(10)
    with staging(load, ONE) as scene:
        figures = load.run(scene).figures
    assert figures["throughput_mib_s"] > 0
    assert figures["cpu_us_per_mib"] > 0


def test_idle_clients_are_all_connected(staging: Staging) -> None:
    """What one of them needs is a share of what all of them need."""
    load = IdleLoad(100)
    with staging(load, ONE) as scene:
        figures = load.run(scene).figures
    assert figures["succeeded"] == 100
    assert figures["bytes_per_client"] >= 0


def test_an_idle_worker_is_small(staging: Staging) -> None:
    """No worker without clients has more than 40 MB, whoever is the largest."""
    load = WorkersLoad()
    with staging(load, Target("pgshoal", 4)) as scene:
        figures = load.run(scene).figures
    assert 0 < figures["worker_private_mb"] <= figures["worker_mb"] <= 40
    assert figures["supervisor_mb"] > 0


@pytest.mark.parametrize("load", [CopyLoad(1), IdleLoad(1), MemoryLoad(), WorkersLoad()])
def test_a_pooler_of_unknown_processes_cannot_be_measured(staging: Staging, load: Load) -> None:
    """PostgreSQL itself is none at all."""
    with staging(load, DIRECT) as scene, pytest.raises(RuntimeError, match="processes of direct are not known"):
        load.run(scene)
