"""Whether one more client may come in; counts include the client that asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """Counts and their limits; a limit of 0 is none."""

    clients: int
    max_client_conn: int
    of_database: int = 0
    max_of_database: int = 0
    of_user: int = 0
    max_of_user: int = 0
    is_console: bool = False
    is_admin: bool = False


def too_many_sockets(clients: int, max_client_conn: int, is_console: bool) -> bool:
    """The check of the startup packet; the console is exempt, so that an operator can always look."""
    # 0 is no "unlimited" here: PgBouncer takes max_client_conn as it is written.
    return clients > max_client_conn and not is_console


def refused_limit(counts: ClientCounts) -> str:
    """The key of the first limit that is exceeded, or "". Console admins are held by none but max_client_conn."""
    if too_many_sockets(counts.clients, counts.max_client_conn, counts.is_console):
        return "max_client_conn"
    if counts.is_console and counts.is_admin:
        return ""
    if 0 < counts.max_of_database < counts.of_database:
        return "max_db_client_connections"
    if 0 < counts.max_of_user < counts.of_user:
        return "max_user_client_connections"
    return ""
