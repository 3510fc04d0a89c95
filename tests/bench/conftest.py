"""One stand for all tests that only need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.bench.knobs import resolve
from pgshoal.bench.stand import Stand


@pytest.fixture(scope="session")
def stand() -> Iterator[Stand]:
    """A stand with a PostgreSQL of its own; whoever gives it settings takes them back."""
    with Stand(resolve({}, {}, quick=True)) as made:
        yield made
