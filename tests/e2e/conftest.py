"""What the operator's stories share: poolers on the engine under test, and patience."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

MakePooler = Callable[..., Pooler]
LIMIT_S = 45  # patience, not a promise: machines that run tests are busy


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something the pooler does in its own time."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.03)


@pytest.fixture
def make(pg15: Postgres, engine: str) -> Iterator[MakePooler]:
    """Starts poolers on this engine; keyword `databases` beats the one entry "app"."""
    with ExitStack() as stack:

        def start(databases: dict[str, str] | None = None, **settings: Any) -> Pooler:
            entries = databases or {"app": database(pg15)}
            wanted = {"engine": engine, "pool_mode": "transaction", **settings}
            return stack.enter_context(Pooler(entries, **wanted))

        yield start


def backends(pg: Postgres, user: str, dbname: str = "app") -> int:
    """Connections a server has of one user."""
    asked = f"select count(*) from pg_stat_activity where usename = '{user}' and datname = '{dbname}'"
    return int(pg.query(asked)[0][0])
