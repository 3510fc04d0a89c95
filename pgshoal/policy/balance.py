"""Which worker gets a new client (accept_balance): the fewest clients, or one worker after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: pack wakes the next worker when this one has so many clients, whatever they do.
PACK_CLIENTS: Final = 16
#: pack wakes the next worker when this one has used so much of a CPU lately.
BUSY_SHARE: Final = 0.7
#: A figure about CPU needs so much time behind it, and is of no use when it is older.
BUSY_WINDOW_US: Final = 100_000
BUSY_AGE_MAX_US: Final = 1_000_000
#: Counts older than this, for each worker, are read again before they are used.
FRESH_US: Final = 250
#: The difference that is worth a hand-over is 1, and for many clients one part in so many.
SLACK_PARTS: Final = 16
#: Where clients come and go fast the kernel's hash is even enough; only so large a difference is worth the cost.
CHURN_SLACK: Final = 8
CHURN_SLACK_PARTS: Final = 4
#: Fewer ends in a second are no sign of anything.
CHURN_LEAST: Final = 4


@dataclass(frozen=True, slots=True)
class Load:
    """How much a worker has to do."""

    number: int
    clients: int
    busy: bool = False


def least(loads: Iterable[Load], mine: int) -> int:
    """The number with the fewest clients; `mine` as long as it has hardly more."""
    best: Load | None = None
    own: Load | None = None
    for load in loads:
        if load.number == mine:
            own = load
        if best is None or load.clients < best.clients:
            best = load
    if best is None or (own is not None and own.clients - best.clients <= own.clients // SLACK_PARTS):
        return mine
    return best.number


def pack(loads: Iterable[Load], mine: int) -> int:
    """The lowest number that is not busy; the one with the fewest clients if all are."""
    known = sorted(loads, key=lambda load: load.number)
    for load in known:
        if load.clients < PACK_CLIENTS and not load.busy:
            return load.number
    return least(known, mine)


def diverts(how: str, loads: Iterable[Load], mine: int, churning: bool) -> bool:
    """Whether a worker looks at each new client before it takes it; it costs a little for each."""
    known = list(loads)
    if how == "kernel" or len(known) < 2:
        return False
    if not churning:
        return True
    counts = {load.number: load.clients for load in known}
    own = counts.get(mine, 0)
    if how == "pack":
        return own >= PACK_CLIENTS // 2 or pack(known, mine) != mine
    return own - min(counts.values()) > max(CHURN_SLACK, own // CHURN_SLACK_PARTS)


class Churn:
    """Whether clients come and go so fast that it hardly matters where they are."""

    def __init__(self) -> None:
        self.found = False
        self._at_us = 0
        self._accepted = 0
        self._clients = 0

    def note(self, now_us: int, accepted: int, clients: int) -> None:
        """`accepted`: clients so far; `clients`: those that are here. To be called about every third of a second."""
        span_us, self._at_us = now_us - self._at_us, now_us
        came, self._accepted = accepted - self._accepted, accepted
        grown, self._clients = clients - self._clients, clients
        if span_us <= 0:
            return
        ended_per_s = (came - grown) * 1_000_000 / span_us
        # Ends per second and client: above 1, clients stay for less than a second.
        bound = max(clients, CHURN_LEAST) * (0.5 if self.found else 1.0)
        self.found = ended_per_s > bound


class Gauge:
    """How busy a process was lately, from its CPU time so far."""

    def __init__(self) -> None:
        self.busy = False
        self._at_us = 0
        self._cpu_us = 0

    def due(self, now_us: int) -> bool:
        """Whether `note` would learn something."""
        return now_us - self._at_us >= BUSY_WINDOW_US

    def note(self, now_us: int, cpu_us: int) -> None:
        """A longer silence says nothing about now: then a new window begins."""
        span_us, self._at_us = now_us - self._at_us, now_us
        used_us, self._cpu_us = cpu_us - self._cpu_us, cpu_us
        self.busy = 0 < span_us <= BUSY_AGE_MAX_US and used_us >= span_us * BUSY_SHARE


class Placement:
    """The loads between two looks, with this worker's own decisions added."""

    def __init__(self) -> None:
        self.loads: dict[int, Load] = {}
        self._read_us = 0

    def stale(self, now_us: int) -> bool:
        """Whether `read` should be called first; with many workers a look costs more."""
        return now_us - self._read_us >= FRESH_US * max(1, len(self.loads))

    def read(self, now_us: int, loads: Iterable[Load]) -> None:
        """Take new counts. Whoever was placed must be in them, on whatever way to its worker it is."""
        self.loads = {load.number: load for load in loads}
        self._read_us = now_us

    def place(self, how: str, mine: int) -> int:
        """Where the next client goes; it is counted there."""
        found = self.next(how, mine)
        self.add(found)
        return found

    def add(self, number: int) -> None:
        """A client has gone to this worker."""
        load = self.loads.get(number)
        if load is not None:
            self.loads[number] = Load(number, load.clients + 1, load.busy)

    def next(self, how: str, mine: int) -> int:
        """Where the next client would go."""
        return (pack if how == "pack" else least)(self.loads.values(), mine)

    def forget(self, number: int) -> None:
        """This worker takes nobody: not until the counts are read again."""
        self.loads.pop(number, None)
