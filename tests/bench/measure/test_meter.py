"""One run measured against a real PostgreSQL, with a child process in the place of the pooler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, cast

import psutil
import psycopg
import pytest

from pgshoal.bench.measure.meter import Meter
from pgshoal.bench.model import Outcome
from tests.bench.measure.ground import Ground
from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from pgshoal.bench.targets.opened import Opened

BURN_S = 0.1
#: Spends BURN_S of CPU time for each line it reads, and says so.
WORKER = f"""
import sys, time
for _ in iter(input, "end"):
    end = time.process_time() + {BURN_S}
    while time.process_time() < end: pass
    print("burnt", flush=True)
"""


class Stub:
    """A pooler of one process, and the face of an opened target as far as the meter sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.running = True  # as a fleet is whose worker has ended
        self._in = cast("IO[bytes]", self.process.stdin)
        self._out = cast("IO[bytes]", self.process.stdout)

    def roots(self) -> Mapping[str, int]:
        """Its process."""
        return {"main": self.process.pid}

    @property
    def opened(self) -> Opened:
        """As the meter takes it."""
        return cast("Opened", self)

    def burn(self) -> None:
        """Lets it spend BURN_S."""
        self._in.write(b"go\n")
        self._in.flush()
        self._out.readline()

    def end(self) -> None:
        """Kills it, if it lives, and closes its pipes."""
        self.process.kill()
        self.process.wait()
        self._out.close()
        with suppress(BrokenPipeError):
            self._in.close()


@contextmanager
def stub() -> Iterator[Stub]:
    """A pooler for one test."""
    made = Stub()
    try:
        yield made
    finally:
        made.end()


def test_a_run_is_measured(server: Postgres) -> None:
    """Processors count inside the interval, transactions around it, by the names of rows."""
    with stub() as pooler, server.connect("app") as client:
        client.prepare_threshold = None  # to prepare a statement is a transaction more
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        pooler.burn()
        client.execute("select 1")
        with meter.interval():
            pooler.burn()
            for _ in range(200):
                client.execute("select 1")
        pooler.burn()
        client.execute("select 1")
        meter.end()
        meter.end()
        measured = meter.measured(Outcome({}, transactions=200, sent_in_all=202))
    figures = measured.figures
    assert measured.cpu_s["pooler/0"] == pytest.approx(BURN_S, rel=0.25)
    assert figures["cpu_us_per_tx"] == measured.cpu_s["pooler/0"] * 1e6 / 200
    assert figures["pooler_cores"] == measured.cpu_s["pooler/0"] / figures["seconds"]
    assert (figures["commits"], figures["sent_in_all"], figures["transactions"]) == (202, 202, 200)
    assert (figures["pooler_ended"], figures["postgres_ended"]) == (0, 0)
    assert figures["backends_max"] == 1
    assert set(measured.cpu_s) == {"pooler/0", "postgres", "load"}
    assert set(measured.series) == {"at_s", "backends", "backends_active"}
    for name in ("postgres_cores", "load_cores", "postgres_rss_mb", "pooler_rss_mb", "machine_cores"):
        assert figures[name] > 0, name
    for name in ("machine_idle", "steal", "voluntary_switches", "involuntary_switches", "blocks_read", "blocks_hit"):
        assert figures[name] >= 0, name


def test_what_comes_and_goes_is_counted(server: Postgres) -> None:
    """The CPU of a backend that ended inside the interval is PostgreSQL's, that of a generator that ended is load."""
    with stub() as pooler, stub() as generator:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        with meter.interval():
            meter.generator(generator.process.pid)
            with server.connect("app") as client:
                busy = "do $$ declare e timestamptz = clock_timestamp() + interval '0.2 s';"
                client.execute(f"{busy} begin while clock_timestamp() < e loop end loop; end $$".encode())
                client.execute("begin")
                spent = backend_cpu_s(client)
            for _ in range(3):
                generator.burn()
            generator.end()
            own = os.times()
        meter.end()
    measured = meter.measured()
    assert measured.cpu_s["postgres"] >= spent - 0.02
    assert measured.cpu_s["load"] >= 3 * BURN_S - 0.02
    assert own.children_user >= 3 * BURN_S - 0.02
    assert "transactions" not in measured.figures


def backend_cpu_s(client: psycopg.Connection[tuple[object, ...]]) -> float:
    """User and system time of the backend, as another reader of the kernel's files sees it."""
    times = psutil.Process(client.info.backend_pid).cpu_times()
    return float(times.user + times.system)


def test_there_is_one_interval(server: Postgres) -> None:
    """A second one would mix two loads in one row."""
    with stub() as pooler:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        with meter.interval():
            pass
        with pytest.raises(RuntimeError, match="one load interval"), meter.interval():
            pass
        meter.end()


def test_a_load_that_fails_keeps_its_own_error(server: Postgres) -> None:
    """The interval is closed on the way out, and the whole run is known still."""
    with stub() as pooler:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        with pytest.raises(OSError, match="no route"), meter.interval():
            raise OSError("no route")
        meter.end()
        assert meter.measured().figures["pooler_ended"] == 0


def test_a_pooler_process_that_ends_is_noticed(server: Postgres) -> None:
    """It has no CPU figure, and the run says that one ended."""
    with stub() as pooler:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        with meter.interval():
            pooler.end()
        meter.end()
    measured = meter.measured()
    assert measured.figures["pooler_ended"] == 1
    assert "pooler/0" not in measured.cpu_s


def test_what_else_a_target_needs_may_end_too(server: Postgres) -> None:
    """A balancer is none of the pooler's processes, but without it the target does not run."""
    with stub() as pooler:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        pooler.running = False
        meter.end()
    assert meter.measured().figures["pooler_ended"] == 1


def crash(server: Postgres) -> None:
    """Kills a backend, which makes PostgreSQL start anew, and waits until it has."""
    client = server.connect("app")
    os.kill(client.info.backend_pid, signal.SIGKILL)
    with pytest.raises(psycopg.Error):
        client.execute("select 1")
    client.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(psycopg.OperationalError), server.connect("app"):
            return
        time.sleep(0.02)
    raise TimeoutError(server.log_text()[-500:])


@pytest.mark.parametrize("fate", [Postgres.stop, crash])
def test_a_database_that_ends_or_crashes_is_noticed(server: Postgres, fate: Callable[[Postgres], None]) -> None:
    """Neither the end of PostgreSQL nor its new start after a crash raises anything here; the run says it.

    CPU times are gone with a server: there are none, rather than negative ones.
    """
    with stub() as pooler:
        meter = Meter(Ground(server).stand, pooler.opened)
        meter.begin()
        with meter.interval():
            pooler.burn()
            fate(server)
        meter.end()
    measured = meter.measured(Outcome({}, transactions=9))
    assert measured.figures["postgres_ended"] == 1
    assert not measured.figures.keys() & {"commits", "cpu_us_per_tx", "postgres_cores", "pooler_cores", "load_cores"}
    assert measured.cpu_s == {}
    if fate is Postgres.stop:
        server.start()
