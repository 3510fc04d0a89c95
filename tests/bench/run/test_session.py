"""The exit status of a bench, its folder, and its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        self.end: Ended | BaseException = Ended()
        self.calls: list[tuple[Knobs, Path, bool]] = []
        self.reports: list[Path] = []

    def run(
        self,
        names: Sequence[str],
        experiments: Sequence[Experiment],
        knobs: Knobs,
        folder: Path,
        resume: bool,
        tell: Any,
    ) -> Ended:
        """As `runner.run`."""
        self.calls.append((knobs, folder, resume))
        book = Book(folder)
        book.begin({"seed": knobs.int("seed"), "knobs": knobs.as_dict(), "experiments": list(names)})
        for row in self.rows:
            book.add(row)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def report(self, folder: Path) -> Path:
        """As `report.write`."""
        self.reports.append(folder)
        return folder / "report.html"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """A bench of one experiment in a folder of its own."""
    made = Bench()
    made.rows = [single.failed(Planned(cell("one", POOLED), 0, 0), "")]
    declared = Experiment("one", "", "", lambda knobs: (), (BOUND,))
    monkeypatch.setattr(session, "EXPERIMENTS", {"one": (declared,)})
    monkeypatch.setattr(session, "run", made.run)
    monkeypatch.setattr(session.report, "write", made.report)
    monkeypatch.setenv("RESULTS_DIR", str(tmp_path))
    return made


def ask(strict: bool = False, resume: Path | None = None, **options: str) -> int:
    """The exit status of a quick run."""
    return measure(Request(("one",), options, True, strict, resume))


def test_a_good_run_is_zero_and_has_a_report(bench: Bench, tmp_path: Path) -> None:
    """The folder is a new one where the environment says."""
    assert ask() == 0
    ((_, folder, resumed),) = bench.calls
    assert folder.parent == tmp_path
    assert not resumed
    assert bench.reports == [folder]


def test_a_failure_is_one_and_still_reported(bench: Bench) -> None:
    """Rows with errors, experiments given up and a stand that breaks down are all failures."""
    broken = single.failed(Planned(cell("one", POOLED), 0, 0), "it fell over")
    for end in (Ended([broken]), Ended(failed={"one": "no server"}), RuntimeError("no server"), OSError("no room")):
        bench.end = end
        assert ask() == 1
    assert len(bench.reports) == 4


def test_what_is_left_out_is_no_failure(bench: Bench) -> None:
    """A machine without HAProxy can still make a good run."""
    bench.end = Ended(left_out={"one|pgshoal|": "no HAProxy"})
    assert ask() == 0


def test_an_interrupt_is_130_and_reported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured is worth a report."""
    bench.end = KeyboardInterrupt()
    assert ask() == 130
    assert len(bench.reports) == 1
    assert "Interrupted" in capsys.readouterr().out


def test_nothing_measured_is_nothing_reported(bench: Bench) -> None:
    """An interrupt before the first row ends quietly."""
    bench.rows, bench.end = [], KeyboardInterrupt()
    assert ask() == 130
    assert bench.reports == []


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
    assert ask(seconds="soon") == 1
    assert "--seconds" in capsys.readouterr().out
    assert bench.calls == []


def test_the_seed_is_drawn_recorded_and_taken_up_again(bench: Bench, tmp_path: Path) -> None:
    """Two runs have different seeds; a resumed one has the folder's."""
    assert ask() == ask(results=str(tmp_path / "other")) == 0
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
    assert ask(resume=folder, units="60", seed="8") == 1
    said = capsys.readouterr().out
    assert "units was 50, is 60" in said
    assert "seed was 7, is 8" in said
    assert len(bench.calls) == 1
    assert json.loads((folder / "run.json").read_text()) == before
