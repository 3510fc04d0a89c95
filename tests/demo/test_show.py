"""The demonstration from beginning to end, as a user starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgshoal.demo import chart, show
from pgshoal.demo.compare import Load, Outcome
from pgshoal.demo.pgbench import Report

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

LOAD = Load("persistent", ("-S",))


def outcome(way: str, tps: float) -> Outcome:
    """One result with the given rate."""
    return Outcome(LOAD, way, Report(tps, 100, 0, 1.5, 0.1, 0.0), 8, 9)


def start(arguments: list[str]) -> subprocess.Popen[str]:
    """Starts the demo by a call of its main, output caught."""
    code = (
        f"import sys; from pathlib import Path; from pgshoal.demo import main; sys.exit(main({', '.join(arguments)}))"
    )
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_the_table_shows_the_ratio() -> None:
    """The pooled line carries the quotient of the two rates, the direct line none."""
    table = show.table([outcome("direct", 1000), outcome("pooled", 2500)], "title")
    assert [list(column.cells) for column in table.columns[1:4]] == [
        ["direct", "pooled"],
        ["1,000", "2,500"],
        ["", "2.50"],
    ]


def test_the_chart_is_written_twice(tmp_path: Path) -> None:
    """The chart exists as a vector and as a bitmap."""
    files = chart.draw([outcome("direct", 1000), outcome("pooled", 2500)], tmp_path / "new", "title")
    assert {f.suffix: f.read_bytes()[:4] for f in files} == {".svg": b"<?xm", ".png": b"\x89PNG"}


def test_the_demo_ends_by_itself(engine: str, tmp_path: Path) -> None:
    """It compares, prints the table and the psql line, writes the charts and ends with status 0."""
    child = start([f"results_dir=Path({str(tmp_path)!r})", f"engine={engine!r}", "seconds=1"])
    out, _ = child.communicate(timeout=100)
    assert child.returncode == 0, out
    assert re.search(r"reconnecting\s+pooled", out)
    assert "psql 'host=127.0.0.1 port=" in out
    assert {p.name for p in tmp_path.iterdir()} == {"comparison.svg", "comparison.png"}


@pytest.mark.parametrize("wanted_end", [signal.SIGINT, signal.SIGTERM])
def test_a_kept_demo_stops_cleanly(wanted_end: signal.Signals, tmp_path: Path) -> None:
    """With keep it stays usable until it is told to end, and then leaves no process and no file behind."""
    child = start([f"results_dir=Path({str(tmp_path)!r})", "engine='python'", "seconds=1", "keep=True"])
    assert child.stdout is not None
    seen = ""
    while "console: SHOW POOLS" not in seen:
        line = child.stdout.readline()
        assert line, seen
        seen += line
    port = re.findall(r"port=(\d+) user=postgres dbname=postgres", seen)[0]
    psql = ["psql", f"host=127.0.0.1 port={port} user=postgres dbname=postgres", "-XAtc", "select 40 + 2"]
    assert subprocess.run(psql, capture_output=True, text=True, check=True).stdout.strip() == "42"
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(children) == 2
    child.send_signal(wanted_end)
    assert child.wait(30) == 0
    child.stdout.close()
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
