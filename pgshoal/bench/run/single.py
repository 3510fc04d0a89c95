"""One run: the load between the meter's readings, and the row that comes of it."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.measure.meter import Meter
from pgshoal.bench.model import NeedsTables, Outcome, Row, Scene
from pgshoal.bench.results.combine import PERCENTILES, Samples
from pgshoal.bench.run.matrix import Planned
from pgshoal.bench.run.standing import Standing


def make(one: Planned, standing: Standing, knobs: Knobs) -> tuple[Row, Samples | None]:
    """Runs the load against the cell's target; the row without checks, and all latency samples."""
    started, load = now(), one.cell.load
    if isinstance(load, NeedsTables):
        load.prepare(standing.stand, knobs)
    with standing.target(one.cell) as target, tempfile.TemporaryDirectory(prefix="pgshoal-bench-") as scratch:
        Path(scratch).chmod(0o777)  # programs that run under another account write here
        meter = Meter(standing.stand, target)
        scene = Scene(standing.stand, target, one.cell, knobs, meter, Path(scratch))
        meter.begin()
        try:
            outcome = load.run(scene)
        finally:
            meter.end()
        return row(one, started, outcome, meter), outcome.latencies_ms


def row(one: Planned, started: str, outcome: Outcome, meter: Meter) -> Row:
    """What the load saw and what the meter measured, in one row."""
    measured = meter.measured(outcome)
    blank = failed(one, "", started)
    return Row(
        **{
            **vars(blank),
            "figures": {**measured.figures, **distribution(outcome.latencies_ms), **outcome.figures},
            "cpu_s": measured.cpu_s,
            "series": measured.series,
            "clients": [vars(client) for client in outcome.clients],
        }
    )


def failed(one: Planned, error: str, started: str = "") -> Row:
    """The row of a run that brought no figures."""
    cell = one.cell
    return Row(
        experiment=cell.experiment,
        key=cell.key,
        target=cell.target.label,
        kind=cell.target.kind,
        processes=cell.target.processes,
        variant=dict(cell.variant),
        repeat=one.repeat,
        order=one.order,
        started=started or now(),
        budget=cell.budget,
        error=error,
    )


def distribution(samples: Samples | None) -> dict[str, float]:
    """The percentiles of all samples of a run."""
    if samples is None or not len(samples):
        return {}
    values = map(float, np.percentile(samples, list(PERCENTILES.values())))
    return {**dict(zip(PERCENTILES, values, strict=True)), "max_ms": float(samples.max())}


def now() -> str:
    """The time of day, to the second, with its offset from UTC."""
    return datetime.now(UTC).astimezone().isoformat(timespec="seconds")
