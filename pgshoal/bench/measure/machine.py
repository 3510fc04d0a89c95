"""The machine that a run is made on: what it is, what is installed, and how busy it was."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")
CGROUP = SYS / "fs/cgroup"
PACKAGES = ("pgshoal", "pgshoal-engine", "psycopg", "numpy", "matplotlib")
VERSION_LIMIT_S = 10


@dataclass(frozen=True)
class Times:
    """The processor time of the whole machine so far, in ticks."""

    total: int
    idle: int
    steal: int

    @classmethod
    def now(cls) -> Times:
        """As the first line of /proc/stat has it; guests are in user time already."""
        fields = [int(word) for word in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(total=sum(fields), idle=fields[3] + fields[4], steal=fields[7])

    def shares_since(self, before: Times) -> Mapping[str, float]:
        """Idle and stolen shares of the machine since then, 0 to 1; none when no tick has passed."""
        total = self.total - before.total
        if total <= 0:
            return {}
        # The kernel may take idle time back: a share is never below zero.
        return {
            "machine_idle": max(self.idle - before.idle, 0) / total,
            "steal": max(self.steal - before.steal, 0) / total,
        }


def cores() -> int:
    """Processors that this process may use, and with it what it starts."""
    return len(os.sched_getaffinity(0))


def facts() -> dict[str, str | int | float]:
    """What a reader of figures has to know about the machine."""
    found: dict[str, str | int | float] = {
        "system": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cores": cores(),
        "cores of the machine": os.cpu_count() or 0,
        "memory MB": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "governor": read(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
    }
    if limit := cpu_limit():
        found["cpu limit"] = limit
    return found


def cpu_model() -> str:
    """The model by its maker's name."""
    for line in (PROC / "cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def cpu_limit() -> float | None:
    """Processors that a container may fill at most, where it is limited."""
    quota, _, period = read(CGROUP / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def versions(programs: Mapping[str, Path]) -> dict[str, str]:
    """The version of Python, of the packages that take part, and of each program as it tells it itself."""
    found = {"python": f"{platform.python_implementation()} {platform.python_version()}"}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {name: version_of(path) for name, path in programs.items()}


def version_of(program: Path) -> str:
    """The first line a program prints when asked for its version; `unknown` when it does not run."""
    try:
        done = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, check=True, cwd="/", timeout=VERSION_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next(iter(done.stdout.splitlines()), "unknown").strip()


def digest(text: str) -> str:
    """What tells whether two runs had the same configuration, without showing it."""
    return hashlib.sha256(text.encode()).hexdigest()


def read(path: Path) -> str:
    """A small file of the kernel's without the line's end; empty when there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
