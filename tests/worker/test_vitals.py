"""How a worker does: its counts, its memory, and how late its loop is."""

from __future__ import annotations

from pgshoal.worker.vitals import LoopLag, vitals
from tests.worker.bench import Bench, close


def test_lag_is_the_worst_of_the_last_ticks() -> None:
    """A tick that comes late counts until thirty others have come in time."""
    lag = LoopLag()
    assert lag.worst_us == 0
    for now_us in (1_000_000, 1_333_333, 1_966_666):
        lag.ticked(now_us)
    assert lag.worst_us == 300_000
    for turn in range(1, 30):
        lag.ticked(1_966_666 + turn * 333_333)
    assert lag.worst_us == 300_000
    lag.ticked(1_966_666 + 30 * 333_333)
    assert lag.worst_us == 0


def test_vitals() -> None:
    """Everything SHOW WORKERS wants to know, as whole numbers."""
    bench = Bench()
    try:
        bench.login()
        bench.serve()
        found = vitals(bench.worker)
        assert (found["clients"], found["servers"]) == (1, 1)
        assert found["rss_bytes"] > 1_000_000
        assert found["cpu_us"] > 0
        assert found.keys() == {"clients", "servers", "loop_lag_us", "cpu_us", "memory_bytes", "rss_bytes"}
    finally:
        close(bench)
