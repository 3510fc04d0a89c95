"""Fixtures for configuration tests: files in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgshoal.config.load import load
from pgshoal.config.model import Config

Write = Callable[..., Path]
Load = Callable[..., Config]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into the working directory of the test and return its relative path."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str | bytes, name: str = "p.ini") -> Path:
        path = Path(name)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


@pytest.fixture
def load_text(write: Write) -> Load:
    """Load a configuration given as text; its file is called p.ini."""

    def load_it(text: str | bytes, **overrides: str) -> Config:
        return load(str(write(text)), overrides)

    return load_it
