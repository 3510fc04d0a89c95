"""A Django site with SCRAM and auth_query moves from PgBouncer to pgshoal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.migration import shop
from tests.e2e.migration.moving import moved
from tests.support.postgres import HBA_TLS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


@pytest.fixture(scope="module")
def facts(pg15: Postgres) -> Iterator[dict[str, object]]:
    """The shop's database, which wants SCRAM of everybody; what its files need to know."""
    made = shop.prepare(pg15)
    pg15.write_hba(("host shop all all scram-sha-256", *HBA_TLS))
    pg15.reload()
    yield {"PG_PORT": pg15.port, **made}
    pg15.write_hba(HBA_TLS)
    pg15.reload()


def test_a_shop_moves(facts: dict[str, object], engine: str) -> None:
    """The same day on both programs: logins, views, jobs, limits, maintenance, reload, signals, end."""
    moved("shop", shop.run, facts, engine)
