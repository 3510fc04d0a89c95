"""Timeouts the engine does not watch: logins, connects, and things without a user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

QUEUED_NOTICE: Final = "No server connection available in postgres backend, client being queued"


def notify_after_s(query_wait_notify: int) -> float:
    """The wait after which the NOTICE goes out: whole seconds waited must exceed the setting; 0 is off."""
    return query_wait_notify + 1.0 if query_wait_notify > 0 else 0.0


def expired(begun: Iterable[tuple[int, float]], limit_s: float, now_s: float) -> list[int]:
    """Which of [(id, when it began)] have lasted longer than the limit; a limit of 0 is off."""
    if limit_s <= 0:
        return []
    return [which for which, begun_s in begun if now_s - begun_s > limit_s]


def login_wait_verdict(
    waited_s: float, login_age_s: float, query_wait_timeout_s: float, client_login_timeout_s: float, welcome: bool
) -> str | None:
    """Why a logged-in client that waits for its pool's first server must go, or None.

    `waited_s` counts from the end of its login, `login_age_s` from its connect.
    """
    if query_wait_timeout_s > 0 and waited_s > query_wait_timeout_s:
        return "query_wait_timeout"
    if not welcome and client_login_timeout_s > 0 and login_age_s > client_login_timeout_s:
        return "client_login_timeout_server"
    return None


def unused(idle_since_s: float, limit_s: float, now_s: float) -> bool:
    """True if a pool or an auto-database without clients and servers is to be dropped; a limit of 0 is off."""
    return limit_s > 0 and now_s - idle_since_s >= limit_s
