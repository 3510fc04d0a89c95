"""Rows become medians, verdicts and a summary; an error never looks like a result."""

from __future__ import annotations

import json
from pathlib import Path

from pgshoal.bench.old_experiments import EXPERIMENTS, Experiment, Metric
from pgshoal.bench.old_results import Book, Row, table, verdicts

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


def test_a_metric_may_name_its_own_base() -> None:
    """Each metric is judged against the contender it names; the base itself gets no line, unless values are judged."""
    metrics = (
        Metric("cpu", "µs/tx", {"least": 1.15}, base="1 worker"),
        Metric("cpu", "µs/tx", {"least": 1.0}, base="4 PgBouncers"),
        Metric("largest", "MB", {"least": 40}, absolute=True, base="1 worker"),
    )
    names = ("1 worker", "4 PgBouncers", "least")
    experiment = Experiment("fleet", "", "pgbench", metrics, fleets=names)
    found = [Row("fleet", "cpu", name, 0, value) for name, value in zip(names, (20, 40, 22), strict=True)]
    found += [Row("fleet", "largest", name, 0, 35) for name in names]
    seen = [(v.metric.base, v.engine, v.ratio, v.met) for v in verdicts(experiment, names, found, "pgbouncer")]
    assert seen[:4] == [
        ("1 worker", "4 PgBouncers", 2.0, None),
        ("1 worker", "least", 1.1, True),
        ("4 PgBouncers", "1 worker", 0.5, None),
        ("4 PgBouncers", "least", 0.55, True),
    ]
    assert [engine for _, engine, _, _ in seen[4:]] == list(names)
    assert "against 1 worker" in verdicts(experiment, names, found, "pgbouncer")[1].cells()[1]
