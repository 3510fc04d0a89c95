"""A planted folder, and its report, made once for all tests that only read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.bench.results import report
from pgshoal.bench.results.chapters import Run, read
from tests.bench.results.planted import declarations, plant


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that a report makes."""
    folder = tmp_path_factory.mktemp("bench") / "2026-11-30-200000"
    plant(folder)
    report.write(folder, declarations())
    return folder


@pytest.fixture(scope="session")
def run(written: Path) -> Run:
    """The same folder as it is read."""
    return read(written, declarations())
