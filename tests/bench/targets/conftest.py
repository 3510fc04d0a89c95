"""The knobs that the tests of targets share."""

from __future__ import annotations

import pytest

from pgshoal.bench.knobs import Knobs, resolve


@pytest.fixture(scope="session")
def knobs() -> Knobs:
    """Quick, and the engine that every machine has."""
    return resolve({"engine": "python"}, {}, quick=True)
