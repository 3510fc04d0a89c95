"""A fleet of forty databases behind `*` moves from PgBouncer to pgshoal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.migration import tenants
from tests.e2e.migration.moving import moved
from tests.support.postgres import HBA_TLS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True


@pytest.fixture(scope="module")
def facts(pg15: Postgres) -> Iterator[dict[str, object]]:
    """Forty databases that want each user's password; what the files need to know."""
    made = tenants.prepare(pg15)
    names = ",".join(tenants.TENANTS)
    pg15.write_hba((f"host {names} app all md5", f"host {names} all all scram-sha-256", *HBA_TLS))
    pg15.reload()
    yield made
    pg15.write_hba(HBA_TLS)
    pg15.reload()


def test_the_tenants_move(facts: dict[str, object], engine: str) -> None:
    """The same night on all three: customers, batch, metrics, maintenance, two ends; two workers are one service."""
    moved("tenants", tenants.run, facts, engine, tables_of_servers=["watching"])
