"""The bench from its command line to its report, on real servers, in small."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from pgshoal.bench.results.book import Book

SPREAD = True
START_LIMIT_S = 60


def command(engine: str, results: Path, *more: str) -> list[str]:
    """A run of `connect` with few connections."""
    sizes = ("--quick", "--units", "40", "--targets", "direct,pgshoal", "--engine", engine, "--results", str(results))
    return [sys.executable, "-m", "pgshoal", "bench", "connect", *sizes, *more]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where all servers of a bench keep their files; their account may enter."""
    folder = Path(tempfile.mkdtemp(prefix="pgshoal-bench-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def environment(scratch: Path) -> Mapping[str, str]:
    """Ours without what would set a knob."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "RESULTS", "UNITS"))}
    return {**plain, "TMPDIR": str(scratch)}


def left_behind(scratch: Path) -> list[str]:
    """Files that are still there, and processes that were started from there."""
    found = [str(path) for path in scratch.iterdir()]
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = one.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [text] if str(scratch) in text else []
    return found


def only(folder: Path) -> Path:
    """The one folder of a run in there."""
    (found,) = folder.iterdir()
    return found


def test_a_run_leaves_rows_and_a_report(engine: str, tmp_path: Path, scratch: Path) -> None:
    """All connections are counted, none fails, the server allows what the experiment says, and nothing stays behind."""
    done = subprocess.run(
        command(engine, tmp_path), env=environment(scratch), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = only(tmp_path)
    rows = {row.kind: row for row in Book(folder).rows()}
    assert set(rows) == {"direct", "pgshoal"}
    for row in rows.values():
        assert (row.figures["succeeded"], row.figures["failed"], row.error) == (40, 0, "")
    assert rows["direct"].order < rows["pgshoal"].order
    assert f"report: {folder / 'report.html'}" in done.stdout
    assert (folder / "exp_a_latencies.csv").exists()
    assert "published / here" in (folder / "report.html").read_text()
    facts = json.loads((folder / "run.json").read_text())
    assert facts["versions"]["server"]
    assert set(facts["digests"]) == {row.key for row in rows.values()}
    assert left_behind(scratch) == []


def test_control_c_stops_it_cleanly(engine: str, tmp_path: Path, scratch: Path) -> None:
    """What was measured is kept and reported, all servers are gone, and the folder refuses another run."""
    argv = command(engine, tmp_path, "--repeats", "1000")
    with subprocess.Popen(
        argv, env=environment(scratch), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as bench:
        deadline = time.monotonic() + START_LIMIT_S
        while not list(tmp_path.glob("*/rows.jsonl")):
            assert bench.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        out, _ = bench.communicate(timeout=60)
    assert bench.returncode == 130, out
    assert "Interrupted" in out
    assert left_behind(scratch) == []
    folder = only(tmp_path)
    assert (folder / "report.html").exists()
    assert {row.error for row in Book(folder).rows()} == {""}
    again = subprocess.run(
        [*argv, "--units", "41", "--resume", str(folder)],
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == 2
    assert "units was 40, is 41" in again.stdout
