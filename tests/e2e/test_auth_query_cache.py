"""Answers of auth_query that are used again for a while."""

from __future__ import annotations

import psycopg
import pytest

from tests.e2e.conftest import MakePooler
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

COUNTING = "select rolname, rolpassword from pg_authid where rolname = $1 and nextval('public.lookups') > 0"


@pytest.fixture
def counted(pg15: Postgres) -> Postgres:
    """A server that counts lookups, with a user of its own for this test."""
    pg15.query("drop sequence if exists public.lookups", "app")
    pg15.query("create sequence public.lookups", "app")
    pg15.query("drop role if exists cached_user")
    pg15.query("set password_encryption = 'scram-sha-256'; create role cached_user login password 'first'")
    return pg15


def lookups(pg: Postgres) -> int:
    """How often users were looked up so far."""
    ((called, last),) = pg.query("select is_called, last_value from public.lookups", "app")
    return int(last) if called else 0


@pytest.mark.parametrize("auth_type", ["plain", "md5", "scram-sha-256"])
def test_one_lookup_for_many_logins(make: MakePooler, counted: Postgres, auth_type: str) -> None:
    """With auth_query_cache_ttl a user is looked up once; without it at every login."""
    for ttl, expected in ((0, 5), (60, 1)):
        before = lookups(counted)
        pooler = make(
            auth_type=auth_type, auth_user=counted.superuser, userlist={counted.superuser: ""},
            auth_query=COUNTING, auth_query_cache_ttl=ttl,
        )  # fmt: skip
        for _ in range(5):
            got = pooler.query("select current_user::text", user="cached_user", password="first")
            assert got == [("cached_user",)]
        assert lookups(counted) - before == expected


def test_a_new_password_works_at_the_second_try(make: MakePooler, counted: Postgres) -> None:
    """The first one fails against what is remembered, and makes the pooler ask again; the old one is then wrong."""
    pooler = make(
        auth_type="scram-sha-256", auth_user=counted.superuser, userlist={counted.superuser: ""},
        auth_query=COUNTING, auth_query_cache_ttl=60,
    )  # fmt: skip
    assert pooler.query("select 1", user="cached_user", password="first") == [(1,)]
    counted.query("set password_encryption = 'scram-sha-256'; alter role cached_user password 'second'")
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.query("select 1", user="cached_user", password="second")
    assert pooler.query("select 1", user="cached_user", password="second") == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.query("select 1", user="cached_user", password="first")
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.query("select 1", user="cached_user", password="first")


def test_a_reload_forgets(make: MakePooler, counted: Postgres) -> None:
    """After RELOAD every user is looked up anew."""
    pooler = make(
        auth_type="scram-sha-256", auth_user=counted.superuser, userlist={counted.superuser: "", "admin": "pw"},
        auth_query=COUNTING, auth_query_cache_ttl=60,
    )  # fmt: skip
    for expected in (1, 2):
        assert pooler.query("select 1", user="cached_user", password="first") == [(1,)]
        assert lookups(counted) == expected
        pooler.admin("RELOAD", password="pw")
