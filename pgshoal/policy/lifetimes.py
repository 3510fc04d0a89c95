"""How long a server may live: age, idleness, and when it must be checked before it is used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LIFETIME_OVER: Final = "server lifetime over"
IDLE_TIMEOUT: Final = "server idle timeout"
CLOSE_NEEDED: Final = "close_needed"
TOO_MANY: Final = "too many servers in the pool"
PAUSED: Final = "pause mode"
CHANGED: Final = "database configuration changed"
#: Not a reason to close: the server needs a check before its next use.
CHECK: Final = "check"


@dataclass(frozen=True, slots=True)
class LifeLimits:
    """Settings that bound a server's life in one pool; seconds."""

    lifetime_s: float = 3600.0
    idle_timeout_s: float = 600.0
    check_delay_s: float = 30.0
    check: bool = True  # server_check_query is not empty
    pool_size: int = 20
    min_size: int = 0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server that is not linked."""

    server: int
    age_s: float
    idle_s: float
    close_needed: bool = False
    used: bool = False  # already set aside for a check


def lifetime_over(age_s: float, since_last_s: float | None, limits: LifeLimits) -> bool:
    """True if a server must go for its age; a pool's servers go one by one, spread over one lifetime.

    `since_last_s`: since the pool closed one for its age, None if it never did. Lifetime 0 means: used once.
    """
    if age_s < limits.lifetime_s:
        return False
    if limits.lifetime_s <= 0 or since_last_s is None:
        return True
    return since_last_s >= limits.lifetime_s / max(limits.pool_size, 1)


def review(
    servers: Sequence[ServerFacts], connected: int, paused: bool, since_last_s: float | None, limits: LifeLimits
) -> list[tuple[int, str]]:
    """What to do with the unlinked servers of a pool, longest idle first: [(server, reason to close or CHECK)].

    `connected` counts all logged-in servers of the pool.
    """
    verdicts: list[tuple[int, str]] = []
    for facts in servers:
        reason = _verdict(facts, connected, paused, since_last_s, limits)
        if not reason:
            continue
        verdicts.append((facts.server, reason))
        if reason != CHECK:
            connected -= 1
        if reason == LIFETIME_OVER:
            since_last_s = 0.0
    return verdicts


def _verdict(
    facts: ServerFacts, connected: int, paused: bool, since_last_s: float | None, limits: LifeLimits
) -> str | None:
    if facts.close_needed:
        return CLOSE_NEEDED
    if paused:
        return PAUSED
    if limits.lifetime_s > 0 and lifetime_over(facts.age_s, since_last_s, limits):
        return LIFETIME_OVER
    spare = limits.min_size == 0 or connected > limits.min_size
    if limits.idle_timeout_s > 0 and facts.idle_s > limits.idle_timeout_s and spare:
        return IDLE_TIMEOUT
    if limits.check and not facts.used and facts.idle_s > limits.check_delay_s:
        return CHECK
    return None
