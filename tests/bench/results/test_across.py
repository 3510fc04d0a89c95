"""Several runs side by side: nothing is refused, but what is not alike is said."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pgshoal.bench.results import report, terminal
from pgshoal.bench.results.across import differences, names, tables
from pgshoal.bench.results.chapters import Chapter, Part, Run, read
from pgshoal.bench.results.combine import gathered
from tests.bench.results.planted import declarations, plant


@pytest.fixture(scope="module")
def runs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The planted folder, and one on a machine twice as fast with twice as many cores."""
    other = tmp_path_factory.mktemp("other") / "faster"
    plant(other, speed=2.0)
    return [run, read(other, declarations())]


def test_what_is_not_alike_is_said(runs: list[Run]) -> None:
    """The machine's cores differ, and nothing else."""
    assert list(map(str, differences(runs))) == ["machine.cores: 2 / 4"]


def test_medians_stand_side_by_side(runs: list[Run]) -> None:
    """Both medians and their ratio, figure by figure."""
    by_title = dict(tables(runs))
    scaling = by_title["Processes at the same total budget"]
    assert scaling.headings == ("target", "figure", "2026-11-30-200000", "faster", "ratio")
    assert ("pgshoal x4, 256 clients", "transactions/s", "69,600", "139,200", "2.00") in scaling.lines
    assert any(scaling.lines[at][0] == "pgbouncer x4, 256 clients" for at in scaling.doubtful)
    assert ("pgshoal", "units/s", "3,289", "3,289", "1.00") in by_title["A connection for each query"].lines


def test_what_is_more_than_noise_stands_out(runs: list[Run]) -> None:
    """Repeats tell how far figures scatter: twice the rate is news, the same samples are none."""
    by_title = dict(tables(runs))
    scaling = by_title["Processes at the same total budget"]
    assert {scaling.lines[at][1] for at in scaling.notable} >= {"transactions/s", "p99, ms"}
    assert not scaling.notable & scaling.doubtful
    assert not by_title["A connection for each query"].notable


def test_single_runs_are_no_news(runs: list[Run]) -> None:
    """Without repeats nobody knows what scatters."""
    assert dict(tables(runs))["TLS on both sides"].notable == frozenset()


def test_what_one_run_lacks_is_left_out(runs: list[Run]) -> None:
    """An experiment of one folder alone has nothing beside it."""
    alone = Run(runs[1].folder, runs[1].facts, runs[1].chapters[:1])
    assert [title for title, _ in tables([runs[0], alone])] == ["A connection for each query"]


def test_an_experiment_without_common_cells_has_no_table(runs: list[Run]) -> None:
    """An empty one would only ask why."""
    (part,) = runs[1].chapters[0].parts
    strange = [gathered([replace(group.first, key="other")])[0] for group in part.groups[:1]]
    other = Run(runs[1].folder, {}, [Chapter(part.experiment.name, [Part(part.experiment, strange)])])
    assert list(tables([runs[0], other])) == []


def test_names_of_folders_are_not_broken(runs: list[Run]) -> None:
    """However narrow the terminal is."""
    out = StringIO()
    console = Console(file=out, width=40)
    for title, table in tables(runs):
        console.print(terminal.of_table(title, table))
    assert "2026-11-30-200000" in out.getvalue()


def test_folders_of_one_name_are_told_apart(runs: list[Run]) -> None:
    """By letters."""
    assert names([runs[0], runs[0], runs[1]]) == ["A 2026-11-30-200000", "B 2026-11-30-200000", "faster"]


def test_the_command_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Differences and ratios in the terminal, and in a page in the last folder."""
    folders = [tmp_path / "before", tmp_path / "after"]
    plant(folders[0], names=("burst",))
    plant(folders[1], speed=2.0, names=("burst",))
    assert report.main(folders) == 0
    said = capsys.readouterr().out
    assert "differs: machine.cores: 2 / 4" in said
    text = (folders[1] / "comparison.html").read_text()
    assert "clients" in text
    assert "machine.cores: 2 / 4" in text
