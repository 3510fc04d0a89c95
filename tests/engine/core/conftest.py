"""Each test here runs on both engines, with input as a whole and byte by byte."""

from __future__ import annotations

import pytest

from tests.engine.core.harness import Bench


@pytest.fixture(params=["whole", "bytes"])
def cut(request: pytest.FixtureRequest) -> str:
    """How peers' messages are cut."""
    return str(request.param)


@pytest.fixture(params=["python", "native"])
def core(request: pytest.FixtureRequest, cut: str) -> Bench:
    """An engine under test; a native module that is not built is a failure."""
    return Bench(str(request.param), cut)
