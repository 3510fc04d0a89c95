"""A PostgreSQL that the meter's tests may kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """Nobody else's, as its clients are ended and it is killed; whoever does that starts it again."""
    with Postgres(18) as made:
        yield made
