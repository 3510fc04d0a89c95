"""A stand that the tests of targets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.stand import Stand


@pytest.fixture(scope="session")
def knobs() -> Knobs:
    """Quick, and the engine that every machine has."""
    return resolve({"engine": "python"}, {}, quick=True)


@pytest.fixture(scope="session")
def stand(knobs: Knobs) -> Iterator[Stand]:
    """A stand with a PostgreSQL of its own."""
    with Stand(knobs) as made:
        yield made
