"""Finds a PgBouncer to measure against, or unpacks a newer Debian package beside the system, installing nothing."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = (1, 26)
SUITE = "sid"
LISTS_LIMIT_S = 300


class NoPgBouncer(Exception):
    """No PgBouncer to compare with; the text says what was tried."""


@functools.cache
def find() -> Path:
    """The program to run: $PGBOUNCER as given, else a recent one on PATH, else one fetched into the cache folder."""
    given = os.environ.get("PGBOUNCER")
    if given:
        return Path(given)
    on_path = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if on_path and version_of(Path(on_path)) >= OLDEST:
        return Path(on_path)
    return fetched(cache_folder())


def version_of(program: Path) -> tuple[int, ...]:
    """The version the program reports, as numbers; (0,) when it does not run."""
    try:
        text = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False, cwd="/").stdout
    except OSError:
        return (0,)
    match = re.search(r"PgBouncer (\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def cache_folder() -> Path:
    """A folder that the unprivileged account can read too: root's own home would shut it out."""
    if os.geteuid() == 0:
        return Path("/var/cache/pgshoal-bench")
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pgshoal-bench"


def fetched(cache: Path) -> Path:
    """The wrapper of the unpacked package; downloads on first use only."""
    wrapper = cache / SUITE / "pgbouncer"
    if version_of(wrapper) >= OLDEST:
        return wrapper
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoPgBouncer(
            "no PgBouncer 1.26 or newer: set PGBOUNCER to a program (fetching one needs apt-get and dpkg-deb)"
        )
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test processes may want it at once; the second finds it done
        if version_of(wrapper) < OLDEST:
            unpack(cache, wrapper)
    if version_of(wrapper) < OLDEST:
        raise NoPgBouncer(f"the package of Debian {SUITE} does not run here, or is older than 1.26: {wrapper}")
    return wrapper


def unpack(cache: Path, wrapper: Path) -> None:
    """Downloads the packages and replaces what the cache holds."""
    with tempfile.TemporaryDirectory(prefix="pgshoal-apt-") as state:
        packages = download(Path(state))
        fresh = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache))
        fresh.chmod(0o755)
        for package in packages:
            apt_step(["dpkg-deb", "-x", str(package), str(fresh / "root")])
    target = cache / SUITE
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    write_wrapper(target, wrapper)


def archive() -> str:
    """The Debian archive that this machine's apt already uses."""
    listing = apt_step(["apt-get", "indextargets", "--format", "$(REPO_URI)"])
    plain = sorted({line for line in listing.split() if re.fullmatch(r"https?://\S+/debian/?", line)})
    if not plain:
        raise NoPgBouncer("apt's settings name no Debian archive; set PGBOUNCER to a program")
    return plain[0]


def download(state: Path) -> list[Path]:
    """Lets apt fetch PgBouncer and all it needs, with lists, cache and status of its own beside the system's."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    trust = f"[signed-by={keyring}] " if keyring.exists() else ""
    (state / "sources.list").write_text(f"deb {trust}{archive()} {SUITE} main\n")
    state.chmod(0o755)
    options = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
    apt_step([*apt, "update"])
    apt_step([*apt, "install", "-y", "--download-only", "pgbouncer"])
    return sorted((state / "cache" / "archives").glob("*.deb"))


def apt_step(argv: list[str]) -> str:
    """Runs one step; its last lines become the error."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LISTS_LIMIT_S)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise NoPgBouncer(f"{argv[0]} failed while fetching PgBouncer:\n{tail}")
    return done.stdout


def write_wrapper(target: Path, wrapper: Path) -> None:
    """Writes the script that starts the program with the package's own loader and libraries."""
    root = target / "root"
    loaders = sorted(root.glob("**/ld-linux-*.so.*"))
    programs = sorted(root.glob("**/sbin/pgbouncer"))
    if not loaders or not programs:
        raise NoPgBouncer(f"the fetched package lacks {'the loader' if programs else 'the program'}: {root}")
    folders = sorted({str(p.parent) for p in root.glob("**/*-linux-gnu/*.so*")})
    line = f'exec "{loaders[0]}" --library-path "{":".join(folders)}" "{programs[0]}" "$@"\n'
    wrapper.write_text("#!/bin/sh\n" + line)
    wrapper.chmod(0o755)
