"""Readings at two moments become figures; what is missing at one of them is absent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from pgshoal.bench.measure import process
from pgshoal.bench.measure.machine import Times
from pgshoal.bench.measure.reading import Parties, Reading, named

FATHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
FIRST = Reading(10.0, {"load": 1_000_000_000, "pooler/0": 0, "pooler/1": 5}, {"pooler/0": (1, 2)}, Times(100, 40, 1))
LAST = Reading(
    12.0,
    {"load": 2_000_000_000, "postgres": 7, "pooler/0": 500_000_000, "pooler/supervisor": 9},
    {"pooler/0": (11, 4)},
    Times(200, 65, 6),
)


def test_workers_are_numbered_and_a_supervisor_is_not_one_of_them() -> None:
    """A root with children is a supervisor; one without serves itself, as each PgBouncer of a fleet does."""
    with subprocess.Popen([sys.executable, "-c", FATHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as father:
        assert father.stdout is not None
        father.stdout.readline()
        found = named({"main": father.pid, "second": 1 << 22})
        father.communicate(b"\n")
    assert found.pop("pooler/0") not in (father.pid, os.getpid())
    assert found == {"pooler/1": 1 << 22, "pooler/supervisor": father.pid}


def test_figures_between_two_readings() -> None:
    """CPU is counted over the interval, by process; who was not there at both ends is left out."""
    assert LAST.cpu_s_since(FIRST) == {"load": 1.0, "pooler/0": 0.5}
    figures = LAST.figures_since(FIRST)
    assert {name: figures[name] for name in ("seconds", "load_cores", "pooler_cores", "machine_idle", "steal")} == {
        "seconds": 2.0,
        "load_cores": 0.5,
        "pooler_cores": 0.25,
        "machine_idle": 0.25,
        "steal": 0.05,
    }
    assert (figures["voluntary_switches"], figures["involuntary_switches"]) == (10, 2)
    assert "postgres_cores" not in figures


def test_what_others_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's busy time without that of load, pooler and PostgreSQL; not known where PostgreSQL's is not."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    first = replace(FIRST, cpu_ns={**FIRST.cpu_ns, "postgres": 0})
    # Of 8 seconds 30 % were idle or stolen; load used 1 s, PostgreSQL and the pooler 0.5 s each.
    last = replace(LAST, cpu_ns={**LAST.cpu_ns, "postgres": 500_000_000})
    assert last.figures_since(first)["other_cores"] == pytest.approx((8 * 0.7 - 1 - 0.5 - 0.5) / 2)
    assert "other_cores" not in LAST.figures_since(FIRST)


def test_without_a_pooler_there_are_no_figures_of_it() -> None:
    """Direct runs have neither its processors nor its switches."""
    first, last = Reading(1, {"load": 0}, {}, Times(1, 1, 1)), Reading(2, {"load": 5}, {}, Times(2, 1, 1))
    assert set(last.figures_since(first)) == {"seconds", "machine_cores", "machine_idle", "steal", "load_cores"}


def test_a_reading_takes_everybody_in() -> None:
    """Our own process and those told of are load; a process is the pooler's, or PostgreSQL's with its children."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        parties = Parties({"pooler/0": child.pid}, os.getpid(), {child.pid})
        reading = Reading.of(parties)
        assert parties.of_load() == [os.getpid(), child.pid]
        assert child.pid in parties.of_postgres()
        child.communicate(b"\n")
    assert set(reading.cpu_ns) == {"load", "postgres", "pooler/0"}
    assert reading.cpu_ns["postgres"] == pytest.approx(reading.cpu_ns["load"], rel=0.05)
    assert set(Reading.of(parties).cpu_ns) == {"load", "postgres"}


def test_what_reading_takes_is_outside_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read last at the beginning and first at the end, and next to it the pooler's CPU."""
    order: list[str] = []

    def note(owner: object, name: str, answer: object) -> None:
        def noted(*given: object) -> object:
            order.append(name)
            return answer

        monkeypatch.setattr(owner, name, noted)

    note(process, "cpu_with_reaped_ns", 0)
    note(process, "cpu_of", {})
    note(time, "monotonic", 1.0)
    Reading.of(Parties({}, None, ()))
    Reading.of(Parties({}, None, ()), closing=True)
    monkeypatch.undo()
    assert order == ["cpu_with_reaped_ns", "cpu_of", "monotonic", "monotonic", "cpu_of", "cpu_with_reaped_ns"]


def test_the_ended_and_the_absent_are_told_apart() -> None:
    """A PostgreSQL on another machine has no birth to compare; an ended process has none any more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert Parties({"pooler/0": child.pid}, None, ()).births() == {child.pid: None}
    assert "postgres" not in Reading.of(Parties({}, None, ())).cpu_ns
