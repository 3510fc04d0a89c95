"""A PgBouncer is found where the user says, and the archive's address comes from the machine itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgshoal.bench.targets import pgbouncer


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """The answer is remembered per process; each test asks anew, and the next tests get the true one."""
    pgbouncer.find.cache_clear()
    yield
    pgbouncer.find.cache_clear()


def program(folder: Path, version: str) -> Path:
    """A program that claims to be a PgBouncer."""
    path = folder / "pgbouncer"
    path.write_text(f"#!/bin/sh\necho PgBouncer {version}\n")
    path.chmod(0o755)
    return path


def test_the_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """$PGBOUNCER is taken as it is."""
    monkeypatch.setenv("PGBOUNCER", "/opt/mine/pgbouncer")
    assert pgbouncer.find() == Path("/opt/mine/pgbouncer")


def test_only_a_recent_one_on_the_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A recent version on PATH is used; an old one is passed over for a fetched one."""
    monkeypatch.delenv("PGBOUNCER", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(pgbouncer, "fetched", lambda cache: Path("/fetched"))
    mine = program(tmp_path, "1.26.0")
    assert pgbouncer.find() == mine
    program(tmp_path, "1.18.0")
    pgbouncer.find.cache_clear()
    assert pgbouncer.find() == Path("/fetched")


def test_the_version_is_read(tmp_path: Path) -> None:
    """Versions compare as numbers; a program that is not there has none."""
    assert pgbouncer.version_of(program(tmp_path, "1.26.10")) == (1, 26, 10)
    assert pgbouncer.version_of(tmp_path / "nothing") == (0,)


def test_the_archive_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain Debian archive is picked among those apt uses; without one the error says what to do."""
    listing = "http://mirror.example/debian-security/\nhttp://mirror.example/debian/\n"
    monkeypatch.setattr(pgbouncer, "apt_step", lambda argv: listing)
    assert pgbouncer.archive() == "http://mirror.example/debian/"
    monkeypatch.setattr(pgbouncer, "apt_step", lambda argv: "http://mirror.example/ubuntu/\n")
    with pytest.raises(pgbouncer.NoPgBouncer, match="set PGBOUNCER"):
        pgbouncer.archive()
