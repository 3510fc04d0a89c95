"""Clients that all landed on two workers of four: the budget decides what they get."""

from __future__ import annotations

import numpy as np
import pytest

from pgshoal.bench.load import stranded
from pgshoal.bench.load.stranded import StrandedLoad
from pgshoal.bench.model import Target
from tests.bench.load.conftest import Staging


def test_stranded_clients_use_what_the_fleet_has(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are on two workers of four, and the pool of eight serves them, as far as the budget lets it."""
    # So long that servers are what is scarce on a busy machine, too.
    monkeypatch.setattr(stranded, "QUERY", b"select pg_sleep(0.02)")
    load, found = StrandedLoad(), {}
    for budget in ("static", "elastic"):
        target = Target("pgshoal", 4, (("accept", "kernel"), ("budget", budget)))
        with staging(load, target, settings={"default_pool_size": 8}) as scene:
            found[budget] = load.run(scene)
    # Four servers cannot answer more than 200 a second, eight can.
    assert 0 < found["static"].figures["tps"] <= 200
    assert found["elastic"].figures["tps"] > found["static"].figures["tps"]
    latencies = found["elastic"].latencies_ms
    assert latencies is not None
    assert float(np.median(latencies)) > 20
