"""The table of an experiment: medians, variation, valid runs of all, and reasons beside it."""

from __future__ import annotations

import io

from rich.console import Console

from pgshoal.bench.results import page, terminal
from pgshoal.bench.results.chapters import Run
from pgshoal.bench.results.tables import Table, complaints, first_line, medians, shown
from tests.bench.results.planted import BURST, CONNECT, PGSHOAL, SCALING, cell, run_of


def test_medians_of_the_planted_folder(run: Run) -> None:
    """The figures that the experiment names, in its order, with a count of valid runs."""
    groups = run.chapters[0].parts[0].groups
    table = medians(CONNECT, groups)
    assert table.headings == ("target", "units/s", "p50, ms", "p99, ms", "CV", "valid runs")
    assert [line[:2] for line in table.lines] == [("direct", "1,590"), ("pgbouncer", "3,050"), ("pgshoal", "3,289")]
    assert {line[-2:] for line in table.lines} == {("1.0 %", "3 of 3")}


def test_doubtful_lines_are_marked(run: Run) -> None:
    """Only the cell of which no run is valid."""
    table = medians(SCALING, run.chapters[2].parts[0].groups)
    assert [table.lines[at][:2] for at in table.doubtful] == [("pgbouncer x4", "256 clients")]
    assert [line[-1] for line in table.lines if line[-1] != "3 of 3"] == ["0 of 3", "2 of 3"]


def test_figures_that_nobody_has_get_no_column() -> None:
    """A column of dashes helps nobody."""
    assert list(shown(BURST, [cell(run_of("burst", PGSHOAL))])) == []


def test_reasons_are_told_once_for_each_cell(run: Run) -> None:
    """Runs with the same reason share a line; the reason stands as the check gave it."""
    assert complaints(run.chapters[2].parts[0].groups) == [
        "pgbouncer x4, 256 clients, runs 1, 2 and 3: machine-free: the machine was 1.2% idle (limit 5%)",
        "pgshoal x2, 256 clients, run 2: steady: tps 20,764 is 60% from the median 51,910 (limit 25%)",
    ]


def test_long_errors_are_cut() -> None:
    """A log is no line of a table."""
    assert first_line("it fell over\nits log: ...") == "it fell over"
    assert len(first_line("x" * 1000)) == 300
    assert first_line("\n") == "failed"


def test_the_terminal_shows_the_same(run: Run) -> None:
    """Title, medians, valid runs."""
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(terminal.of_groups(CONNECT, run.chapters[0].parts[0].groups))
    text = captured.get()
    assert "A connection for each query" in text
    assert "3,289" in text
    assert "3 of 3" in text


def test_marked_lines_look_marked() -> None:
    """Doubtful lines are dim and notable ones bold, in the terminal and in the page."""
    table = Table(("target", "tps"), (("a", "1"), ("b", "2"), ("c", "3")), frozenset({0}), 1, frozenset({1}))
    assert [row.style for row in terminal.of_table("title", table).rows] == ["dim", "bold", None]
    html = page.table(table)
    assert '<tr class="doubtful"><td class="text">a' in html
    assert '<tr class="notable"><td class="text">b' in html
    assert '<tr><td class="text">c' in html
