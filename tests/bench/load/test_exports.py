"""Exports beside an API: what streams bring in the interval, and those that fail."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pgshoal.bench.load.exports import ROW_BYTES, MixedLoad, Stream, export
from pgshoal.bench.load.logs import Span
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Target
from pgshoal.bench.stand import Stand
from tests.bench.load.conftest import Staging

SPREAD = True


def stream(stand: Stand, sql: str, over: threading.Event) -> Stream:
    """One that exports from PostgreSQL itself."""
    argv: list[str | Path] = [stand.programs["psql"], "-XAtq", "-c", sql]
    return Stream(0, argv, stand.address().env(), over)


def test_every_byte_of_an_export_is_counted(stand: Stand) -> None:
    """The first export is finished and whole; what is read when all is over is no longer an export."""
    over = threading.Event()
    one = stream(stand, export(3), over)
    reading = threading.Thread(target=one.work)
    reading.start()
    while not one.finished and reading.is_alive():
        reading.join(0.01)
    over.set()
    reading.join()
    total = one.bytes_in(Span(0, 4e9))
    assert one.finished >= 1
    assert total >= 3_000 * ROW_BYTES * one.finished
    middle = one.arrived[len(one.arrived) // 2][0]
    assert one.bytes_in(Span(0, middle)) + one.bytes_in(Span(middle, 4e9)) == total
    assert one.outcome().succeeded


def test_a_stream_that_fails_ends_with_its_reason(stand: Stand) -> None:
    """It does not try again and again."""
    one = stream(stand, "copy no_such to stdout", threading.Event())
    one.work()
    assert (one.finished, one.outcome().succeeded) == (0, False)
    assert 'relation "no_such" does not exist' in one.outcome().error


def test_api_and_exports_are_measured_together(staging: Staging, engine: str) -> None:
    """The API keeps its rate; both figures are of the same interval, and an isolated target has the streams apart."""
    load = MixedLoad(PgbenchLoad(clients=2, rate=200), 1, 5, isolated=True)
    target = Target("pgshoal", 2, (("engine", engine), ("isolated", "on")))
    with staging(load, target) as scene:
        assert scene.opened.address("exports").port != scene.opened.address().port
        outcome = load.run(scene)
    assert outcome.figures["api_rate"] == pytest.approx(200, rel=0.5)
    assert outcome.figures["throughput_mib_s"] > 0
    assert outcome.figures["failed"] == 0
    assert len(outcome.clients) == 1
    assert load.generators == 3
