"""The fleet's statistics in the supervisor: they outlive workers, and make the averages and the log's stats line."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.worker.stats import Counted, Totals, added, line, overall

if TYPE_CHECKING:
    from pgshoal.fleet.children import Child
    from pgshoal.fleet.supervisor import Supervisor

PERIOD_S: Final = 1.0
#: The share of a CPU is shown over as many seconds.
_CPU_SAMPLES: Final = 3
#: A worker that has not answered so many pings is shown as silent.
_SILENT_S: Final = 3

Rows = list[list[str | int | None]]


class Figures:
    """What the workers report every second, what the dead have left, and a snapshot every stats_period."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._fleet = supervisor
        self._latest: dict[Child, dict[str, Totals]] = {}
        #: of workers that a former supervisor had, until they are attached; by generation
        self._inherited: dict[int, dict[str, Totals]] = {}
        self._carried: dict[str, Totals] = {}
        self._older: dict[str, Totals] = {}
        self._newer: dict[str, Totals] = {}
        self._older_s = self._newer_s = supervisor.now_s()
        self._cpu: dict[Child, deque[tuple[float, int]]] = {}
        supervisor.loop.call_later(PERIOD_S, self._tick)

    # -- hearing

    def attach(self, child: Child) -> None:
        """A new worker, or one that was taken over."""
        self._latest[child] = self._inherited.pop(child.generation, {})

    def heard(self, child: Child, databases: Mapping[str, Sequence[int] | None]) -> None:
        """What has changed of a worker's totals; None: it has no pool of that database any more."""
        latest = self._latest.setdefault(child, {})
        for name, counts in databases.items():
            if counts is None:
                latest.pop(name, None)
            else:
                latest[name] = Totals(*counts)

    def died(self, child: Child) -> None:
        """What it had counted is kept."""
        self._carried = added([self._carried, self._latest.pop(child, {})])
        self._cpu.pop(child, None)

    def export(self) -> dict[str, Any]:
        """All that was counted so far, as JSON, for a supervisor that takes the workers over."""
        latest = {str(child.generation): _written(counted) for child, counted in self._latest.items()}
        return {"carried": _written(self._carried), "latest": latest}

    def adopt(self, exported: Mapping[str, Any]) -> None:
        """Go on from there, before the workers are attached; those that are idle do not report again."""
        self._carried = _read(exported["carried"])
        self._inherited = {int(generation): _read(each) for generation, each in exported["latest"].items()}
        self._older = self._newer = added([self._carried, *self._inherited.values()])

    # -- every second

    def _tick(self) -> None:
        self._fleet.loop.call_later(PERIOD_S, self._tick)
        self.tick(self._fleet.now_s())

    def tick(self, now_s: float) -> None:
        """End the period if it is over, with a line in the log."""
        for child in self._fleet.children:
            seen = self._cpu.setdefault(child, deque(maxlen=_CPU_SAMPLES + 1))
            seen.append((now_s, child.vitals.get("cpu_us", 0)))
        settings = self._fleet.config.settings
        if now_s - self._newer_s < max(settings.stats_period, 1):
            return
        self._older, self._older_s = self._newer, self._newer_s
        self._newer, self._newer_s = self._now(), now_s
        text = line(overall(self._deltas(), self._period_us()))
        if settings.log_stats:
            self._fleet.log.log(f"stats: {text.replace('µs', 'us')}")
        self._fleet.notify(f"STATUS=stats: {text}")

    def _now(self) -> dict[str, Totals]:
        return added([self._carried, *self._latest.values()])

    def _deltas(self) -> dict[str, Totals]:
        return {name: now.since(self._older.get(name, Totals())) for name, now in self._newer.items()}

    def _period_us(self) -> int:
        return round((self._newer_s - self._older_s) * 1e6)

    # -- what the console shows

    def has(self, child: Child) -> bool:
        """Whether it is counted apart from the dead."""
        return child in self._latest

    def part(self, heard: Sequence[Child | None]) -> dict[str, Any]:
        """The supervisor's part of SHOW STATS: totals of the dead, and what the last whole period has brought.

        Workers that were not heard count with what they said last, so that no total ever goes back.
        """
        config = self._fleet.config
        for name in list(self._carried):
            if name != CONSOLE_DATABASE and config.database(name) is None:
                del self._carried[name]
        silent = [counted for child, counted in self._latest.items() if child not in heard]
        return {
            "rows": [[name, *each.counts] for name, each in added([self._carried, *silent]).items()],
            "deltas": [[name, *each.counts] for name, each in self._deltas().items()],
            "period_us": self._period_us(),
        }

    def workers(self) -> Rows:
        """SHOW WORKERS: every process, and the numbers that have none."""
        fleet = self._fleet
        rows: Rows = []
        for post in fleet.posts:
            mine = [child for child in fleet.children if child.number == post.number]
            rows += [self._worker(child, post.restarts) for child in mine]
            if not mine:
                rows.append([post.number, None, None, "down", None, 0, 0, None, None, None, post.restarts, None])
        return rows

    def _worker(self, child: Child, restarts: int) -> list[str | int | None]:
        vitals, uptime_s = child.vitals, int(self._fleet.now_s() - child.started_s)
        return [
            child.number, child.seat, child.pid, _state(child), child.engine or None,
            vitals.get("clients", 0), vitals.get("servers", 0),
            self._share(child), vitals.get("loop_lag_us", 0), uptime_s, restarts, vitals.get("rss_bytes", 0),
        ]  # fmt: skip

    def _share(self, child: Child) -> str:
        """Per cent of one CPU."""
        seen = self._cpu.get(child)
        if seen is None or len(seen) < 2:
            return "0.0"
        (first_s, first_us), (last_s, last_us) = seen[0], seen[-1]
        return f"{max(0.0, (last_us - first_us) / 1e4 / max(last_s - first_s, 0.001)):.1f}"


def _written(counted: Counted) -> dict[str, list[int]]:
    return {name: list(each.counts) for name, each in counted.items()}


def _read(written: Mapping[str, Sequence[int]]) -> dict[str, Totals]:
    return {name: Totals(*counts) for name, counts in written.items()}


def _state(child: Child) -> str:
    if not child.ready:
        return "starting"
    if child.silent_s > _SILENT_S:
        return "silent"
    return "draining" if child.draining else "running"
