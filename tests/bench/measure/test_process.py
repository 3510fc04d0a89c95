"""CPU time and memory of a process, as the kernel counts them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from pgshoal.bench.measure import process

GREEDY = (
    "import sys; x = bytearray(80 << 20); x[::4096] = b'x' * len(x[::4096]); del x; print('done'); sys.stdin.read()"
)


FATHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GREEDY!r}])"


def test_a_family_counts_as_one() -> None:
    """Figures of a child process are its parent's too, as a pooler may be several processes."""
    with subprocess.Popen([sys.executable, "-c", FATHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as father:
        assert father.stdout is not None
        father.stdout.readline()
        _, child = process.family(father.pid)
        total = process.total(process.peak_bytes, father.pid)
        assert total == process.peak_bytes(father.pid) + process.peak_bytes(child) > 80 << 20
        father.communicate(b"")


def test_work_costs_cpu_time() -> None:
    """The count grows with what a process computes."""
    before = process.cpu_ns(os.getpid())
    sum(range(1_000_000))
    assert process.cpu_ns(os.getpid()) > before


def test_user_and_system_time_are_told_apart() -> None:
    """A process that spins until the kernel has counted ten ticks in user mode shows them there."""
    start, _ = process.cpu_split_us(os.getpid())
    tick_us = 1e6 / os.sysconf("SC_CLK_TCK")
    while process.cpu_split_us(os.getpid())[0] < start + 10 * tick_us:
        sum(range(10_000))
    user, system = process.cpu_split_us(os.getpid())
    times = os.times()
    assert abs(user / 1e6 - times.user) + abs(system / 1e6 - times.system) < 0.2


def test_the_peak_outlives_the_memory() -> None:
    """Memory given back is gone from the present figure, stays in the peak, and leaves it at a reset."""
    with subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process.peak_bytes(child.pid) - process.rss_bytes(child.pid) > 60 << 20
        process.reset_peak(child.pid)
        assert process.peak_bytes(child.pid) - process.rss_bytes(child.pid) < 20 << 20
        child.communicate(b"")


def test_a_family_is_counted_together() -> None:
    """A figure of a process with a child is the sum of both."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process.family(os.getpid()).count(child.pid) == 1
        assert process.family(child.pid) == [child.pid]
        assert process.total(lambda pid: pid, os.getpid()) == sum(process.family(os.getpid()))
        child.communicate(b"\n")


def test_the_file_limit_is_never_lowered() -> None:
    """Asking for fewer files than allowed changes nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert process.raise_file_limit(10) == soft
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
