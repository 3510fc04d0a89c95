"""Programs through two nodes, a primary and a standby, also when one of the nodes stops."""

from __future__ import annotations

import pytest

from pgshoal.bench.load import visitors
from pgshoal.bench.load.visitors import NodesLoad
from pgshoal.bench.model import NotHere, Target
from pgshoal.bench.targets.balancer import program
from tests.bench.load.conftest import Staging

SPREAD = True
SETTINGS = {"pool_mode": "session", "auth_type": "scram-sha-256", "default_pool_size": 40}


def test_every_client_works_though_a_node_stops(staging: Staging, engine: str) -> None:
    """All programs reach both databases before and after; who was on the node is cut off, and comes back."""
    try:
        program()
    except NotHere as missing:
        pytest.skip(str(missing))
    load = NodesLoad(4)
    target = Target("pgshoal", nodes=2, options=(("engine", engine), ("standby", "on")))
    with staging(load, target, settings=SETTINGS, user="bench_scram", tls="server") as scene:
        outcome = load.run(scene)
    figures = outcome.figures
    assert [one.error for one in outcome.clients[:24]] == [""] * 24
    assert (figures["failed_before"], figures["failed_after"], figures["succeeded"]) == (0, 0, 24)
    assert 0 < figures["cut_off"] < 4
    assert figures["not_back"] == 0
    assert figures["back_ms"] > 0


def test_an_answer_of_the_wrong_server_is_a_failure(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers for the reader must be a standby; a program's words say which it was and where."""
    monkeypatch.setattr(visitors, "DATABASES", {"main": "t"})
    load = NodesLoad(1)
    with staging(load) as scene:
        outcome = load.run(scene)
    assert (outcome.figures["failed_before"], outcome.figures["failed_after"]) == (4, 4)
    assert outcome.clients[0].error == "psql on main: main answers 'f' to select pg_is_in_recovery()::char"
    assert outcome.figures["cut_off"] == 0
