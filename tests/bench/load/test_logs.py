"""pgbench's logs are read whole, and cut to an interval."""

from __future__ import annotations

from pathlib import Path

from pgshoal.bench.load.logs import Span, parse, read

CLOSED = b"0 0 1500 0 100 250000\n1 0 2500 0 101 750000\n"
OPEN = b"0 0 1500 0 100 250000 300\n0 1 skipped 0 100 300000 900\n1 0 2500 0 101 750000 400\n"


def test_a_line_is_a_transaction() -> None:
    """Its end on the wall clock and its time come out; without a rate nothing was late."""
    found = parse(CLOSED)
    assert found.ended_us.tolist() == [100_250_000, 101_750_000]
    assert found.latencies_ms.tolist() == [1.5, 2.5]
    assert found.lag_us.tolist() == [0, 0]


def test_with_a_rate_the_lag_is_told_and_skipped_ones_are_counted_apart() -> None:
    """A transaction without a time is no sample."""
    found = parse(OPEN)
    assert found.latency_us.tolist() == [1500, 2500]
    assert found.lag_us.tolist() == [300, 400]
    assert found.without_time == 1


def test_a_log_that_breaks_off_loses_its_last_line_alone() -> None:
    """The number before the break may be half a number."""
    assert parse(CLOSED + b"1 1 25").latency_us.tolist() == [1500, 2500]
    assert len(parse(b"")) == 0


def test_an_interval_keeps_what_ended_in_it() -> None:
    """From its beginning on, and before its end."""
    assert parse(CLOSED).between(Span(100.25, 101.75)).latency_us.tolist() == [1500]
    assert len(parse(CLOSED).between(Span(102, 103))) == 0


def test_the_logs_of_all_threads_are_one(tmp_path: Path) -> None:
    """Whatever their number; none at all is no transaction."""
    assert len(read(tmp_path, "log")) == 0
    (tmp_path / "log.77").write_bytes(CLOSED)
    (tmp_path / "log.77.1").write_bytes(CLOSED)
    (tmp_path / "other.77").write_bytes(CLOSED)
    assert read(tmp_path, "log").latency_us.tolist() == [1500, 2500, 1500, 2500]
