"""A PostgreSQL that may be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def mortal() -> Iterator[Postgres]:
    """Whoever stops it starts it again."""
    with Postgres(15) as server:
        yield server
