"""Tests of the scope rules: user, database and global values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config import effective
from pgshoal.config.model import Config, DatabaseConfig, PeerConfig, Settings, UserConfig

SIZE = st.none() | st.integers(0, 50)


def world(settings: Settings | None = None, **user: object) -> Config:
    """A configuration with one user u."""
    return Config("p.ini", settings or Settings(), users={"u": UserConfig("u", **user)})  # type: ignore[arg-type]


def test_forced_user_names_the_pool() -> None:
    """A pool belongs to the entry's user if it has one, else to the client's."""
    assert effective.pool_user(DatabaseConfig("d"), "joe") == "joe"
    assert effective.pool_user(DatabaseConfig("d", user="app"), "joe") == "app"


def test_pool_mode() -> None:
    """The user's mode beats the database's, which beats the global one."""
    entry = DatabaseConfig("d", pool_mode="statement")
    assert effective.pool_mode(world(pool_mode="transaction"), entry, "u") == "transaction"
    assert effective.pool_mode(world(), entry, "u") == "statement"
    assert effective.pool_mode(world(), DatabaseConfig("d"), "stranger") == "session"


@given(SIZE, SIZE, st.integers(0, 50))
def test_pool_sizes(user: int | None, database: int | None, everywhere: int) -> None:
    """Sizes come from user, then database, then global; 0 is a value, not absence."""
    settings = Settings(default_pool_size=everywhere, reserve_pool_size=everywhere)
    config = world(settings, pool_size=user, reserve_pool_size=user)
    entry = DatabaseConfig("d", pool_size=database, reserve_pool_size=database)
    expected = user if user is not None else database if database is not None else everywhere
    assert effective.pool_size(config, entry, "u") == expected
    assert effective.reserve_pool_size(config, entry, "u") == expected


@pytest.mark.parametrize(("pool", "minimum", "expected"), [(5, 3, 3), (5, 9, 5), (0, 9, 9)])
def test_min_pool_size_is_capped_by_the_pool(pool: int, minimum: int, expected: int) -> None:
    """A minimum above the pool's size means the pool's size; an unlimited pool does not cap it."""
    entry = DatabaseConfig("d", pool_size=pool, min_pool_size=minimum)
    assert effective.min_pool_size(world(Settings(min_pool_size=1)), entry, "u") == expected


def test_min_pool_size_of_the_database_may_be_zero() -> None:
    """A database can switch a global minimum off."""
    config = world(Settings(min_pool_size=4))
    assert effective.min_pool_size(config, DatabaseConfig("d", min_pool_size=0), "u") == 0
    assert effective.min_pool_size(config, DatabaseConfig("d"), "u") == 4


@pytest.mark.parametrize(("written", "expected"), [(None, 3600.0), (0.0, 3600.0), (5.0, 5.0)])
def test_server_lifetime(written: float | None, expected: float) -> None:
    """A database's 0 means the global lifetime."""
    assert effective.server_lifetime_s(world(), DatabaseConfig("d", server_lifetime=written)) == expected


@pytest.mark.parametrize(
    ("user", "database", "expected"), [(None, None, 120.0), (None, 0.0, 0.0), (0.0, 9.0, 0.0), (7.0, 9.0, 7.0)]
)
def test_query_wait_timeout(user: float | None, database: float | None, expected: float) -> None:
    """The login user's value wins, then the database's; 0 switches the limit off at either scope."""
    entry = DatabaseConfig("d", query_wait_timeout=database)
    assert effective.query_wait_timeout_s(world(query_wait_timeout=user), entry, "u") == expected


@pytest.mark.parametrize(
    "name", ["query_timeout", "idle_transaction_timeout", "transaction_timeout", "client_idle_timeout"]
)
def test_timeouts_of_one_user(name: str) -> None:
    """A user's timeout above 0 beats the global one, 0 does not, and other users never notice."""
    limit = getattr(effective, f"{name}_s")
    settings = Settings(**{name: 30.0})  # type: ignore[arg-type]
    assert limit(world(settings, **{name: 5.0}), "u") == 5.0
    assert limit(world(settings, **{name: 0.0}), "u") == 30.0
    assert limit(world(Settings(), **{name: 5.0}), "stranger") == 0.0


@pytest.mark.parametrize("name", ["max_user_connections", "max_user_client_connections"])
def test_user_limits(name: str) -> None:
    """A user's limit of 0 falls back to the global one."""
    limit = getattr(effective, name)
    settings = Settings(**{name: 30})  # type: ignore[arg-type]
    assert [limit(world(settings, **{name: value}), "u") for value in (None, 0, 5)] == [30, 30, 5]


@pytest.mark.parametrize("name", ["max_db_connections", "max_db_client_connections"])
def test_database_limits(name: str) -> None:
    """A database's limit of 0 falls back to the global one."""
    limit = getattr(effective, name)
    config = world(Settings(**{name: 30}))  # type: ignore[arg-type]
    entries = [DatabaseConfig("d", **{name: value}) for value in (None, 0, 5)]  # type: ignore[arg-type]
    assert [limit(config, entry) for entry in entries] == [30, 30, 5]


def test_auth_lookup_scopes() -> None:
    """auth_user, auth_query and auth_dbname of an entry beat the global ones; the last resort is the entry."""
    config = world(Settings(auth_user="global", auth_dbname="authdb"))
    entry = DatabaseConfig("d", auth_user="own", auth_query="select 1", auth_dbname="other")
    assert effective.auth_user(config, entry) == "own"
    assert effective.auth_query(config, entry) == "select 1"
    assert effective.auth_dbname(config, entry) == "other"
    assert effective.auth_user(config, DatabaseConfig("d")) == "global"
    assert effective.auth_dbname(config, DatabaseConfig("d")) == "authdb"
    assert effective.auth_dbname(world(), DatabaseConfig("d")) == "d"
    assert effective.auth_user(world(Settings(auth_user="")), DatabaseConfig("d")) is None


@pytest.mark.parametrize(("written", "query"), [("<empty>", ""), ("", None), ("select 1", "select 1")])
def test_check_query(written: str, query: str | None) -> None:
    """The keyword <empty> is a query of length zero, and an empty value is no check."""
    assert effective.server_check_query(world(Settings(server_check_query=written))) == query


def test_hosts_default_to_the_socket_directory() -> None:
    """An entry without host= uses the pooler's own Unix socket directory."""
    config = world(Settings(unix_socket_dir="/run/pg"))
    assert effective.server_hosts(config, DatabaseConfig("d")) == ("/run/pg",)
    assert effective.server_hosts(config, DatabaseConfig("d", hosts=("h",))) == ("h",)


def test_peer_pool_size() -> None:
    """A peer without pool_size may have default_pool_size forwarded cancels."""
    config = Config("p.ini", peers={1: PeerConfig(1, "h"), 2: PeerConfig(2, "h", pool_size=3)})
    assert [effective.peer_pool_size(config, number) for number in (1, 2)] == [20, 3]


def test_server_tls() -> None:
    """Each value is the entry's own, an empty one too, else the global one."""
    settings = Settings(server_tls_sslmode="verify-full", server_tls_ca_file="ca", server_tls_ciphers="all")
    entry = DatabaseConfig("d", server_tls_sslmode="require", server_tls_ca_file="", server_tls_cert_file="cert")
    found, plain = (effective.server_tls(settings, one) for one in (entry, DatabaseConfig("e")))
    assert plain == effective.server_tls(settings, None)
    assert (plain.server_tls_sslmode, plain.server_tls_ca_file) == ("verify-full", "ca")
    assert (found.server_tls_sslmode, found.server_tls_ca_file, found.server_tls_cert_file) == ("require", "", "cert")
    assert (found.server_tls_ciphers, found.server_tls_protocols) == ("all", settings.server_tls_protocols)
