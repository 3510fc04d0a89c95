"""Projections rest on CPU time per transaction, end where PostgreSQL is full, and are held against published tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pgshoal.bench.advice import plan
from pgshoal.bench.advice.tables import S1, S2, alone_with, checks
from pgshoal.bench.model import Row
from pgshoal.bench.results.book import Book
from tests.bench.results.planted import PGSHOAL, run_of


def run(workers: int, cpu_us: float, **figures: float) -> Row:
    """A run of which a transaction cost so much CPU time of the pooler, and 40 µs of PostgreSQL's."""
    row = run_of("scaling", replace(PGSHOAL, processes=workers), clients=64)
    told = {"tps": 10_000.0, "pooler_cores": cpu_us / 100, "postgres_cores": 0.4, "load_cores": 0.1}
    return replace(row, figures={**told, **figures})


def folder(path: Path, *rows: Row) -> Path:
    """A folder with these rows."""
    book = Book(path)
    book.begin({})
    for row in rows:
        book.add(row)
    return path


def test_workers_have_a_core_each(tmp_path: Path) -> None:
    """20 µs make 50,000 a second, whatever the rate was while the parts fought for processors."""
    measured = plan.read(folder(tmp_path, run(1, 20), run(2, 20), run(4, 20)))
    found = {one.workers: one for one in plan.project(measured, 6, 64)}
    assert list(found) == [1, 2, 4, 6]
    assert [one.rate for one in found.values()] == pytest.approx([50_000, 100_000, 200_000, 300_000])
    assert [found[6].postgres, found[6].load] == pytest.approx([12, 3])
    low, high = found[6].interval or (0, 0)
    assert low <= 300_000 <= high


def test_cpu_time_that_grows_with_the_fleet_is_a_loss(tmp_path: Path) -> None:
    """22 instead of 20 µs with two workers go on growing."""
    measured = plan.read(folder(tmp_path, run(1, 20), run(2, 22)))
    assert measured.law.law.sigma == pytest.approx(0.1)
    assert list(plan.project(measured, 4, 64))[-1].rate == pytest.approx(200_000 / 1.3)


def test_the_projection_ends_where_postgres_is_full(tmp_path: Path) -> None:
    """Two processors at 40 µs are 50,000 a second."""
    found = list(plan.project(plan.read(folder(tmp_path, run(1, 30), run(2, 30))), 4, 2))
    assert [one.limit for one in found] == ["pooler", "PostgreSQL", "PostgreSQL"]
    assert found[-1].rate == pytest.approx(50_000)
    assert found[-1].postgres == pytest.approx(2)


def test_what_postgres_allows_scatters_as_its_cpu_time_does(tmp_path: Path) -> None:
    """By 3 % at least, which is 5 % to both sides in nine of ten cases; more where runs lie further apart."""
    calm = plan.read(folder(tmp_path / "calm", run(1, 30), run(2, 30)))
    low, high = list(plan.project(calm, 4, 2))[-1].interval or (0, 0)
    assert (low, high) == pytest.approx((50_000 / 1.0506, 50_000 * 1.0506), rel=1e-3)
    wild = plan.read(folder(tmp_path / "wild", run(1, 30), run(2, 30, postgres_cores=0.6)))
    wide = list(plan.project(wild, 8, 2))[-1].interval or (0, 0)
    assert wide[1] / wide[0] > 2


def test_a_scatter_that_nobody_knows_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run gives PostgreSQL's limit no interval."""
    only = folder(tmp_path, run(1, 20))
    assert [one.interval for one in plan.project(plan.read(only), 4, 1)][-1] is None
    assert plan.main(4, 1, only) == 0
    text = capsys.readouterr().out
    assert "not known" in text
    assert "How PostgreSQL's CPU time of a transaction scatters is not known" in text


def test_one_size_takes_the_published_loss(tmp_path: Path) -> None:
    """And its interval reaches up to no loss at all."""
    measured = plan.read(folder(tmp_path, run(1, 20)))
    found = list(plan.project(measured, 4, 64))[-1]
    assert found.rate == pytest.approx(171_300, rel=0.01)
    low, high = found.interval or (0, 0)
    assert high > 200_000 > found.rate > low


def test_a_postgres_elsewhere_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its CPU time is not known, so it limits nothing."""
    row = run(1, 20)
    figures = {name: value for name, value in row.figures.items() if name != "postgres_cores"}
    assert plan.main(4, 1, folder(tmp_path, replace(row, figures=figures))) == 0
    text = capsys.readouterr().out
    assert "PostgreSQL's CPU time was not measured: its host is taken to be large enough." in text
    assert "Assumed: processors like those measured" in text
    assert "only one number of processes was measured" in text


def test_every_published_size_is_checked() -> None:
    """2, 4 and 8 processes from one, 4 and 8 from two, 16 from one: none of them from itself."""
    found = [(one.table.name, one.source, one.published.processes, one.published.clients) for one in checks()]
    assert found == [
        *(("S1", "1 process", count, 256) for count in (2, 4, 8)),
        *(("S1", "1 and 2 processes", count, 256) for count in (4, 8)),
        ("S2", "1 process, S1's loss", 16, 256),
        *(("S2", "1 process", 16, clients) for clients in (8, 128, 256)),
    ]


def test_the_errors_are_as_documented() -> None:
    """One process and PostgreSQL's share predict eight of them within 3 %; the method's misses are not hidden."""
    errors = {(one.table.name, one.source, one.published.processes, one.published.clients): one for one in checks()}
    assert errors["S1", "1 process", 8, 256].projected == pytest.approx(45_000 / 0.22)
    assert errors["S1", "1 process", 8, 256].error == pytest.approx(-0.025, abs=0.001)
    assert errors["S1", "1 process", 2, 256].error == pytest.approx(0.111, abs=0.001)
    assert errors["S1", "1 and 2 processes", 4, 256].error == pytest.approx(-0.118, abs=0.001)
    assert errors["S2", "1 process", 16, 256].error == pytest.approx(-0.093, abs=0.001)
    assert errors["S2", "1 process", 16, 128].error < -0.5


def test_rates_between_published_numbers_of_clients() -> None:
    """Exact where published, in proportion below the least, constant above the most."""
    alone = [(8, 8_910.0), (64, 87_000.0)]
    assert [alone_with(clients, alone) for clients in (8, 64, 4, 100)] == pytest.approx([8_910, 87_000, 4_455, 87_000])
    assert 8_910 < alone_with(16, alone) < 87_000


def test_without_a_folder_the_newest_run_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that cannot be read, or tells nothing, is passed over."""
    folder(tmp_path / "1", run(1, 20))
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "rows.jsonl").write_text("{}\n")
    assert plan.newest(tmp_path / "nowhere") is None
    monkeypatch.setenv("RESULTS_DIR", str(tmp_path))
    assert plan.main(4, 4, None) == 0
    assert f"Measured in {tmp_path / '1'}" in capsys.readouterr().out


def test_a_folder_that_tells_how_workers_scale_beats_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several numbers of workers beat one, valid runs beat others; which it was is said."""
    monkeypatch.setenv("RESULTS_DIR", str(tmp_path))
    doubtful = [replace(run(count, 20), invalid=("steady: no",)) for count in (1, 2)]
    folder(tmp_path / "2", *doubtful)
    folder(tmp_path / "3", doubtful[0])
    assert plan.main(4, 4, None) == 0
    text = capsys.readouterr().out
    assert f"Measured in {tmp_path / '2'}" in text
    assert "none has several numbers of workers by valid runs alone" in text
    folder(tmp_path / "1", run(1, 20), run(2, 20))
    assert plan.main(4, 4, None) == 0
    text = capsys.readouterr().out
    assert f"Measured in {tmp_path / '1'}" in text
    assert "No folder was named: the newest with several numbers of workers by valid runs is taken." in text


def test_without_any_run_the_tables_are_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The published figures need no machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESULTS_DIR", "nowhere")
    assert plan.main(8, 16, None) == 0
    text = capsys.readouterr().out
    assert "No run to project from" in text
    assert f"{S1.at(8, 256).rate:,.0f}" in text
    assert f"{S2.at(16, 256).rate:,.0f}" in text


def test_a_bad_variable_is_a_mistake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and told apart from a failure."""
    monkeypatch.setenv("UNITS", "abc")
    assert plan.main(8, 16, None) == 2
    assert "UNITS: 'abc' is no whole number" in capsys.readouterr().err


def test_a_folder_without_cpu_times_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So is one that is none."""
    assert plan.main(8, 16, tmp_path) == 1
    folder(tmp_path, replace(run(1, 20), figures={"tps": 5.0}))
    assert plan.main(8, 16, tmp_path) == 1
    errors = capsys.readouterr().err
    assert "a folder of `pgshoal bench` is wanted" in errors
    assert "holds no runs of a pooler whose CPU time was measured" in errors
