"""What the kernel knows about processes: their CPU time to the nanosecond, their memory, and whether they live."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROC = Path("/proc")
CPUCLOCK_SCHED = 2  # of a kernel's clock number: the time that the scheduler gave to a process
REAPED_TRIES = 5
#: Of the fields after the name in /proc/PID/stat.
STATE, REAPED_USER, REAPED_SYSTEM, STARTED = 0, 13, 14, 19


def children(pid: int) -> list[int]:
    """The children of all threads of a process in the order of their start; none when it has ended."""
    found: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # a thread or all of it has ended
    return found


def family(*pids: int) -> list[int]:
    """Processes and their children: a fleet is its supervisor and its workers."""
    return [*pids, *(child for pid in pids for child in children(pid))]


def total(figure: Callable[[int], int], *pids: int) -> int:
    """A figure of processes and their children, taken together."""
    return sum(figure(one) for one in family(*pids))


def cpu_ns(pid: int) -> int:
    """CPU time of a process so far, user and system, its ended threads too; ProcessLookupError when there is none.

    The kernel's clock of the process counts nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error


def cpu_of(pids: Iterable[int]) -> dict[int, int]:
    """CPU time in nanoseconds by process; the ended ones are left out."""
    found = {}
    for pid in pids:
        try:
            found[pid] = cpu_ns(pid)
        except ProcessLookupError:
            continue
    return found


def cpu_with_reaped_ns(parent: int, living: Callable[[], Iterable[int]]) -> int:
    """CPU time of the processes that live and of all that `parent` has reaped; ProcessLookupError when it has ended.

    A child that is reaped between the two looks would be in neither: it is looked again until none was. The reaped are
    counted in ticks, but rounded once and not for each of them.
    """
    for _ in range(REAPED_TRIES):
        before = reaped_ns(parent)
        now = sum(cpu_of(living()).values())
        if reaped_ns(parent) == before:
            break
    return before + now


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; ProcessLookupError when there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"no process {pid}") from error


def reaped_ns(pid: int) -> int:
    """CPU time of the children that a process has waited for, as coarse as the kernel's clock ticks."""
    fields = stat(pid)
    return (int(fields[REAPED_USER]) + int(fields[REAPED_SYSTEM])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def birth(pid: int) -> int | None:
    """When a process was started, in the kernel's ticks, so that a number used again is told apart; None: it ended."""
    try:
        fields = stat(pid)
    except ProcessLookupError:
        return None
    return None if fields[STATE] in ("Z", "X") else int(fields[STARTED])


def switches(pid: int) -> tuple[int, int]:
    """Voluntary and involuntary context switches of the threads that live; none of a process that has ended."""
    voluntary = involuntary = 0
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    voluntary += int(line.split()[1])
                elif line.startswith("nonvoluntary_ctxt_switches"):
                    involuntary += int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass  # a thread or all of it has ended
    return voluntary, involuntary


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


def rss_of(pids: Iterable[int]) -> int:
    """Memory resident now in bytes, summed; what processes share counts in each, an ended one counts nothing."""
    pages = 0
    for pid in pids:
        try:
            pages += int((PROC / str(pid) / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * resource.getpagesize()


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
