"""pgbench as a load: what counts, from when a latency counts, and what becomes of clients that are lost."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from pgshoal.bench.load import logs
from pgshoal.bench.load.pgbench import LOOKUP, PgbenchLoad, outcomes
from pgshoal.bench.stand import Stand
from tests.bench.load.conftest import Staging, Watch

SLEEP = "select pg_sleep(0.02);\n"


def test_transactions_of_the_interval_are_counted_and_no_others(staging: Staging) -> None:
    """The figures are about those that ended in it; all of the run are told apart from them."""
    with staging(PgbenchLoad(clients=2)) as scene:
        outcome, span = PgbenchLoad(clients=2).watch(scene)
        everything = logs.read(scene.folder, "log")
    inside = (everything.ended_us >= span.began_s * 1e6) & (everything.ended_us < span.ended_s * 1e6)
    assert outcome.transactions == int(inside.sum()) > 0
    assert outcome.sent_in_all == len(everything) > outcome.transactions
    assert outcome.latencies_ms is not None
    assert sorted(outcome.latencies_ms) == pytest.approx(sorted(everything.latency_us[inside] / 1000))
    assert outcome.figures["tps"] == pytest.approx(outcome.transactions / span.seconds)
    assert (outcome.figures["succeeded"], outcome.figures["failed"]) == (2, 0)
    watch = cast(Watch, scene.meter)
    assert (watch.intervals, len(watch.generators)) == (1, 1)


def test_time_to_connect_is_not_taken_off_the_load(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that need longer to connect than warm-up, interval and cool-down last are measured as long as others."""
    load = PgbenchLoad()
    with staging(load) as scene:
        monkeypatch.setenv("PGOPTIONS", "-c post_auth_delay=2")
        outcome, span = load.watch(scene)
    assert span.seconds >= scene.knobs.float("seconds")
    assert outcome.transactions > 0


def test_open_loop_latency_counts_from_the_scheduled_start(staging: Staging) -> None:
    """One client is asked for twice of what it can do: an answer takes 20 ms, but each waits longer for its turn."""
    load = PgbenchLoad((), (SLEEP,), rate=100)
    with staging(load) as scene:
        outcome = load.run(scene)
        everything = logs.read(scene.folder, "log")
    assert (everything.latency_us - everything.lag_us >= 20_000).all()
    assert everything.lag_us.max() > 200_000
    assert outcome.latencies_ms is not None
    assert float(np.median(outcome.latencies_ms)) > 100
    assert outcome.figures["lag_mean_ms"] > 100


def test_a_number_of_transactions_is_measured_whole(staging: Staging) -> None:
    """All of them count, each on a connection of its own, and the time to connect is told."""
    load = PgbenchLoad(("-S",), ("select 1;\n",), 3, transactions=10, reconnect=True)
    with staging(load) as scene:
        outcome = load.run(scene)
    assert outcome.transactions == outcome.sent_in_all == 30
    assert outcome.figures["tps"] > 0
    assert outcome.figures["connect_ms"] > 0


def test_lookups_find_their_rows(staging: Staging, stand: Stand) -> None:
    """Prepared, on the table of as many rows as the knob says."""
    load = PgbenchLoad(("-M", "prepared"), (LOOKUP,), tables="events")
    with staging(load) as scene:
        assert load.run(scene).transactions > 0
    assert stand.sql("select count(*) from events") == "1000"


def test_clients_that_are_refused_are_figures(staging: Staging) -> None:
    """pgbench gives up before it begins: all its clients have failed, with the server's words."""
    load = PgbenchLoad(clients=3)
    with staging(load, user="few") as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["failed"], outcome.transactions) == (0, 3, 0)
    assert "too many connections for role" in outcome.clients[0].error


def test_clients_that_are_lost_on_the_way_are_figures(staging: Staging, stand: Stand) -> None:
    """Those that went on count."""

    def end_one() -> None:
        theirs = "from pg_stat_activity where application_name = 'pgbench' limit 1"
        stand.sql(f"select pg_terminate_backend(pid) {theirs}")

    load = PgbenchLoad(clients=2)
    with staging(load, act=end_one) as scene:
        outcome = load.run(scene)
    assert (outcome.figures["succeeded"], outcome.figures["failed"]) == (1, 1)
    assert [one.error for one in outcome.clients] == ["FATAL:  terminating connection due to administrator command"]
    assert outcome.transactions > 0


def test_a_pgbench_that_cannot_do_its_work_is_an_error(staging: Staging) -> None:
    """A mistake of ours is not the target's."""
    load = PgbenchLoad(("--no-such-option",))
    with staging(load) as scene, pytest.raises(RuntimeError, match="no-such-option"):
        load.run(scene)


def test_each_lost_client_has_the_reason_given_before_it() -> None:
    """Where there is none, the line that tells of it."""
    text = (
        "progress: 1.0 s, 10 tps\n"
        'pgbench: error: connection to server at "::1", port 1 failed: FATAL:  sorry, too many clients already\n'
        "pgbench: error: client 7 aborted while establishing connection\n"
        "pgbench: error: client 9 script 0 aborted in command 1 query 0: ERROR:  no more\n"
    )
    found = outcomes(text)
    assert [(one.number, one.error) for one in found] == [
        (7, "FATAL:  sorry, too many clients already"),
        (9, "ERROR:  no more"),
    ]
    assert outcomes("pgbench: error: client 1 aborted\n")[0].error == "pgbench: error: client 1 aborted"
    assert outcomes("progress: 1.0 s, 10 tps\n") == []
