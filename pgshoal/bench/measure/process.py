"""What the kernel knows about a process: its CPU time to the nanosecond, and its memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")


def family(*pids: int) -> list[int]:
    """Processes and their children: a fleet is its supervisor and its workers."""
    found = list(pids)
    for pid in pids:
        try:
            found += map(int, (PROC / str(pid) / "task" / str(pid) / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def total(figure: Callable[[int], int], *pids: int) -> int:
    """A figure of processes and their children, taken together."""
    return sum(figure(one) for one in family(*pids))


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process so far, user and system together.

    The per-thread schedstat counts nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
    """
    total = 0
    for task in (PROC / str(pid) / "task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that ended between listing and reading
    return total


def cpu_split_us(pid: int) -> tuple[float, float]:
    """User and system time so far in microseconds, as coarse as the kernel's clock ticks."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    return int(fields[11]) * tick_us, int(fields[12]) * tick_us


def status_bytes(pid: int, field: str) -> int:
    """A memory figure of /proc/PID/status in bytes: VmRSS now, VmHWM at its highest."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"the kernel shows no {field} for process {pid}")


def rss_bytes(pid: int) -> int:
    """Memory resident now."""
    return status_bytes(pid, "VmRSS")


def private_bytes(pid: int) -> int:
    """Memory resident now that no other process shares."""
    text = (PROC / str(pid) / "smaps_rollup").read_text()
    lines = (line.split() for line in text.splitlines() if line.startswith(("Private_Clean:", "Private_Dirty:")))
    return sum(int(words[1]) for words in lines) * 1024


def peak_bytes(pid: int) -> int:
    """Memory resident at its highest since the start, or since reset_peak."""
    return status_bytes(pid, "VmHWM")


def reset_peak(pid: int) -> None:
    """Lets the kernel forget the highest memory so far; needs the right to trace the process."""
    (PROC / str(pid) / "clear_refs").write_text("5")


def raise_file_limit(wanted: int) -> int:
    """Raises our limit of open files, which children inherit, towards `wanted`; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return soft
    for limits in ((wanted, max(wanted, hard)), (min(wanted, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        except (ValueError, PermissionError):
            continue
        return limits[0]
    return soft
