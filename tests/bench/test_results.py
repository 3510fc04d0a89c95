"""Rows become medians, verdicts and a summary; an error never looks like a result."""

from __future__ import annotations

import json
from pathlib import Path

from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.results import Book, Row, table, verdicts

SIMPLE_16 = next(e for e in EXPERIMENTS if e.name == "simple-16")


def rows(contender: str, *values: float) -> list[Row]:
    """One row per round."""
    return [Row("simple-16", "cpu", contender, number, value) for number, value in enumerate(values)]


def test_a_verdict_compares_medians() -> None:
    """One wild round does not move the ratio."""
    (verdict,) = verdicts(SIMPLE_16, ["uring"], rows("pgbouncer", 30, 31, 90) + rows("uring", 16, 15.5, 2), "pgbouncer")
    assert (verdict.value, verdict.reference, verdict.ratio, verdict.met) == (15.5, 31, 0.5, True)
    assert verdict.cells() == ("simple-16", "cpu, µs/tx", "uring", "15.50", "31.00", "0.50", "≤ 0.80", "yes")


def test_an_error_is_a_missed_target() -> None:
    """If a round of an engine, or of the reference, failed, the line says so and the target is not met."""
    for loser in ("uring", "pgbouncer"):
        found = [*rows("pgbouncer", 30), *rows("uring", 15), Row("simple-16", "", loser, 1, 0.0, "it fell over")]
        (verdict,) = verdicts(SIMPLE_16, ["uring"], found, "pgbouncer")
        assert verdict.met is False
        assert verdict.cells()[3] == "failed"
        assert verdict.error == "it fell over"


def test_a_run_leaves_rows_and_a_summary(tmp_path: Path) -> None:
    """Every row stands in the file as one JSON line; the summary holds the table with the full title."""
    found = rows("pgbouncer", 30, 31) + rows("uring", 15, 16)
    book = Book(tmp_path / "run")
    book.add(found[:2])
    book.add(found[2:])
    lines = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    assert [Row(**line) for line in lines] == found
    verdict = verdicts(SIMPLE_16, ["uring"], found, "pgbouncer")
    text = book.summarize(verdict, ["a fact"]).read_text()
    assert "- a fact" in text
    assert "| pgbench -S -M simple, 16 clients | cpu, µs/tx | uring | 15.50 | 30.50 | 0.51 | ≤ 0.80 | yes |" in text
    assert table(verdict, "title").row_count == 1
