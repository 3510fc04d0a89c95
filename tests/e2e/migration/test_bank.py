"""A bank with certificates, an hba file and replicas moves from PgBouncer to pgshoal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.migration.bank import Bank, prepare
from tests.e2e.migration.moving import moved
from tests.support.certs import Authority
from tests.support.postgres import HBA, Postgres
from tests.support.standby import Standby

#: Each test on one engine: see tests/conftest.py.
SPREAD = True
ACCESS = (
    "local all all trust",
    "host replication postgres all trust",
    "hostssl all,replication replicator,auditor,payments,ledger,app,contractor all scram-sha-256",
    *HBA[1:],
)


@pytest.fixture(scope="module")
def primary(authority: Authority) -> Iterator[Postgres]:
    """A server that standbys may follow, with TLS."""
    with Postgres(15, settings={"wal_level": "replica", "max_wal_senders": "8"}, hba=ACCESS, tls=authority) as server:
        yield server


@pytest.fixture(scope="module")
def facts(primary: Postgres, authority: Authority) -> dict[str, object]:
    """What the files need to know; the standby comes later, with all of it."""
    return {"CA": authority.ca_file, **prepare(primary)}


@pytest.fixture(scope="module")
def standby(primary: Postgres, facts: dict[str, object]) -> Iterator[Standby]:
    """It follows the primary at another address."""
    with Standby(primary) as server:
        yield server


def test_a_bank_moves(facts: dict[str, object], authority: Authority, standby: Standby, engine: str) -> None:
    """The same day on both: certificates, maps, replicas, a standby that restarts, reloads, checks, three ends."""
    moved("bank", Bank(authority, standby).run, facts, engine)
