"""The book keeps every row from the moment it is made, and never a secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pgshoal.bench.results.book import Book
from tests.bench.results.planted import DIRECT, PGSHOAL, run_of

ROW = replace(
    run_of("burst", PGSHOAL, clients=16),
    figures={"tps": 1.5},
    series={"at_s": [0.1, 0.2], "backends": [1, 2]},
    invalid=("samples: 5 transactions ended in the interval (limit 100)",),
    budget=20,
)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """A row is the same after it has been a line of JSON."""
    book = Book(tmp_path / "new")
    book.begin({})
    book.add(ROW)
    assert book.rows() == [ROW]


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    """A run killed while it wrote keeps the rows before; a resumed one may write after it."""
    book = Book(tmp_path)
    book.add(ROW)
    with (tmp_path / "rows.jsonl").open("a") as out:
        out.write('{"experiment": "burst", "ke')
    book.add(replace(ROW, repeat=1))
    assert [row.repeat for row in book.rows()] == [0, 1]


def test_fields_of_later_versions_are_left_out(tmp_path: Path) -> None:
    """A folder of a newer version can be read."""
    book = Book(tmp_path)
    book.add(ROW)
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text().replace('{"experiment"', '{"of_tomorrow": 1, "experiment"'))
    assert book.rows() == [ROW]


def test_rows_of_something_else_are_an_error(tmp_path: Path) -> None:
    """A folder of the kit's first version is not read as if it were empty."""
    (tmp_path / "rows.jsonl").write_text('{"experiment": "simple-16", "metric": "cpu", "round": 0, "value": 1.5}\n')
    with pytest.raises(ValueError, match=r"a row without key, kind, .* another version"):
        Book(tmp_path).rows()


def test_a_run_made_again_stands_for_the_first(tmp_path: Path) -> None:
    """A failed run is not done; once it has been made again, its error is history."""
    book = Book(tmp_path)
    book.add(replace(ROW, error="fell over"))
    book.add(run_of("burst", DIRECT))
    assert book.done() == {("burst|direct|", 0)}
    book.add(ROW)
    assert book.done() == {("burst|direct|", 0), (ROW.key, 0)}
    assert [row.error for row in book.rows()] == ["", ""]


def test_samples_stand_in_files_of_their_own(tmp_path: Path) -> None:
    """All samples of some rows come back in one array; rows of other cells have other files."""
    book = Book(tmp_path)
    rows = [
        book.add(row, np.array([number, number + 0.5], np.float32))
        for number, row in enumerate((ROW, replace(ROW, repeat=1), run_of("burst", DIRECT)))
    ]
    assert len({row.latencies for row in rows}) == 3
    assert sorted(book.samples(rows[:2])) == [0, 0.5, 1, 1.5]
    assert [row.latencies for row in book.rows()] == [row.latencies for row in rows]


def test_checks_may_change_rows_later(tmp_path: Path) -> None:
    """Rows put in place of others keep nothing of those."""
    book = Book(tmp_path)
    book.add(ROW)
    book.replace([replace(ROW, invalid=())])
    assert book.rows() == [replace(ROW, invalid=())]


def test_facts_hold_no_secret(tmp_path: Path) -> None:
    """What is named like a password is not written, however deep it stands."""
    book = Book(tmp_path)
    book.begin({"seed": 1, "knobs": {"pg_password": "hunter2", "scram_secret": "hunter2", "pg_user": "me"}})
    assert book.facts() == {"seed": 1, "knobs": {"pg_user": "me"}}
    assert "hunter2" not in (tmp_path / "run.json").read_text()
