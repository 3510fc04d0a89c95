"""Clients that all landed on two workers of four: the budget decides what they get."""

from __future__ import annotations

import numpy as np

from pgshoal.bench.load.stranded import StrandedLoad
from pgshoal.bench.model import Target
from tests.bench.load.conftest import Staging


def test_stranded_clients_use_what_the_fleet_has(staging: Staging) -> None:
    """All of them are on two workers of four, and the pool of eight serves them, as far as the budget lets it."""
    load, found = StrandedLoad(), {}
    for budget in ("static", "elastic"):
        target = Target("pgshoal", 4, (("accept", "kernel"), ("budget", budget)))
        with staging(load, target, settings={"default_pool_size": 8}) as scene:
            found[budget] = load.run(scene)
    # Queries of 5 ms: four servers cannot answer more than 800 a second, eight can.
    assert 0 < found["static"].figures["tps"] <= 800
    assert found["elastic"].figures["tps"] > found["static"].figures["tps"]
    latencies = found["elastic"].latencies_ms
    assert latencies is not None
    assert float(np.median(latencies)) > 5
