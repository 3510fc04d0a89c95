"""CPU time and memory of a process, as the kernel counts them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

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


BURN_S = 0.2
BURNER = f"""
import sys, time
while time.process_time() < {BURN_S}: pass
print("burnt", flush=True)
sys.stdin.read()
"""


@contextmanager
def burner() -> Iterator[int]:
    """A child that has spent BURN_S of CPU time, and is blocked now; it ends with the block and is reaped."""
    with subprocess.Popen([sys.executable, "-c", BURNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while process.stat(child.pid)[process.STATE] != "S":
            time.sleep(0.001)
        yield child.pid
        child.communicate(b"")


def test_work_costs_cpu_time() -> None:
    """The count grows with what a process computes."""
    before = process.cpu_ns(os.getpid())
    sum(range(1_000_000))
    assert process.cpu_ns(os.getpid()) > before


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


def test_threads_that_have_ended_are_counted() -> None:
    """What a thread has spent stays in the account of its process."""

    def burn() -> None:
        while time.thread_time() < BURN_S:
            pass

    before = process.cpu_ns(os.getpid())
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    assert process.cpu_ns(os.getpid()) - before >= BURN_S * 1e9


def test_who_has_ended_has_no_cpu_time() -> None:
    """Asked for alone it is an error, among others it is left out."""
    with burner() as pid:
        pass
    with pytest.raises(ProcessLookupError):
        process.cpu_ns(pid)
    assert list(process.cpu_of([pid, os.getpid()])) == [os.getpid()]


def test_a_child_counts_alive_and_reaped() -> None:
    """Its time is in the sum while it lives, and stays when it is gone, to a few ticks of the kernel's."""
    own = os.getpid()
    before = process.cpu_with_reaped_ns(own, list)
    with burner() as pid:
        alive = process.cpu_with_reaped_ns(own, lambda: [pid])
        at_least = process.cpu_ns(pid)
    reaped = process.cpu_with_reaped_ns(own, lambda: [pid])
    tick_ns = 1e9 / os.sysconf("SC_CLK_TCK")
    assert alive - before == pytest.approx(at_least, abs=2 * tick_ns)
    assert reaped - before >= at_least - 2 * tick_ns > BURN_S * 0.9e9


def test_a_child_reaped_between_two_looks_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is taken again until nobody was reaped meanwhile."""
    reaped = iter((100, 150, 150, 150))
    monkeypatch.setattr(process, "reaped_ns", lambda pid: next(reaped))
    monkeypatch.setattr(process, "cpu_of", lambda pids: dict.fromkeys(pids, 50))
    living = iter(([1], [1]))
    assert process.cpu_with_reaped_ns(1, lambda: next(living)) == 150 + 50


def test_the_ended_have_no_birth() -> None:
    """A process that lives keeps its time of birth; one that waits to be reaped, or is gone, has none."""
    assert process.birth(os.getpid()) == process.birth(os.getpid()) is not None
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process.birth(child.pid) is None
    assert process.birth(child.pid) is None


def test_switches_and_memory_of_a_blocked_process() -> None:
    """An independent reading of the same kernel's figures says the same."""
    with burner() as pid:
        independent = psutil.Process(pid)
        switched = independent.num_ctx_switches()
        assert process.switches(pid) == (switched.voluntary, switched.involuntary)
        assert process.switches(pid)[0] > 0
        assert process.rss_of([pid, pid]) == 2 * independent.memory_info().rss
    assert process.switches(pid) == (0, 0)
    assert process.rss_of([pid]) == 0
