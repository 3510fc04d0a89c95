"""The kit's figures against independent readings, and trouble planted in the middle of runs, on real servers."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.measure import process
from pgshoal.bench.measure.meter import Meter
from pgshoal.bench.measure.validity import CHECKS
from pgshoal.bench.model import Cell, Experiment, Outcome, Row, Scene, Target
from pgshoal.bench.results.combine import gathered
from pgshoal.bench.run import runner
from pgshoal.bench.stand import Stand
from tests.bench.run.scripted import Listener, Notes

#: The engine that uses most CPU time, as clock ticks are coarse.
POOLED = Target("pgshoal", options=(("engine", "python"),))
#: Transactions at scheduled times: a machine that others use too keeps the rate, a target that stands still does not.
SCHEDULED = PgbenchLoad(clients=4, rate=500)
PERSISTENT = PgbenchLoad(clients=4)
CHURN = PgbenchLoad(clients=4, reconnect=True)
#: Each process may lose a tick of 10 ms to rounding, in user and in system time, at both ends.
TICKS_S = 0.03
#: What a pooler without traffic spends in a moment.
STILL_NS = 2_000_000
#: Clients do not wait long for a server that is gone.
SETTINGS = {"default_pool_size": 4, "query_wait_timeout": 1}
#: Checks that a machine with other work fails at any time.
NOISY = ("machine-free", "steal", "load-free", "postgres-free", "steady-cpu")
JUDGED = tuple(name for name in CHECKS if name not in NOISY)


@dataclass(frozen=True)
class Beside:
    """A load, and what a test does beside it: just outside the meter's interval, or just inside."""

    load: PgbenchLoad
    scenes: list[Scene] = field(default_factory=list, compare=False)
    programs: list[int] = field(default_factory=list, compare=False)

    @property
    def generators(self) -> int:
        """As the load says."""
        return self.load.generators

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """As the load does."""
        self.load.prepare(stand, knobs)

    def run(self, scene: Scene) -> Outcome:
        """The load as it would run alone."""
        self.scenes.append(scene)
        return self.load.run(replace(scene, meter=Around(scene, self)))

    @contextmanager
    def outside(self, scene: Scene) -> Iterator[None]:
        """Nothing."""
        yield

    @contextmanager
    def inside(self, scene: Scene) -> Iterator[None]:
        """Nothing."""
        yield


class Around(Meter):
    """Hands everything on to the meter of the run."""

    def __init__(self, scene: Scene, beside: Beside) -> None:
        self._scene, self._beside = scene, beside

    def generator(self, *pids: int) -> None:
        """As told."""
        self._beside.programs.extend(pids)
        self._scene.meter.generator(*pids)

    @contextmanager
    def interval(self) -> Iterator[None]:
        """The meter's, between what the test does."""
        with self._beside.outside(self._scene), self._scene.meter.interval(), self._beside.inside(self._scene):
            yield


@dataclass(frozen=True)
class Trouble(Beside):
    """Acts in the interval of one of the runs, half-way through it unless said otherwise."""

    act: Callable[[Scene], None] = lambda scene: None
    of_run: int = 0
    at: float = 0.5  # of the interval

    @contextmanager
    def inside(self, scene: Scene) -> Iterator[None]:
        """Waits for its time."""
        half = threading.Timer(scene.knobs.float("seconds") * self.at, self.act, [scene])
        if len(self.scenes) != self.of_run + 1:
            yield
            return
        half.start()
        yield
        half.join()


Make = Callable[..., list[Row]]


@pytest.fixture
def make(stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes and checks the runs of an experiment of one cell, as the runner does, and returns their rows."""
    monkeypatch.setattr(runner, "Stand", lambda knobs: nullcontext(stand))

    def made(load: Beside, *, repeats: int = 1, seconds: float = 1.5) -> list[Row]:
        cell = Cell("planted", POOLED, load, settings=SETTINGS, budget=4)
        experiment = Experiment("planted", "planted", "is it noticed?", lambda knobs: [cell], (), checks=JUDGED)
        options = {"seed": "7", "repeats": str(repeats), "seconds": str(seconds), "warmup": "1.1", "cooldown": "0.2"}
        ended = runner.Ended()
        knobs = resolve({**options, "scale": "1"}, {}, quick=True)
        runner.run({"planted": [experiment]}, knobs, tmp_path, False, Listener(Notes()), ended)
        assert ended.failed == {}
        assert [row.repeat for row in ended.rows] == list(range(repeats))
        return ended.rows

    yield made
    stand.prepare()


def poolers(scene: Scene) -> list[int]:
    """All processes of the pooler."""
    return process.family(*scene.opened.roots().values())


def ticks_s(scene: Scene) -> tuple[float, float]:
    """CPU seconds of the pooler and of PostgreSQL as another reader of the kernel's clock ticks sees them."""

    def spent(pids: list[int]) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return sum(one.user + one.system for one in times)

    assert scene.stand.postmaster_pid is not None
    postmaster = psutil.Process(scene.stand.postmaster_pid)
    reaped = postmaster.cpu_times().children_user + postmaster.cpu_times().children_system
    backends = [one.pid for one in postmaster.children()]
    return spent(poolers(scene)), spent([postmaster.pid, *backends]) + reaped


@dataclass(frozen=True)
class Counting(Beside):
    """Notes what PostgreSQL has counted before the load and after it, when all backends have ended."""

    counted: list[int] = field(default_factory=list, compare=False)

    def run(self, scene: Scene) -> Outcome:
        """The load between two counts."""
        self.count(scene.stand)
        outcome = super().run(scene)
        scene.meter.end()  # makes the backends of the pooler end
        self.count(scene.stand)
        return outcome

    def count(self, stand: Stand) -> None:
        """Without what sessions do at their start."""
        sql = "select xact_commit - sessions from pg_stat_database where datname = current_database()"
        self.counted.append(int(stand.sql(sql)))

    def judge(self, row: Row) -> None:
        """The kit's count is within 1 % of PostgreSQL's; those of the interval are some of all."""
        assert row.invalid == ()
        assert row.figures["sent_in_all"] == pytest.approx(self.counted[1] - self.counted[0], rel=0.01)
        assert 0 < row.figures["transactions"] < row.figures["sent_in_all"]


@dataclass(frozen=True)
class Reading(Counting):
    """Reads clock ticks too, at both ends of the interval; the load stands still there, so that nothing is between."""

    ticks: list[tuple[float, float]] = field(default_factory=list, compare=False)

    @contextmanager
    def outside(self, scene: Scene) -> Iterator[None]:
        """Two readings, and the load goes on after both."""
        self.freeze(scene)
        self.ticks.append(ticks_s(scene))
        yield
        self.ticks.append(ticks_s(scene))
        self.send(signal.SIGCONT)

    @contextmanager
    def inside(self, scene: Scene) -> Iterator[None]:
        """The load goes on between."""
        self.send(signal.SIGCONT)
        yield
        self.freeze(scene)

    def send(self, number: signal.Signals) -> None:
        """To what makes the load."""
        for pid in self.programs:
            os.kill(pid, number)

    def freeze(self, scene: Scene) -> None:
        """Stops the load and waits until the pooler has nothing left to do."""
        self.send(signal.SIGSTOP)
        before = -1
        while (now := process.total(process.cpu_ns, *poolers(scene))) > before + STILL_NS:
            before = now
            time.sleep(0.1)


def test_figures_agree_with_independent_readings(make: Make) -> None:
    """Transactions are within 1 % of what PostgreSQL counted, CPU times within 5 % of the kernel's clock ticks."""
    load = Reading(PERSISTENT)
    (row,) = make(load, seconds=3)
    load.judge(row)
    pooler = sum(spent for name, spent in row.cpu_s.items() if name.startswith("pooler/"))
    by_ticks, of_postgres = (after - before for before, after in zip(*load.ticks, strict=True))
    assert pooler == pytest.approx(by_ticks, rel=0.05, abs=TICKS_S)
    assert row.cpu_s["postgres"] == pytest.approx(of_postgres, rel=0.05, abs=TICKS_S)
    assert pooler > 5 * TICKS_S
    assert row.figures["cpu_us_per_tx"] == pytest.approx(pooler / row.figures["transactions"] * 1e6)


def test_transactions_of_sessions_that_come_and_go_agree(make: Make) -> None:
    """A connection for each transaction is no transaction more."""
    load = Counting(CHURN)
    (row,) = make(load, seconds=1)
    load.judge(row)


def stopping(seconds: float) -> Callable[[Scene], None]:
    """Lets the pooler stand still for that long."""

    def stop(scene: Scene) -> None:
        pids = poolers(scene)
        send(pids, signal.SIGSTOP)
        threading.Timer(seconds, send, [pids, signal.SIGCONT]).start()

    def send(pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            os.kill(pid, number)

    return stop


@pytest.mark.parametrize("load", [SCHEDULED, PERSISTENT], ids=["open", "closed"])
@pytest.mark.parametrize("at", [0.2, 0.9], ids=["inside", "past the end"])
def test_a_pooler_that_stands_still_is_caught(make: Make, load: PgbenchLoad, at: float) -> None:
    """With and without a rate; one that goes on only when the interval is over leaves its trace in the cool-down."""
    (row,) = make(Trouble(load, act=stopping(0.8 if at < 0.5 else 1.5), at=at))
    (stall,) = [reason for reason in row.invalid if reason.startswith("stall:")]
    since = re.search(r"from second ([\d.]+) on", stall)
    assert since
    assert float(since[1]) == pytest.approx(1.5 * at, abs=0.3)


def test_a_run_slowed_in_its_middle_is_left_out(make: Make) -> None:
    """A pooler that stands still in one run of three: that run is invalid, and left out of the median."""
    rows = make(Trouble(SCHEDULED, act=stopping(0.9), of_run=1), repeats=3)
    assert [row.invalid for row in (rows[0], rows[2])] == [(), ()]
    assert {reason.partition(":")[0] for reason in rows[1].invalid} >= {"stall", "steady"}
    (group,) = gathered(rows)
    assert group.counted == (rows[0], rows[2])


def test_a_database_killed_in_the_middle_is_reported(make: Make) -> None:
    """The run says so and is left out of the median; the next one finds a new server and counts."""

    def kill(scene: Scene) -> None:
        assert scene.stand.postmaster_pid is not None
        os.kill(scene.stand.postmaster_pid, signal.SIGKILL)

    killed, whole = make(Trouble(SCHEDULED, act=kill), repeats=2)
    assert killed.error or "alive: PostgreSQL ended or restarted" in killed.invalid
    assert (whole.error, whole.invalid) == ("", ())
    (group,) = gathered([killed, whole])
    assert group.counted == (whole,)
