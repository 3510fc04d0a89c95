"""pgbench's transaction logs: every transaction that ended inside an interval, and how long each took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LATENCY, SECONDS, MICROSECONDS, LAG = 2, 4, 5, 6  # columns of a line
#: Lines of transactions that were skipped or failed have a word where the others have a time.
WITHOUT_TIME: Final = re.compile(rb"^[^a-z\n]*[a-z][^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class Span:
    """A piece of time on the wall clock, in seconds of the epoch, as pgbench logs it."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """Its length; never zero, so that rates exist."""
        return max(self.ended_s - self.began_s, 1e-9)


@dataclass(frozen=True)
class Transactions:
    """Transactions in the order of the log. With open-loop load a latency counts from the scheduled start.

    pgbench's `time` includes `schedule_lag` then: https://www.postgresql.org/docs/current/pgbench.html, --rate.
    """

    ended_us: NDArray[np.int64]
    latency_us: NDArray[np.int64]
    lag_us: NDArray[np.int64]  # how late each began; zeros in a closed loop
    without_time: int = 0  # skipped or failed ones

    def __len__(self) -> int:
        return len(self.ended_us)

    @property
    def latencies_ms(self) -> NDArray[np.float32]:
        """All latencies in milliseconds."""
        return (self.latency_us / 1000).astype(np.float32)

    def between(self, span: Span) -> Transactions:
        """Those that ended in a piece of time."""
        inside = (self.ended_us >= span.began_s * 1e6) & (self.ended_us < span.ended_s * 1e6)
        return Transactions(self.ended_us[inside], self.latency_us[inside], self.lag_us[inside], self.without_time)


def read(folder: Path, prefix: str) -> Transactions:
    """All logs that one pgbench wrote with that prefix: one for each of its threads."""
    found = [parse(path.read_bytes()) for path in sorted(folder.glob(f"{prefix}.*"))] or [parse(b"")]
    return Transactions(
        np.concatenate([part.ended_us for part in found]),
        np.concatenate([part.latency_us for part in found]),
        np.concatenate([part.lag_us for part in found]),
        sum(part.without_time for part in found),
    )


def parse(text: bytes) -> Transactions:
    """One log. A last line without its end, of a pgbench that was stopped, is left out."""
    text, without_time = WITHOUT_TIME.subn(b"", text[: text.rfind(b"\n") + 1])
    width = len(text.partition(b"\n")[0].split())
    rows = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, width or LAG)
    ended = rows[:, SECONDS] * 1_000_000 + rows[:, MICROSECONDS]
    lag = rows[:, LAG] if width > LAG else np.zeros(len(rows), np.int64)
    return Transactions(ended, rows[:, LATENCY], lag, without_time)
