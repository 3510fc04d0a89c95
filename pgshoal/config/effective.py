"""Scope rules: what a setting is worth for one database and one user, as small pure functions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from pgshoal.config.model import Config, DatabaseConfig, PoolMode, ServerTls, Settings, UserConfig

_SERVER_TLS: Final = tuple(field.name for field in fields(ServerTls))


def pool_user(database: DatabaseConfig, login_user: str) -> str:
    """The user a pool is keyed by: the entry's forced user, else the client's login user."""
    return login_user if database.user is None else database.user


def pool_mode(config: Config, database: DatabaseConfig, pool_user: str) -> PoolMode:
    """Pool user, then database, then global."""
    return _user(config, pool_user).pool_mode or database.pool_mode or config.settings.pool_mode


def pool_size(config: Config, database: DatabaseConfig, pool_user: str) -> int:
    """Pool user, then database, then default_pool_size; 0 means unlimited."""
    return _first_set(_user(config, pool_user).pool_size, database.pool_size, config.settings.default_pool_size)


def reserve_pool_size(config: Config, database: DatabaseConfig, pool_user: str) -> int:
    """Pool user, then database, then global; 0 means no reserve."""
    user = _user(config, pool_user)
    return _first_set(user.reserve_pool_size, database.reserve_pool_size, config.settings.reserve_pool_size)


def min_pool_size(config: Config, database: DatabaseConfig, pool_user: str) -> int:
    """Database, then global; never more than a limited pool holds."""
    wanted = _first_set(database.min_pool_size, config.settings.min_pool_size)
    limit = pool_size(config, database, pool_user)
    return min(wanted, limit) if limit > 0 else wanted


def server_lifetime_s(config: Config, database: DatabaseConfig) -> float:
    """Database if above 0, else global; a global 0 means each server is used once."""
    return _first_positive(database.server_lifetime, config.settings.server_lifetime)


def query_wait_timeout_s(config: Config, database: DatabaseConfig, login_user: str) -> float:
    """Login user, then database, then global; 0 means no limit at whichever scope it is written."""
    user_value = _user(config, login_user).query_wait_timeout
    if user_value is not None:
        return user_value
    if database.query_wait_timeout is not None:
        return database.query_wait_timeout
    return config.settings.query_wait_timeout


def query_timeout_s(config: Config, pool_user: str) -> float:
    """Limit of a running query: pool user if above 0, else global; 0 means off. Queued queries use the global value."""
    return _first_positive(_user(config, pool_user).query_timeout, config.settings.query_timeout)


def idle_transaction_timeout_s(config: Config, pool_user: str) -> float:
    """Pool user if above 0, else global; 0 means off."""
    return _first_positive(_user(config, pool_user).idle_transaction_timeout, config.settings.idle_transaction_timeout)


def transaction_timeout_s(config: Config, pool_user: str) -> float:
    """Pool user if above 0, else global; 0 means off."""
    return _first_positive(_user(config, pool_user).transaction_timeout, config.settings.transaction_timeout)


def client_idle_timeout_s(config: Config, login_user: str) -> float:
    """Login user if above 0, else global; 0 means off."""
    return _first_positive(_user(config, login_user).client_idle_timeout, config.settings.client_idle_timeout)


def max_db_connections(config: Config, database: DatabaseConfig) -> int:
    """Server connections per database entry; database if above 0, else global; 0 means no limit."""
    return _first_limit(database.max_db_connections, config.settings.max_db_connections)


def max_db_client_connections(config: Config, database: DatabaseConfig) -> int:
    """Client connections per database entry; database if above 0, else global; 0 means no limit."""
    return _first_limit(database.max_db_client_connections, config.settings.max_db_client_connections)


def max_user_connections(config: Config, pool_user: str) -> int:
    """Server connections of one pool user; user if above 0, else global; 0 means no limit."""
    return _first_limit(_user(config, pool_user).max_user_connections, config.settings.max_user_connections)


def max_user_client_connections(config: Config, login_user: str) -> int:
    """Client connections of one login user; user if above 0, else global; 0 means no limit."""
    user = _user(config, login_user)
    return _first_limit(user.max_user_client_connections, config.settings.max_user_client_connections)


def auth_user(config: Config, database: DatabaseConfig) -> str | None:
    """The login that runs auth_query; None when lookups are off."""
    return database.auth_user or config.settings.auth_user or None


def auth_query(config: Config, database: DatabaseConfig) -> str:
    """The query that finds a user's secret."""
    return database.auth_query or config.settings.auth_query


def auth_dbname(config: Config, database: DatabaseConfig) -> str:
    """The database entry where auth_query runs: database, then global, then the client's own."""
    return database.auth_dbname or config.settings.auth_dbname or database.name


def server_check_query(config: Config) -> str | None:
    """The liveness query: None is no check, and an empty text is a real query of length zero."""
    query = config.settings.server_check_query
    return "" if query == "<empty>" else query or None


def server_hosts(config: Config, database: DatabaseConfig) -> tuple[str, ...]:
    """Where the servers are; an entry without host= uses the pooler's own Unix socket directory."""
    return database.hosts or (config.settings.unix_socket_dir,)


def server_tls(settings: Settings, database: DatabaseConfig | None) -> ServerTls:
    """How to speak TLS to the servers of an entry: each value is the entry's own, else the global one."""
    values: dict[str, Any] = {}
    for name in _SERVER_TLS:
        own = None if database is None else getattr(database, name)
        values[name] = getattr(settings, name) if own is None else own
    return ServerTls(**values)


def peer_pool_size(config: Config, peer_id: int) -> int:
    """Cancel requests forwarded to one peer at the same time."""
    return _first_set(config.peers[peer_id].pool_size, config.settings.default_pool_size)


def _user(config: Config, name: str) -> UserConfig:
    return config.users.get(name) or UserConfig(name)


def _first_set(*values: int | None) -> int:
    """The first value written; -1 is how a file writes "inherit"."""
    return next((value for value in values if value is not None and value >= 0), 0)


def _first_limit(*values: int | None) -> int:
    return next((value for value in values if value is not None and value > 0), 0)


def _first_positive(*values: float | None) -> float:
    return next((value for value in values if value is not None and value > 0), 0.0)
