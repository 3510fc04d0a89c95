"""Answers of auth_query that are kept for a while."""

from __future__ import annotations

from pgshoal.policy.lookup import Row
from pgshoal.worker.lookup_cache import USERS_MAX, LookupCache, Origin

HERE = Origin("app", "auth", "select 1")
ROW = Row("alice", "secret")


def test_an_answer_is_kept_for_its_time() -> None:
    """Then it is asked for again."""
    cache = LookupCache()
    cache.put("alice", HERE, ROW, 1_000_000, 5.0)
    assert cache.get("alice", HERE, 1_000_000, 5.0) is ROW
    assert cache.get("alice", HERE, 5_999_999, 5.0) is ROW
    assert cache.get("alice", HERE, 6_000_000, 5.0) is None
    assert cache.get("alice", HERE, 1_000_000, 5.0) is None


def test_an_answer_is_for_one_question() -> None:
    """Another user, database, auth_user or query has no part in it."""
    cache = LookupCache()
    cache.put("alice", HERE, ROW, 0, 5.0)
    assert cache.get("Alice", HERE, 0, 5.0) is None
    for other in (HERE._replace(database="x"), HERE._replace(auth_user="x"), HERE._replace(query="x")):
        assert cache.get("alice", other, 0, 5.0) is None
        cache.put("alice", other, Row("alice", str(other)), 0, 5.0)
        assert cache.get("alice", other, 0, 5.0) == Row("alice", str(other))
    assert cache.get("alice", HERE, 0, 5.0) is ROW


def test_off_keeps_nothing() -> None:
    """Neither new answers nor those from before it was switched off."""
    cache = LookupCache()
    cache.put("alice", HERE, ROW, 0, 5.0)
    assert cache.get("alice", HERE, 0, 0.0) is None
    cache.put("alice", HERE, ROW, 0, 0.0)
    assert cache.get("alice", HERE, 0, 5.0) is None


def test_a_user_can_be_forgotten() -> None:
    """And all at once."""
    cache = LookupCache()
    for name in ("alice", "bob"):
        cache.put(name, HERE, ROW, 0, 5.0)
    cache.forget("alice")
    cache.forget("nobody")
    assert cache.get("alice", HERE, 0, 5.0) is None
    assert cache.get("bob", HERE, 0, 5.0) is ROW
    cache.clear()
    assert cache.get("bob", HERE, 0, 5.0) is None


def test_memory_is_bounded() -> None:
    """The oldest answers go first; one that was renewed is young again."""
    cache = LookupCache()
    for number in range(USERS_MAX):
        cache.put(f"u{number}", HERE, ROW, 0, 5.0)
    cache.put("u0", HERE, ROW, 0, 5.0)
    cache.put("one more", HERE, ROW, 0, 5.0)
    assert cache.get("u0", HERE, 0, 5.0) is ROW
    assert cache.get("u1", HERE, 0, 5.0) is None
    assert cache.get("u2", HERE, 0, 5.0) is ROW
