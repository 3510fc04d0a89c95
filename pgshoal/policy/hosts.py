"""Which host a new server connection goes to: each in turn or one until it fails; dead and unfit ones only at need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pgshoal.config.model import SessionAttributes as Attributes

#: Host, address or directory, and port.
Place = tuple[str, int]

#: How good a place is: as wished, second best, or one that would fail.
GOOD: Final = 0
SECOND: Final = 1
BAD: Final = 2

#: More places than this are not remembered beyond their time: names whose addresses change all the time.
_PLACES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """What a server said of a session at its login."""

    standby: bool
    read_only: bool


_FITS: Final[Mapping[Attributes, Callable[[Session], bool]]] = {
    "any": lambda session: True,
    "read-write": lambda session: not session.read_only,
    "read-only": lambda session: session.read_only,
    "primary": lambda session: not session.standby,
    "standby": lambda session: session.standby,
    "prefer-standby": lambda session: session.standby,
}


def fits(session: Session, wanted: Attributes) -> bool:
    """Whether a session is as wished."""
    return _FITS[wanted](session)


def misfit(session: Session) -> str:
    """What a session is that does not fit, for the log."""
    return "server is in hot standby mode" if session.standby else f"session is read-{_only(session)} on a primary"


def _only(session: Session) -> str:
    return "only" if session.read_only else "write"


def session_of(parameters: Iterable[tuple[str, str]]) -> Session | None:
    """What PostgreSQL 14 and later report at login; None if the server does not say it, so that it must be asked."""
    said = {name.lower(): value for name, value in parameters}
    standby, read_only = said.get("in_hot_standby"), said.get("default_transaction_read_only")
    if standby is None or read_only is None:
        return None
    return Session(standby == "on", "on" in (standby, read_only))


@dataclass(slots=True)
class _Known:
    """What is known of one place. Times in microseconds; 0 = not so."""

    failed_until_us: int = 0
    session: Session | None = None
    session_until_us: int = 0


class Health:
    """What became of the last attempts, by place. What is known counts for a time, then somebody has to try again."""

    def __init__(self) -> None:
        self._known: dict[Place, _Known] = {}

    @property
    def troubled(self) -> bool:
        """Whether anything is known at all."""
        return bool(self._known)

    def _of(self, place: Place, now_us: int) -> _Known:
        if len(self._known) >= _PLACES_MAX and place not in self._known:
            self._known = {
                place: known
                for place, known in self._known.items()
                if max(known.failed_until_us, known.session_until_us) > now_us
            }
        return self._known.setdefault(place, _Known())

    def failed(self, place: Place, now_us: int, retry_us: int) -> None:
        """An attempt did not succeed."""
        self._of(place, now_us).failed_until_us = now_us + retry_us

    def succeeded(self, place: Place) -> None:
        """A login was done."""
        known = self._known.get(place)
        if known is not None:
            known.failed_until_us = 0

    def learned(self, place: Place, session: Session, now_us: int, retry_us: int) -> None:
        """What its sessions are like."""
        known = self._of(place, now_us)
        known.session, known.session_until_us = session, now_us + retry_us

    def chosen(self, place: Place, now_us: int, limit_us: int) -> None:
        """An attempt begins: where the last one failed, nobody else tries before this one's time is over."""
        known = self._known.get(place)
        if known is not None and known.failed_until_us:
            known.failed_until_us = now_us + limit_us

    def rank(self, place: Place, wanted: Attributes, now_us: int) -> int:
        """GOOD, SECOND or BAD."""
        known = self._known.get(place)
        if known is None:
            return GOOD
        if known.failed_until_us > now_us:
            return BAD
        if known.session is None or known.session_until_us <= now_us or fits(known.session, wanted):
            return GOOD
        return SECOND if wanted == "prefer-standby" else BAD


def best(ranks: Sequence[int], start: int) -> int:
    """The index of the first of the best places, looking from `start` on and around."""
    count = len(ranks)
    return min(((start + step) % count for step in range(count)), key=lambda at: ranks[at])


class Turns:
    """Where each pool stands in its list of hosts."""

    def __init__(self) -> None:
        self._at: dict[int, int] = {}

    def pick(self, pool: int, ranks: Sequence[int], round_robin: bool, failed: bool) -> int:
        """The index of the next host. Without `round_robin` it stays until it fails.

        `failed`: the last attempt of this pool did not succeed, wherever it went.
        """
        at = self._at.get(pool, -1)
        if at < 0 or round_robin or failed:
            at += 1
        found = self._at[pool] = best(ranks, at % len(ranks))
        return found

    def forget(self, pool: int) -> None:
        """The pool is gone."""
        self._at.pop(pool, None)


def zone_of(host: str) -> str:
    """The zone a name is in: what follows its first dot."""
    return host.rstrip(".").partition(".")[2].lower()


def serial_grew(old: int, new: int) -> bool:
    """Whether a zone's serial is a later one; they wrap (RFC 1982)."""
    return 0 < (new - old) % 2**32 < 2**31
