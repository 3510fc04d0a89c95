"""Poolers for the rows: on each engine where the engine does the work, on one where it does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.conftest import MakePooler, make
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

__all__ = ["make"]


@pytest.fixture
def start(pg15: Postgres) -> Iterator[MakePooler]:
    """As `make`, on the engine that the machine chooses."""
    with ExitStack() as stack:

        def begin(databases: dict[str, str] | None = None, **settings: Any) -> Pooler:
            entries = databases or {"app": database(pg15)}
            return stack.enter_context(Pooler(entries, **{"pool_mode": "transaction", **settings}))

        yield begin
