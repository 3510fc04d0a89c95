"""The exit status of a bench, its folder, and its report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Experiment, Metric, Row
from pgshoal.bench.results.book import Book
from pgshoal.bench.run import session, single
from pgshoal.bench.run.matrix import Planned
from pgshoal.bench.run.runner import Ended
from pgshoal.bench.run.session import Request, measure
from tests.bench.run.scripted import POOLED, cell

BOUND = Metric("bytes_per_client", "bytes", {"pgshoal": 2000.0}, absolute=True)


class Bench:
    """Stands for the runner: writes the rows a test gives and ends as it says."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.end = Ended()
        self.error: BaseException | None = None
        self.calls: list[tuple[Knobs, Path, bool]] = []

    def run(
        self,
        declared: Mapping[str, Sequence[Experiment]],
        knobs: Knobs,
        folder: Path,
        resume: bool,
        tell: object,
        ended: Ended,
    ) -> None:
        """As `runner.run`."""
        self.calls.append((knobs, folder, resume))
        book = Book(folder)
        facts = {"seed": knobs.int("seed"), "quick": knobs.quick, "knobs": knobs.as_dict()}
        book.begin({**facts, "experiments": list(declared)})
        for row in self.rows:
            book.add(row)
        if self.error is not None:
            raise self.error
        vars(ended).update(vars(self.end))

    @property
    def reports(self) -> int:
        """How many of the folders have a report."""
        return sum((folder / "report.html").exists() for _, folder, _ in self.calls)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """A bench of one experiment in a folder of its own."""
    made = Bench()
    made.rows = [single.failed(Planned(cell("one", POOLED), 0, 0), "")]
    declared = Experiment("one", "One", "what is it", lambda knobs: (), (BOUND,), knobs=("units",))
    monkeypatch.setattr(session, "EXPERIMENTS", {"one": (declared,)})
    monkeypatch.setattr(session, "run", made.run)
    folders = (tmp_path / f"run{number}" for number in range(9))
    monkeypatch.setattr(session, "new_folder", lambda results: next(folders))
    return made


def ask(strict: bool = False, resume: Path | None = None, **options: str) -> int:
    """The exit status of a quick run."""
    return measure(Request(("one",), options, True, strict, resume))


def test_a_good_run_is_zero_and_has_a_report(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of the output says where it is."""
    assert ask() == 0
    ((_, folder, resumed),) = bench.calls
    assert not resumed
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert (folder / "report.html").exists()


def test_a_failure_is_one_and_still_reported(bench: Bench) -> None:
    """Rows with errors, experiments given up and a stand that breaks down are all failures."""
    for end in (
        Ended([single.failed(Planned(cell("one", POOLED), 0, 0), "it fell over")]),
        Ended(failed={"one": "no"}),
    ):
        bench.end = end
        assert ask() == 1
    bench.end = Ended()
    for error in (RuntimeError("no server"), OSError("no room")):
        bench.error = error
        assert ask() == 1
    assert bench.reports == 4


def test_what_is_left_out_is_no_failure(bench: Bench) -> None:
    """A machine without HAProxy can still make a good run."""
    bench.end = Ended(left_out={"one|pgshoal|": "no HAProxy"})
    assert ask() == 0


def test_an_interrupt_is_130_and_reported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured is worth a report."""
    bench.error = KeyboardInterrupt()
    assert ask() == 130
    assert bench.reports == 1
    assert "Interrupted" in capsys.readouterr().out


def test_a_reader_that_goes_does_not_cost_the_report(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert ask() == 0
    assert bench.reports == 1


def test_nothing_measured_is_nothing_reported(bench: Bench) -> None:
    """An interrupt before the first row ends quietly, and a run that had everything left out is no failure."""
    bench.rows, bench.error = [], KeyboardInterrupt()
    assert ask() == 130
    bench.error = None
    assert ask() == 0
    assert bench.reports == 0


def test_a_report_that_fails_is_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows stay."""

    def broken(run: object) -> Path:
        raise OSError("no room")

    monkeypatch.setattr(session, "files_of", broken)
    assert ask() == 1
    assert len(Book(bench.calls[0][1]).rows()) == 1


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Two runs that begin in the same second do not mix."""
    first = session.new_folder(tmp_path)
    assert first.parent == tmp_path
    first.mkdir()
    assert session.new_folder(tmp_path) != first


def test_a_missed_target_is_a_failure_only_when_strict(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """The bound is judged from the folder's rows, and the miss is named."""
    (plain,) = bench.rows
    bench.rows = [type(plain)(**{**vars(plain), "figures": {"bytes_per_client": 2500.0}})]
    assert ask() == 0
    assert ask(strict=True) == 1
    assert "missed: one" in capsys.readouterr().out
    bench.rows = [type(plain)(**{**vars(plain), "figures": {"bytes_per_client": 1500.0}})]
    assert ask(strict=True) == 0


def test_a_bad_value_stops_before_anything_starts(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """The option is named."""
    assert ask(seconds="soon") == 2
    assert "--seconds" in capsys.readouterr().out
    assert bench.calls == []


def test_the_seed_is_drawn_recorded_and_taken_up_again(bench: Bench) -> None:
    """Two runs have different seeds; a resumed one has the folder's."""
    assert ask() == ask() == 0
    (one, folder, _), (other, *_) = bench.calls
    assert one.int("seed") != other.int("seed")
    assert ask(resume=folder) == 0
    knobs, where, resumed = bench.calls[-1]
    assert (knobs.int("seed"), where, resumed) == (one.int("seed"), folder, True)


def test_another_run_cannot_be_resumed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """The difference is named and nothing is started."""
    assert ask(units="50", seed="7") == 0
    folder = bench.calls[0][1]
    before = json.loads((folder / "run.json").read_text())
    assert ask(resume=folder, units="60", seed="8") == 2
    said = capsys.readouterr().out
    assert "units was 50, is 60" in said
    assert "seed was 7, is 8" in said
    assert len(bench.calls) == 1
    assert json.loads((folder / "run.json").read_text()) == before
