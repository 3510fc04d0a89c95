"""PostgreSQL's programs are found in the wheel and on the system, by version."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.demo import programs
from pgshoal.demo.account import can_run, run, unprivileged


@pytest.fixture
def closed_wheel() -> Iterator[Path]:
    """The wheel's files in a folder that only root can enter."""
    spec = importlib.util.find_spec(programs.WHEEL)
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    folder = Path(tempfile.mkdtemp())
    for part in package.parent.glob(f"{package.name}*"):
        shutil.copytree(part, folder / part.name, symlinks=True)
    yield folder
    shutil.rmtree(folder)


def test_the_wheel_holds_postgresql_18() -> None:
    """The embedded programs are the newest of the wheel, and the unprivileged account can run them."""
    account = unprivileged()
    found = programs.embedded(account)
    assert found.major == 18
    assert all(can_run(found[name], account) for name in programs.NEEDED)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's folders are closed to the account")
def test_a_closed_wheel_is_copied(closed_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs the account cannot reach run from a copy, and find their libraries there."""
    monkeypatch.syspath_prepend(closed_wheel)
    account = unprivileged()
    found = programs.embedded(account)
    assert not found.bin.is_relative_to(closed_wheel)
    assert "18" in run([found["initdb"], "--version"], account)


def test_the_system_has_postgresql() -> None:
    """The system's programs know their own version."""
    found = programs.system()
    assert programs.major_of(found["postgres"]) == found.major


def test_a_missing_version_is_named() -> None:
    """The error says which version is missing and where we looked."""
    with pytest.raises(programs.ProgramsMissing, match="PostgreSQL 7 is not installed here"):
        programs.system(7)
