"""Sessions as loads: each unit is a connection, a burst comes at once, who stays is seen to stay."""

from __future__ import annotations

from pgshoal.bench.load.sessions import BurstLoad, ConnectLoad, HoldLoad
from pgshoal.bench.model import Target
from pgshoal.bench.stand import Stand
from tests.bench.load.conftest import Staging

SPREAD = True
TOO_MANY = 'FATAL: too many connections for role "few"'


def sessions(stand: Stand) -> int:
    """How many sessions the load's database has had."""
    return int(stand.sql(f"select sessions from pg_stat_database where datname = '{stand.dbname}'"))


def test_each_unit_is_a_connection_of_its_own(staging: Staging, stand: Stand) -> None:
    """PostgreSQL sees as many sessions as units were done, those of the warm-up included."""
    load = ConnectLoad(40, 4)
    with staging(load) as scene:
        before = sessions(stand)
        outcome = load.run(scene)
        stand.prepare()
        seen = sessions(stand) - before
    assert outcome.transactions == outcome.figures["succeeded"] == 40
    assert outcome.sent_in_all == 48
    assert 48 <= seen <= 60  # the kit's own questions are sessions too
    assert outcome.clients == []
    assert outcome.latencies_ms is not None
    assert len(outcome.latencies_ms) == 40


def test_units_that_fail_are_counted_with_what_they_were_told(staging: Staging) -> None:
    """A role that may connect twice cannot work with eight threads."""
    load = ConnectLoad(60, 8)
    with staging(load, user="few") as scene:
        outcome = load.run(scene)
    assert outcome.figures["succeeded"] + outcome.figures["failed"] == 60
    assert outcome.figures["failed"] > 0
    assert {one.error for one in outcome.clients} == {TOO_MANY}


def test_a_burst_comes_at_once(staging: Staging) -> None:
    """Of ten clients that hold on only the two get in whom the role allows; each one's fate is told."""
    load = BurstLoad(10, 1500)
    with staging(load, user="few") as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["failed"]) == (2, 8)
    assert [one.number for one in outcome.clients] == list(range(10))
    assert sorted({one.error for one in outcome.clients}) == ["", TOO_MANY]


def test_a_pooler_serves_the_whole_burst(staging: Staging, engine: str) -> None:
    """The same clients, and a pool of two."""
    load = BurstLoad(10, 50)
    target = Target("pgshoal", options=(("engine", engine),))
    with staging(load, target, settings={"default_pool_size": 2}) as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["failed"]) == (10, 0)


def test_clients_that_stay_are_seen_by_postgres(staging: Staging, stand: Stand) -> None:
    """All of them are connected inside the interval; one that is thrown out is told why."""
    seen: list[str] = []
    theirs = "from pg_stat_activity where usename = 'bench_scram'"

    def look() -> None:
        seen.append(stand.sql(f"select count(*) {theirs}"))
        stand.sql(f"select pg_terminate_backend(min(pid)) {theirs}")

    load = HoldLoad(3)
    with staging(load, act=look, user="bench_scram") as scene:
        outcome = load.run(scene)
    assert seen == ["3"]
    assert (outcome.figures["succeeded"], outcome.figures["failed"]) == (2, 1)
    assert [one.error for one in outcome.clients if one.error] == [
        "FATAL: terminating connection due to administrator command"
    ]
    assert outcome.sent_in_all is not None
    assert outcome.sent_in_all > outcome.transactions > 0
