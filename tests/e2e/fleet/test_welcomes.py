"""Clients are greeted in every worker by what one server has reported, until it is asked anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import MakePooler, backends, until
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


def zones(pooler: Pooler, count: int = 16) -> set[str | None]:
    """What new clients in all workers are told of their time zone."""
    clients = [pooler.connect() for _ in range(count)]
    try:
        return {client.info.parameter_status("TimeZone") for client in clients}
    finally:
        for client in clients:
            client.close()


@pytest.fixture
def zoned(pg15: Postgres) -> Iterator[Postgres]:
    """A server whose database has a time zone of its own, which may be changed."""
    pg15.query("alter database app set timezone = 'Asia/Tokyo'")
    yield pg15
    pg15.query("alter database app reset timezone")


def test_one_login_greets_all_and_reconnect_asks_anew(zoned: Postgres, make: MakePooler) -> None:
    """One server is enough for clients in four workers; after RECONNECT none of them tells what was true before."""
    pooler = make({"app": database(zoned, pool_size=1)}, workers=4)
    with pooler.connect() as held, held.transaction():
        held.execute("select 1")
        assert zones(pooler) == {"Asia/Tokyo"}
        assert zoned.query("select count(*) from pg_stat_activity where datname = 'app'") == [(1,)]
    zoned.query("alter database app set timezone = 'Europe/Oslo'")
    assert zones(pooler) == {"Asia/Tokyo"}
    pooler.admin("reconnect app")
    assert zones(pooler) == {"Europe/Oslo"}


def test_workers_that_are_started_later_greet_too(zoned: Postgres, make: MakePooler) -> None:
    """After a restart of all workers clients log in without a single server."""
    pooler = make({"app": database(zoned)}, workers=2)
    assert zones(pooler, 4) == {"Asia/Tokyo"}
    pooler.admin("restart")
    until(lambda: backends(zoned, "alice") == 0, "the servers of the old workers are gone")
    assert zones(pooler) == {"Asia/Tokyo"}
    assert backends(zoned, "alice") == 0
