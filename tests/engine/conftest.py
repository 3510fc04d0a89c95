"""Fixtures of the engines' socket tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgshoal.engine.choose import choose
from tests.conftest import wanted_engines
from tests.engine.rig import Rig


@pytest.fixture
def rig(engine: str) -> Iterator[Rig]:
    """A rig on the engine under test."""
    made = Rig(choose(engine, pytest.fail))
    yield made
    made.close()


@pytest.fixture(params=wanted_engines())
def second(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Another rig, on each engine in turn."""
    made = Rig(choose(str(request.param), pytest.fail))
    yield made
    made.close()
