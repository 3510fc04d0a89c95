"""The log's lines, levels and sinks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pgshoal.worker.log import LINE_MAX, Log, place, socket_prefix

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.(\d{3}) (\S+) \[(\d+)\] (\w+) (.*)")


def make(path: Path, verbose: int = 0, now: float = 1_700_000_000.25) -> Log:
    """A log into a file, with a clock that stands still."""
    log = Log(stderr=False, clock=lambda: now)
    log.set_verbose(verbose)
    log.reopen(str(path))
    return log


def test_a_line_has_time_zone_pid_and_level(tmp_path: Path) -> None:
    """Date, milliseconds, zone, pid in brackets, level, text."""
    path = tmp_path / "log"
    log = make(path)
    log.warning("something")
    log.flush()
    found = LINE.fullmatch(path.read_text().rstrip("\n"))
    assert found is not None
    assert found[1] == "250"
    assert found[3] == str(os.getpid())
    assert found.groups()[3:] == ("WARNING", "something")


def test_levels_above_verbose_are_not_written(tmp_path: Path) -> None:
    """verbose 0 ends at LOG, 1 adds DEBUG, 2 adds NOISE."""
    for verbose, expected in ((0, ["LOG"]), (1, ["LOG", "DEBUG"]), (2, ["LOG", "DEBUG", "NOISE"])):
        path = tmp_path / str(verbose)
        log = make(path, verbose)
        log.log("x")
        log.debug("x")
        log.noise("x")
        log.flush()
        assert [line.split()[4] for line in path.read_text().splitlines()] == expected


def test_nothing_is_written_before_flush(tmp_path: Path) -> None:
    """Lines of one loop turn go out together."""
    path = tmp_path / "log"
    log = make(path)
    log.log("one")
    log.log("two")
    assert path.read_bytes() == b""
    log.flush()
    assert len(path.read_text().splitlines()) == 2


def test_continuation_lines_are_tabbed(tmp_path: Path) -> None:
    """A newline in a text cannot forge a line of its own."""
    path = tmp_path / "log"
    log = make(path)
    log.log("first\n2026-01-01 00:00:00.000 UTC [1] FATAL forged")
    log.flush()
    assert path.read_text().splitlines()[1].startswith("\t2026")


def test_long_lines_are_cut(tmp_path: Path) -> None:
    """No line is longer than 2048 bytes, its newline included."""
    path = tmp_path / "log"
    log = make(path)
    log.log("x" * 5000)
    log.flush()
    assert len(path.read_bytes()) == LINE_MAX


def test_undecodable_names_can_be_logged(tmp_path: Path) -> None:
    """A user name that is no UTF-8 is shown as the console shows it; nothing costs an exception."""
    path = tmp_path / "log"
    log = make(path)
    log.log(b"caf\xc3\xa9 \xff\xfe".decode("utf-8", "surrogateescape") + "\ud800")
    log.flush()
    assert path.read_text().rstrip().endswith(r"café \xff\xfe\ud800")


def test_reopen_follows_a_rotation(tmp_path: Path) -> None:
    """After a rename, reopen writes to a new file of the old name."""
    path = tmp_path / "log"
    log = make(path)
    log.log("old")
    path.rename(tmp_path / "log.1")
    log.reopen(str(path))
    log.log("new")
    log.flush()
    assert "old" in (tmp_path / "log.1").read_text()
    assert "new" in path.read_text()
    assert "old" not in path.read_text()


def test_a_failing_sink_stops_nothing(tmp_path: Path) -> None:
    """A full disk loses lines, not the process."""
    log = make(Path("/dev/full"))
    log.log("lost")
    log.flush()


def test_prefixes_name_side_database_user_and_place() -> None:
    """Placeholders for what is not known; brackets for IPv6; the pid of a Unix peer."""
    assert socket_prefix("C", 18, "app", "alice", place("127.0.0.1", 5)) == "C-0x12: app/alice@127.0.0.1:5 "
    assert socket_prefix("S", 1, "", "", place("::1", 5)) == "S-0x1: (nodb)/(nouser)@[::1]:5 "
    assert place("unix", 6432, 77) == "unix(77):6432"


def test_after_a_fork_lines_have_the_new_process_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the file anew is enough, also within the same second."""
    path = tmp_path / "log"
    log = make(path)
    log.log("before")
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    log.reopen(str(path))
    log.log("after")
    log.flush()
    assert [line.split()[3] == "[4242]" for line in path.read_text().splitlines()] == [False, True]
