"""Who may log in where before any password is asked, above all on the console; the default is no."""

from __future__ import annotations

from enum import Enum
from typing import Final

CONSOLE_DATABASE: Final = "pgbouncer"
CONSOLE_USER: Final = "pgbouncer"


class ConsoleRight(Enum):
    """What a name may do on the console."""

    NONE = "none"
    STATS = "stats"
    ADMIN = "admin"


def console_right(
    user: str, admin_users: tuple[str, ...], stats_users: tuple[str, ...], auth_type: str
) -> ConsoleRight:
    """By the two lists; `auth_type = any` lets everybody look, but only listed names command."""
    if user in admin_users:
        return ConsoleRight.ADMIN
    if user in stats_users or auth_type == "any":
        return ConsoleRight.STATS
    return ConsoleRight.NONE


def is_owner(user: str, peer_uid: int | None, own_uid: int) -> bool:
    """The process's own account on the Unix socket, as user `pgbouncer`, is an admin without a password."""
    return user == CONSOLE_USER and peer_uid is not None and peer_uid == own_uid
