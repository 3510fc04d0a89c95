"""Affinity masks, cgroup quotas of both versions, and the CPU that each worker gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.errors import ConfigError
from pgshoal.fleet.cpus import affinity, too_many_workers, usable_cpus

FOUR = frozenset(range(4))
MOUNT_2 = "30 20 0:26 {shows} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
MOUNT_1 = "31 20 0:27 {shows} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
OTHER = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n32 20 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def tree(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A /proc and cgroup files below a temporary root."""
    for name, text in {"proc/self/cgroup": cgroup, "proc/self/mountinfo": OTHER + mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_cgroups_the_mask_counts(tmp_path: Path) -> None:
    """Where /proc says nothing of cgroups, every CPU of the mask is usable."""
    assert usable_cpus(tmp_path, FOUR) == 4


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000", 4),
        ("100000 100000", 1),
        ("100001 100000", 2),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("900000 100000", 4),
        ("0 100000", 1),
        ("broken", 4),
    ],
)
def test_quota_of_version_2_is_rounded_up(tmp_path: Path, cpu_max: str, expected: int) -> None:
    """cpu.max bounds the count, never below one and never above the mask."""
    files = {"sys/fs/cgroup/a/b/cpu.max": cpu_max + "\n"}
    assert usable_cpus(tree(tmp_path, "0::/a/b\n", MOUNT_2.format(shows="/"), files), FOUR) == expected


def test_the_tightest_group_around_us_counts(tmp_path: Path) -> None:
    """A quota of a parent group binds as well as our own."""
    files = {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "150000 100000"}
    assert usable_cpus(tree(tmp_path, "0::/a/b\n", MOUNT_2.format(shows="/"), files), FOUR) == 2


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    """With a cgroup namespace the path is / and the quota lies at the mount's root."""
    files = {"sys/fs/cgroup/cpu.max": "200000 100000"}
    assert usable_cpus(tree(tmp_path, "0::/\n", MOUNT_2.format(shows="/"), files), FOUR) == 2


@pytest.mark.parametrize("path", ["/docker/77", "/../elsewhere", "/another"])
def test_a_path_of_the_host_leads_to_the_mount(tmp_path: Path, path: str) -> None:
    """A path that the mount shows as its root, or that lies outside of it, means the mount's root."""
    files = {"sys/fs/cgroup/cpu.max": "200000 100000"}
    assert usable_cpus(tree(tmp_path, f"0::{path}\n", MOUNT_2.format(shows="/docker/77"), files), FOUR) == 2


@pytest.mark.parametrize(("quota", "expected"), [("-1", 4), ("100000", 2), ("110000", 3)])
def test_quota_of_version_1(tmp_path: Path, quota: str, expected: int) -> None:
    """cpu.cfs_quota_us over cpu.cfs_period_us, -1 for none; other controllers' lines do not matter."""
    files = {
        "sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us": "50000",
    }
    cgroup = "5:memory:/app\n4:cpuset:/other\n3:cpu,cpuacct:/app\n"
    assert usable_cpus(tree(tmp_path, cgroup, MOUNT_1.format(shows="/"), files), FOUR) == expected


def test_never_more_than_seats_allow(tmp_path: Path) -> None:
    """A machine with 200 CPUs runs 62 workers."""
    assert usable_cpus(tmp_path, range(200)) == 62


def test_this_machine_has_at_least_one() -> None:
    """The real /proc is read without harm."""
    assert usable_cpus() >= 1


def test_no_affinity() -> None:
    """`none` binds nobody."""
    assert affinity("none", 3, FOUR) == [None, None, None]


def test_auto_takes_usable_cpus_in_turn() -> None:
    """`auto` goes through the mask, and begins again when there are more workers."""
    assert affinity("auto", 3, {2, 5}) == [frozenset((cpu,)) for cpu in (2, 5, 2)]


@pytest.mark.parametrize(
    ("setting", "workers", "expected"),
    [
        ("0,2,4-7", 6, [0, 2, 4, 5, 6, 7]),
        ("3, 1", 3, [3, 1, 3]),
        ("2-2", 2, [2, 2]),
        ("0,0-1", 2, [0, 1]),
    ],
)
def test_a_list_is_taken_in_its_order(setting: str, workers: int, expected: list[int]) -> None:
    """Worker by worker the next CPU of the list; a CPU named twice counts once."""
    assert affinity(setting, workers, range(8)) == [frozenset((cpu,)) for cpu in expected]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("0,9", "may not use CPU 9"),
        ("0-7", "may not use CPU 4, 5, 6, 7 (or it does not exist); it may use 0-3"),
        ("0-999999999", "may not use CPU 4, 5, 6, 7, 8, ..."),
        ("3-1", "the range 3-1 is empty"),
        ("a", "CPU numbers such as 0,2-5"),
    ],
)
def test_errors_name_the_setting(setting: str, reason: str) -> None:
    """A CPU that is not there or not ours, and what is no list, are told with the setting's name and value."""
    with pytest.raises(ConfigError) as caught:
        affinity(setting, 2, FOUR)
    assert str(caught.value).startswith(f"worker_cpu_affinity = {setting}: ")
    assert reason in str(caught.value)


def test_too_many_workers() -> None:
    """Up to four for each usable CPU nothing is said; `auto` is never too many."""
    assert too_many_workers(8, 2) == too_many_workers(0, 1) == ""
    assert too_many_workers(9, 2) == "workers = 9 are more than 4 for each usable CPU (2); workers = auto fits"
