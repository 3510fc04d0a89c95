"""How many CPUs this process may use, and which of them each worker is bound to."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pgshoal.errors import ConfigError

#: More workers than this do not fit the seven bits that a cancel key has for a seat (two seats each, and two more).
WORKERS_MAX: Final = 62
#: With more workers for each CPU they only keep each other from it.
WORKERS_PER_CPU_MAX: Final = 4
#: No kernel has a CPU of a higher number; a range beyond is a slip of the pen, and is not counted through.
_CPU_MAX: Final = 8191
_SETTING: Final = "worker_cpu_affinity"


def usable_cpus(root: Path = Path("/"), allowed: Collection[int] | None = None) -> int:
    """The CPUs of the affinity mask, or as many as the tightest cgroup quota pays for, rounded up; 1 to 62.

    `root` is where /proc and the cgroup trees are looked for, `allowed` the mask; tests give them.
    """
    count = len(os.sched_getaffinity(0) if allowed is None else allowed)
    for quota in _quotas(root):
        count = min(count, quota)
    return max(1, min(count, WORKERS_MAX))


def too_many_workers(workers: int, cpus: int | None = None) -> str:
    """A warning if they are far more than the CPUs they may use, else ""."""
    count = usable_cpus() if cpus is None else cpus
    if workers <= WORKERS_PER_CPU_MAX * count:
        return ""
    return f"workers = {workers} are more than {WORKERS_PER_CPU_MAX} for each usable CPU ({count}); workers = auto fits"


def affinity(setting: str, workers: int, usable: Collection[int] | None = None) -> list[frozenset[int] | None]:
    """What each worker is bound to, by number; None for nothing. ConfigError if a CPU may not be used.

    `usable` is the mask of this process. A list that is shorter than the number of workers is gone through again.
    """
    word = setting.strip().lower()
    if word == "none":
        return [None] * workers
    mask = sorted(os.sched_getaffinity(0) if usable is None else usable)
    cpus = mask if word == "auto" else _listed(setting, mask)
    return [frozenset((cpus[number % len(cpus)],)) for number in range(workers)]


def _listed(setting: str, mask: Collection[int]) -> list[int]:
    found: list[int] = []
    for part in setting.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
        if match is None:
            raise ConfigError("", 0, _SETTING, setting, "none, auto, or CPU numbers such as 0,2-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError("", 0, _SETTING, setting, f"the range {first}-{last} is empty")
        found.extend(range(first, min(last, _CPU_MAX) + 1))
        if last > _CPU_MAX:
            found.append(last)
    wrong = [cpu for cpu in dict.fromkeys(found) if cpu not in mask]
    if wrong:
        shown = ", ".join(map(str, wrong[:5])) + (", ..." if len(wrong) > 5 else "")
        reason = f"this process may not use CPU {shown} (or it does not exist); it may use {_short(mask)}"
        raise ConfigError("", 0, _SETTING, setting, reason)
    return list(dict.fromkeys(found))


def _short(cpus: Collection[int]) -> str:
    """CPU numbers as people write them: 0-3,6."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# -- cgroups


@dataclass(frozen=True, slots=True)
class _Tree:
    """Where a cgroup tree is mounted, and which of its folders the mount shows as its root."""

    mounted: Path
    shows: str
    unified: bool


def _quotas(root: Path) -> Iterator[int]:
    """The quota, in CPUs, of our group and of each group around it, in every tree that can have one."""
    trees = list(_trees(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        unified = number == "0" and not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        for tree in trees:
            if tree.unified == unified:
                yield from _upward(tree, path)


def _trees(root: Path) -> Iterator[_Tree]:
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        unified = kind[0] == "cgroup2"
        if unified or "cpu" in kind[-1].split(","):
            yield _Tree(root / _plain(fields[4]).lstrip("/"), _plain(fields[3]), unified)


def _upward(tree: _Tree, path: str) -> Iterator[int]:
    # In a container the path may be one of the host, of which the mount shows only our part.
    below = path.removeprefix(tree.shows.rstrip("/")) if path.startswith(tree.shows) else "/"
    group = tree.mounted / below.lstrip("/") if ".." not in below else tree.mounted
    while True:
        quota = _unified_quota(group) if tree.unified else _old_quota(group)
        if quota is not None:
            yield quota
        if group == tree.mounted or tree.mounted not in group.parents:
            return
        group = group.parent


def _unified_quota(group: Path) -> int | None:
    words = _text(group / "cpu.max").split()
    return _rounded_up(words[0], words[1]) if len(words) == 2 else None


def _old_quota(group: Path) -> int | None:
    return _rounded_up(_text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip())


def _rounded_up(quota: str, period: str) -> int | None:
    """None for no quota: `max`, -1, or a file that is not there."""
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return None
    return max(1, -(-int(quota) // int(period)))


def _plain(text: str) -> str:
    """A path of mountinfo, which writes blanks as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
