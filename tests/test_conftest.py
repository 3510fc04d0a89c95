"""The engine fixture: every engine is tested unless the environment says otherwise, and none is skipped in silence."""

from __future__ import annotations

import pytest

from tests import conftest


def test_all_engines_are_wanted_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, the run covers io_uring, epoll and the twin."""
    monkeypatch.delenv("PGSHOAL_TEST_ENGINES", raising=False)
    assert conftest.wanted_engines() == ("uring", "epoll", "python")


def test_the_environment_restricts_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names separated by commas are taken in their order, and an unknown one ends the run."""
    monkeypatch.setenv("PGSHOAL_TEST_ENGINES", "python, epoll")
    assert conftest.wanted_engines() == ("python", "epoll")
    monkeypatch.setenv("PGSHOAL_TEST_ENGINES", "kqueue")
    with pytest.raises(pytest.UsageError, match="kqueue"):
        conftest.wanted_engines()


def test_each_wanted_engine_is_passed_to_a_test(engine: str) -> None:
    """A test that asks for `engine` gets one of the wanted names."""
    assert engine in conftest.wanted_engines()
