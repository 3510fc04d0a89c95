"""How a worker does: what it answers to the supervisor's `ping`."""

from __future__ import annotations

import contextlib
import resource
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: The worst delay of this many ticks is shown; three come in a second.
_TICKS: Final = 30
_PERIOD_US: Final = 333_333


class LoopLag:
    """How late the loop is for what it had planned, in microseconds, seen at the janitor's ticks."""

    def __init__(self) -> None:
        self._last_us = 0
        self._seen: deque[int] = deque(maxlen=_TICKS)

    def ticked(self, now_us: int) -> None:
        """The janitor was called, which plans its next call at that moment."""
        if self._last_us:
            self._seen.append(max(0, now_us - self._last_us - _PERIOD_US))
        self._last_us = now_us

    @property
    def worst_us(self) -> int:
        """Of the last ten seconds."""
        return max(self._seen, default=0)


def vitals(worker: Worker) -> dict[str, int]:
    """For SHOW WORKERS and the choice of the least loaded."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "clients": worker.front.connections(),
        "servers": len(worker.servers.by_conn),
        "loop_lag_us": worker.stats.lag.worst_us,
        "cpu_us": round((usage.ru_utime + usage.ru_stime) * 1e6),
        "memory_bytes": sum(size * (used + free) for _, size, used, free in worker.engine.memory()),
        "rss_bytes": rss_bytes(),
    }


def rss_bytes() -> int:
    """Memory resident now."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0
