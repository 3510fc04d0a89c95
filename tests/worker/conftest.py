"""Workers for tests that need one or several: made on demand, ended afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.bench import Bench, close
from tests.worker.neighbours import Neighbours


@pytest.fixture
def benches() -> Iterator[Any]:
    """Makes workers and ends them."""
    made: list[Bench] = []

    def make(*args: Any, **settings: Any) -> Bench:
        made.append(Bench(*args, **settings))
        return made[-1]

    yield make
    for bench in made:
        close(bench)


@pytest.fixture
def fleets() -> Iterator[Any]:
    """Makes workers that share a ledger."""
    made: list[Neighbours] = []

    def make(workers: int = 2, **settings: Any) -> Neighbours:
        made.append(Neighbours(workers, **settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
