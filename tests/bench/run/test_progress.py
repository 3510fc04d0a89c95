"""What is left is guessed from what was made, and a run is one line."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pgshoal.bench.run import single
from pgshoal.bench.run.matrix import Planned, plan
from pgshoal.bench.run.progress import Screen, TimeLeft, clock, line
from tests.bench.run.scripted import DIRECT, POOLED, cell, experiment, knobs

PAIR = [
    one for name in ("a", "b") for one in plan(experiment(name, cell(name, DIRECT), cell(name, POOLED)), knobs(), 1)
]


def test_time_left_follows_what_runs_took() -> None:
    """An experiment's own runs replace the first guess; the others keep it."""
    left = TimeLeft()
    left.plan(PAIR, 10)
    assert (left.runs, left.seconds) == (4, 40)
    left.ended("a", PAIR[0].cell.key, 2)
    assert left.seconds == 2 + 20
    left.ended("a", PAIR[1].cell.key, 4)
    assert (left.runs, left.seconds) == (2, 20)


def test_what_will_not_be_made_takes_no_time() -> None:
    """A cell that is left out, and an experiment that was given up, are taken off with all their repeats."""
    left = TimeLeft()
    left.plan([*PAIR, *PAIR], 10)
    left.skip("a", PAIR[0].cell.key)
    assert left.runs == 6
    left.skip("b")
    assert (left.runs, left.seconds) == (2, 20)


def test_times_are_shown_as_clocks() -> None:
    """Seconds become minutes and hours."""
    assert [clock(seconds) for seconds in (0.4, 61.6, 3725)] == ["0:00", "1:02", "1:02:05"]


def test_a_run_is_a_line() -> None:
    """It names the cell and its figures, or the error, and says why it does not count."""
    row = single.failed(Planned(cell("a", POOLED, variant={"clients": 8}), 1, 3), "")
    good = type(row)(**{**vars(row), "figures": {"tps": 1234.5}, "invalid": ("samples: 3 (limit 100)",)})
    assert line(good).startswith("a pgshoal clients=8 #2: ")
    assert "1,234" in line(good)
    assert line(good).endswith("; invalid: samples: 3 (limit 100)")
    broken = single.failed(Planned(cell("a", POOLED), 0, 0), "it fell over\nand said much")
    assert line(broken) == "a pgshoal #1: failed: it fell over"


def test_cells_left_out_for_one_reason_are_counted() -> None:
    """The first is named, the others are a number in the end."""
    out = StringIO()
    with Screen(Console(file=out, width=200)) as screen:
        for one in PAIR[:3]:
            screen.left_out(one.cell, "no such program")
        screen.left_out(PAIR[3].cell, "no TLS")
    lines = [line for line in out.getvalue().splitlines() if line.startswith("left out")]
    assert len(lines) == 3
    assert lines[0].endswith(": no such program")
    assert lines[-1] == "left out for the same reason: 2 more cells: no such program"


def test_the_screen_prints_lines_where_there_is_no_terminal() -> None:
    """A log file gets what was left out, each run and what was given up, with brackets as they are."""
    out = StringIO()
    with Screen(Console(file=out, width=200)) as screen:
        screen.planned(PAIR, 1)
        screen.left_out(PAIR[0].cell, "no [such] program")
        screen.begins(PAIR[1])
        screen.ended(single.failed(PAIR[1], "it fell over"))
        screen.failed("b", "the server is gone")
    text = out.getvalue()
    assert "no [such] program" in text
    assert "failed: it fell over" in text
    assert "b was given up: the server is gone" in text
