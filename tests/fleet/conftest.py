"""A supervisor whose workers are stand-ins, made on demand and cleared at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.stage import Stage

MakeStage = Callable[..., Stage]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeStage]:
    """Makes one; `begin` is the test's."""
    made: list[Stage] = []

    def one(*parts: str, **settings: Any) -> Stage:
        made.append(Stage(monkeypatch, tmp_path, parts, **settings))
        return made[-1]

    yield one
    for stage in made:
        stage.close()


@pytest.fixture
def begun(make: MakeStage) -> MakeStage:
    """Makes one whose workers are started."""

    def one(*parts: str, **settings: Any) -> Stage:
        stage = make(*parts, **settings)
        stage.begin()
        return stage

    return one
