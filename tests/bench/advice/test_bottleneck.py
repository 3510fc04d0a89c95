"""Each part that is full is named, and hides those that are full because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgshoal.bench.advice.bottleneck import Evidence, diagnose

CALM = Evidence(
    workers=2,
    rate=1000.0,
    by_worker=(0.3, 0.3),
    cores=8,
    postgres=1.0,
    postgres_cores=8,
    load=0.5,
    idle=0.7,
    servers=20,
    budget=40,
    clients=100,
)


@pytest.mark.parametrize(
    ("change", "where", "text"),
    [
        ({}, "load", "nothing is full: the busiest of 2 workers used 30% of a core, PostgreSQL 1 of 8 processors"),
        ({"by_worker": (0.97, 0.95)}, "pooler", "the busiest of 2 workers used 97% of a core, PostgreSQL 1 of 8"),
        ({"by_worker": (0.97, 0.1)}, "imbalance", "the busiest worker used 97% of a core, the mean 54%"),
        ({"postgres": 7.3}, "PostgreSQL", "PostgreSQL used 7.30 of 8 processors"),
        ({"postgres": 7.3, "by_worker": (0.97, 0.95)}, "PostgreSQL", "PostgreSQL used 7.30"),
        (
            {"idle": 0.01},
            "machine",
            "1.0% idle; of its 8 processors they had: the pooler 0.60, PostgreSQL 1, load and others 0.50",
        ),
        ({"idle": 0.01, "others": 5.9}, "machine", "PostgreSQL 1, the load 0.50, other programs 5.90"),
        ({"servers": 40}, "budget", "all 40 server connections were in use while processors were free"),
        ({"servers": 40, "waiting": 3.5, "limit": "pool app alice"}, "budget", "of pool app alice were in use"),
        ({"servers": 40, "waiting": 0.1}, "load", "nothing is full"),
        ({"servers": 40, "clients": 30}, "load", "nothing is full"),
        ({"servers": 40, "by_worker": (0.97, 0.95)}, "pooler", "97%"),
        (
            {"load_full": "it used 1.9 of 2", "postgres": 7.9},
            "load",
            "the load generator had no room: it used 1.9 of 2",
        ),
        ({"by_worker": (), "postgres": None}, "nothing", "the CPU time of neither pooler nor PostgreSQL is known"),
        ({"by_worker": (0.9, 0.9), "postgres": None}, "pooler", "what PostgreSQL used is not known"),
    ],
)
def test_the_bottleneck_is_named_with_its_figures(change: dict[str, object], where: str, text: str) -> None:
    """One change to a system in which all have room."""
    found = diagnose(replace(CALM, **change))  # type: ignore[arg-type]
    assert found.where == where
    assert text in found.text


def test_one_full_worker_is_no_imbalance() -> None:
    """There is nobody to share with."""
    assert diagnose(replace(CALM, workers=1, by_worker=(0.99,))).where == "pooler"
