"""Facts about the machine, and how busy it was between two moments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pgshoal.bench.measure import machine
from pgshoal.bench.measure.machine import Times


def test_shares_of_the_machine() -> None:
    """Idle and stolen ticks are shares of all ticks that passed."""
    assert Times(1100, 440, 5).shares_since(Times(900, 400, 3)) == {"machine_idle": 0.2, "steal": 0.01}


def test_no_ticks_no_shares() -> None:
    """Two looks within one tick tell nothing, and idle time that the kernel takes back is none."""
    assert Times(900, 400, 3).shares_since(Times(900, 400, 3)) == {}
    assert Times(1000, 399, 3).shares_since(Times(900, 400, 3)) == {"machine_idle": 0.0, "steal": 0.0}


def test_guests_are_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last two fields are in user time already; waiting for a disk is idle time."""
    (tmp_path / "stat").write_text("cpu  100 10 50 600 40 5 15 30 80 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert Times.now() == Times(total=850, idle=640, steal=30)


def test_facts_of_this_machine() -> None:
    """Each fact is there, and the processors are those that we may use."""
    found = machine.facts()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["kernel"] == os.uname().release
    assert all(found[name] for name in ("system", "cpu", "memory MB", "governor"))


def test_a_container_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota is so many processors; `max`, or no such file, is no limit."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.cpu_limit() is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.facts()["cpu limit"] == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_limit() is None


def test_programs_tell_their_versions(tmp_path: Path) -> None:
    """Each program is asked itself; one that does not run is unknown, not an error."""
    broken = tmp_path / "broken"
    found = machine.versions({"interpreter": Path(sys.executable), "broken": broken})
    assert found["interpreter"] == f"Python {found['python'].split()[1]}"
    assert found["broken"] == "unknown"
    assert found["pgshoal"]


def test_a_digest_tells_configurations_apart() -> None:
    """Alike for alike texts, and does not show them."""
    assert machine.digest("pool_mode = session") == machine.digest("pool_mode = session")
    assert machine.digest("pool_mode = session") != machine.digest("pool_mode = statement")
    assert "session" not in machine.digest("pool_mode = session")
