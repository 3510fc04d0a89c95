"""What auth_query said a moment ago, for auth_query_cache_ttl; a login that fails makes it forget its user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pgshoal.policy.lookup import Row

USERS_MAX: Final = 10_000


class Origin(NamedTuple):
    """Who was asked, and what: an answer to another question is no answer to this one."""

    database: str
    auth_user: str
    query: str


class LookupCache:
    """Answers by user and origin. Only users who were found are kept, so guessed names fill nothing."""

    __slots__ = ("_users",)

    def __init__(self) -> None:
        self._users: dict[str, dict[Origin, tuple[Row, int]]] = {}

    def get(self, user: str, origin: Origin, now_us: int, ttl_s: float) -> Row | None:
        """An answer that is not older than `ttl_s`."""
        found = self._users.get(user, {}).get(origin)
        if found is None:
            return None
        row, since_us = found
        if now_us - since_us < ttl_s * 1e6:
            return row
        self.forget(user)
        return None

    def put(self, user: str, origin: Origin, row: Row, now_us: int, ttl_s: float) -> None:
        """Keep an answer; of too many users, the one whose answer is oldest is forgotten."""
        if ttl_s <= 0:
            self._users.clear()
            return
        answers = self._users.pop(user, {})
        answers[origin] = (row, now_us)
        if len(self._users) >= USERS_MAX:
            del self._users[next(iter(self._users))]
        self._users[user] = answers

    def forget(self, user: str) -> None:
        """A wrong password may be a new one: the next login asks the server."""
        self._users.pop(user, None)

    def clear(self) -> None:
        """After a RELOAD every user is looked up anew."""
        self._users.clear()
