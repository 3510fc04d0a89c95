"""Advice from planted folders: what the figures ask for, and no change where nothing else is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pgshoal.bench.advice import advise
from pgshoal.bench.advice.bottleneck import Evidence
from pgshoal.bench.advice.usl import fit
from pgshoal.bench.advice.verdict import Advice, limit
from pgshoal.bench.advice.verdict import advise as judge
from pgshoal.bench.model import Row
from pgshoal.bench.results.book import Book
from tests.bench.results.planted import DIRECT, PGSHOAL, run_of


def size(workers: int, rate: float, used: float = 0.97, **more: object) -> Evidence:
    """A fleet on a host of its own whose workers use so much of a core each."""
    seen = Evidence(workers, rate, (used,) * workers, cores=8, postgres=0.2 * workers, postgres_cores=16, idle=0.5)
    return replace(seen, **more)  # type: ignore[arg-type]


def of(*sizes: Evidence) -> Advice:
    """The advice from these."""
    return judge(sizes, fit({seen.workers: (seen.rate,) for seen in sizes}))


def run(workers: int, rate: float, repeat: int = 0, **figures: float) -> Row:
    """A run of the kit's on one machine, its workers full."""
    row = run_of("scaling", replace(PGSHOAL, processes=workers), repeat, clients=256)
    cpu = {f"pooler/{number}": 4.9 for number in range(workers)} | {"pooler/supervisor": 0.1, "postgres": 5.0}
    told = {"tps": rate, "seconds": 5.0, "machine_cores": 16.0, "machine_idle": 0.4, "postgres_cores": 1.0}
    return replace(row, figures={**told, **figures}, cpu_s=cpu, budget=128)


def said(capsys: pytest.CaptureFixture[str], folder: Path, *rows: Row) -> str:
    """What is printed for a folder with these rows."""
    book = Book(folder)
    book.begin({})
    for row in rows:
        book.add(row)
    assert advise.main(folder, 1) == 0
    return capsys.readouterr().out


def test_full_workers_that_scale_get_one_more() -> None:
    """While PostgreSQL has room and the law promises a gain."""
    found = of(size(1, 45_000), size(2, 81_000), size(4, 153_000))
    assert (found.workers, found.finding.where) == (5, "pooler")
    assert found.headline == "Run 5 workers."
    assert any("in nine of ten cases, by the fitted law with sigma" in reason for reason in found.reasons)


def test_the_published_fleet_ends_at_eight() -> None:
    """As it was published: eight workers pay, PostgreSQL's host is full, and a ninth has no place."""
    shares = {1: 0.22, 2: 0.44, 4: 0.87, 8: 0.97}
    used = {1: 1.0, 2: 1.0, 4: 0.95, 8: 6.27 / 8}
    rates = {1: 45_000, 2: 81_000, 4: 153_000, 8: 209_779}
    sizes = [size(n, rate, used[n], postgres=16 * shares[n], cores=16) for n, rate in rates.items()]
    found = of(*sizes)
    assert (found.workers, found.headline, found.finding.where) == (8, "Run 8 workers.", "PostgreSQL")
    assert of(*sizes[:3]).workers == 5


def test_never_more_workers_than_cores() -> None:
    """Even where every worker is full and the law promises more."""
    found = of(size(2, 90.0, cores=2), size(1, 46.0, cores=2))
    assert found.workers == 2
    assert any("More workers than the 2 processors" in reason for reason in found.reasons)
    found = of(size(1, 46.0, cores=2), size(2, 90.0, cores=2), size(4, 170.0, cores=2))
    assert found.workers == 2


@pytest.mark.parametrize(
    "change", [{"postgres": 15.0}, {"idle": 0.0}, {"load_full": "it was full"}, {"by_worker": (0.4, 0.4)}]
)
def test_no_change_where_another_part_is_full(change: dict[str, object]) -> None:
    """PostgreSQL, the machine and the load are not helped by workers."""
    found = of(replace(size(2, 81_000), **change))  # type: ignore[arg-type]
    assert (found.workers, found.headline) == (2, "No change: stay with 2 workers.")


@pytest.mark.parametrize(("more", "workers", "doubted"), [(1.6, 2, False), (1.08, 1, True), (0.8, 1, False)])
def test_on_a_full_machine_only_a_clear_gain_counts(more: float, workers: int, doubted: bool) -> None:
    """Parts that fight for processors scatter; what lies within that is no reason, and it is said."""
    full = [size(n, rate, 0.2, idle=0.0, cores=4) for n, rate in ((1, 1000.0), (2, 1000.0 * more))]
    found = of(*full)
    assert (found.workers, found.finding.where) == (workers, "machine")
    assert any("within the scatter" in reason for reason in found.reasons) is doubted


def test_a_size_that_did_not_pay_is_not_advised() -> None:
    """Two workers as good as one: one is enough, though it is full."""
    found = of(size(1, 45_000), size(2, 45_500))
    assert found.headline == "No change: 1 worker is enough."
    assert "Less than 5% more is not worth a worker." in found.reasons


def test_postgres_limits_what_is_promised() -> None:
    """A worker more cannot bring more than PostgreSQL's host has left; below the least gain it is not advised."""
    found = of(size(1, 45_000, postgres=11.0, postgres_cores=16))
    assert found.workers == 2
    assert any(
        reason.startswith("One more worker: +45% (+45% to +45%") and "host is full at 65,455/s" in reason
        for reason in found.reasons
    )
    assert of(size(1, 45_000, postgres=14.3, postgres_cores=15, idle=0.5)).workers == 1


def test_one_size_promises_between_published_loss_and_none() -> None:
    """And says that it fits no law."""
    found = of(size(2, 81_000))
    assert found.headline == "Run 3 workers, not 2, and look again then."
    assert any("+46% (+42% to +50% from the loss of published fleets" in reason for reason in found.reasons)
    assert any("only one number of processes" in reason for reason in found.reasons)


def test_idle_workers_are_counted() -> None:
    """Nothing changes, but fewer would do."""
    found = of(size(8, 9000, used=0.05))
    assert found.headline.startswith("No change")
    assert "The 0.40 cores of work would fit into 1 worker." in found.reasons


def test_more_workers_than_processors_are_taken_back() -> None:
    """A fleet larger than its host."""
    assert of(size(4, 9000, cores=2)).workers == 2


def test_a_folder_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The repeats of each size, PostgreSQL on the same machine; direct runs are no fleet."""
    rates = {1: 45_000.0, 2: 81_000.0, 4: 153_000.0}
    rows = [run(n, rate * (1 + repeat / 100), repeat) for n, rate in rates.items() for repeat in range(3)]
    text = said(capsys, tmp_path, replace(run_of("scaling", DIRECT, clients=256), figures={"tps": 9.0}), *rows)
    assert text.startswith("Run 5 workers.\nBottleneck: pooler.\nWith 4 workers: the busiest of 4 workers used 98%")
    assert "1: 45,450/s, 2: 81,810/s, 4: 154,530/s; the rate of a run is taken to scatter by 3%" in text
    assert text.endswith("From pgshoal in `scaling`, 256 clients.\n")


def test_runs_that_do_not_count_are_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine was full: the reason is repeated, and nothing changes."""
    invalid = ("machine-free: the machine was 0.0% idle (limit 5%)",)
    rows = [replace(run(n, 9000.0, machine_idle=0.0, machine_cores=2.0), invalid=invalid) for n in (1, 2)]
    text = said(capsys, tmp_path, *rows)
    assert text.startswith("No change: 1 worker is enough.\nBottleneck: machine.\n")
    assert "2 of 2 runs do not count (machine-free: the machine was 0.0% idle (limit 5%)): take this as a hint" in text


def test_other_programs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a machine that was full by somebody else's doing."""
    row = run(1, 900.0, machine_idle=0.0, machine_cores=2.0, postgres_cores=0.5, load_cores=0.2, other_cores=0.8)
    text = said(capsys, tmp_path, row)
    assert "of its 2 processors they had: the pooler 0.98, PostgreSQL 0.50, the load 0.20, other programs 0.80" in text


def test_what_other_programs_use_is_no_room_for_postgres() -> None:
    """The rate ends where PostgreSQL and they fill the host together."""
    shared = {"same_host": True, "load": 1.0, "cores": 16, "postgres_cores": 16}
    alone, beside = (limit([size(1, 1000.0, 1.0, postgres=2.0, others=others, **shared)]) for others in (0.0, 8.0))
    assert (alone, beside) == (4000, 2000)


def test_a_full_load_generator_is_the_bottleneck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the check of the run says."""
    reason = "load-free: the load generator used 1.95 of 2 processors (limit 90%)"
    text = said(capsys, tmp_path, replace(run(1, 9000.0), invalid=(reason,)))
    assert "Bottleneck: load.\nWith 1 worker: the load generator had no room: the load generator used 1.95 of 2" in text


def test_what_is_no_folder_of_runs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do about it."""
    assert advise.main(tmp_path, 1) == 1
    assert "a folder of `pgshoal bench` is wanted" in capsys.readouterr().err
    Book(tmp_path).add(replace(run_of("scaling", DIRECT), figures={"tps": 9.0}))
    assert advise.main(tmp_path, 1) == 1
    assert "no runs of a pooler" in capsys.readouterr().err
    assert advise.main(tmp_path / "no.ini", 1) == 1
    assert "no.ini" in capsys.readouterr().err
