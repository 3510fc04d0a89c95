"""Timeouts the engine does not watch."""

from __future__ import annotations

import pytest

from pgshoal.policy.timeouts import expired, login_wait_verdict, notify_after_s, unused


def test_notify_counts_whole_seconds() -> None:
    """query_wait_notify=1 speaks when two whole seconds have passed; 0 never does."""
    assert notify_after_s(1) == 2.0
    assert notify_after_s(0) == 0.0


def test_expired() -> None:
    """Only what has lasted longer than the limit, and nothing when the limit is off."""
    begun = [(1, 0.0), (2, 5.0)]
    assert expired(begun, 5.0, 5.0) == []
    assert expired(begun, 5.0, 5.1) == [1]
    assert expired(begun, 0.0, 99.0) == []


@pytest.mark.parametrize(
    ("waited_s", "age_s", "welcome", "expected"),
    [
        (10.0, 10.0, False, None),
        (121.0, 121.0, False, "query_wait_timeout"),
        (59.0, 61.0, False, "client_login_timeout_server"),
        (59.0, 61.0, True, None),
    ],
)
def test_waiting_for_the_first_server(waited_s: float, age_s: float, welcome: bool, expected: str | None) -> None:
    """A logged-in client without welcome is bound by both timeouts; the login's only while the server is unknown."""
    assert login_wait_verdict(waited_s, age_s, 120.0, 60.0, welcome) == expected


def test_limits_that_are_off() -> None:
    """Zero switches a limit off."""
    assert login_wait_verdict(1e6, 1e6, 0.0, 0.0, False) is None
    assert not unused(0.0, 0.0, 1e9)
    assert unused(0.0, 10.0, 10.0)
