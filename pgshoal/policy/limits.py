"""Whether one more client may come in; counts include the client that asks."""

from __future__ import annotations


def too_many_sockets(clients: int, max_client_conn: int, is_console: bool) -> bool:
    """The check of the startup packet; the console is exempt, so that an operator can always look."""
    # 0 means none here, not unlimited: PgBouncer takes max_client_conn as it is written.
    return clients > max_client_conn and not is_console


def over_limit(count: int, limit: int, is_console_admin: bool = False) -> bool:
    """max_db_client_connections and max_user_client_connections: 0 is no limit, console admins are never held."""
    return 0 < limit < count and not is_console_admin
