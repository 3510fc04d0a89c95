"""Counters, facts and limits on a manual clock."""

from __future__ import annotations

import pytest

from pgshoal.engine.contract import PoolMode
from tests.engine.core.harness import BLOCK, IDLE, START_US, Bench
from tests.support.messages import COPY_DONE, FLUSH, SYNC, bind, command_complete, error, execute, message, parse, query

SECOND = 1_000_000
TAG = command_complete("SELECT 1")


def test_totals(core: Bench) -> None:
    """Transactions, queries, waits, bytes and their times."""
    core.pool()
    client = core.client()
    client.say(query("begin"))
    core.tick(2)
    server = core.server()
    core.tick(1)
    server.say(TAG, BLOCK)
    core.tick(4)
    client.say(query("commit"))
    core.tick(1)
    server.say(TAG, IDLE)
    stats = core.engine.pool_stats(core.pool_id)
    assert stats.server_assignment_count == 1
    assert (stats.xact_count, stats.xact_time_us) == (1, 6 * SECOND)
    assert (stats.query_count, stats.query_time_us) == (2, 2 * SECOND)
    assert stats.wait_time_us == 2 * SECOND
    assert stats.client_bytes == len(query("begin") + query("commit"))
    assert stats.server_bytes == 2 * len(TAG + IDLE)


def test_a_pipelined_batch_is_one_query(core: Bench) -> None:
    """Two batches under way at once count as one query and two transactions."""
    client, server = core.linked(query("a"), query("b"))
    core.tick(1)
    server.say(TAG, IDLE)
    core.tick(1)
    server.say(TAG, IDLE)
    stats = core.engine.pool_stats(core.pool_id)
    assert (stats.query_count, stats.query_time_us) == (1, 2 * SECOND)
    assert (stats.xact_count, stats.xact_time_us) == (2, 2 * SECOND)
    assert client.mode == "parked"


def test_the_end_of_copy_is_no_query(core: Bench) -> None:
    """A COPY whose end crosses the error counts as one query, and nothing is in flight afterwards."""
    client, server = core.linked(query("copy"))
    client.say(message(b"d", b"row"), COPY_DONE)
    server.say(error("23505", "duplicate"), message(b"Z", b"E"))
    assert core.engine.pool_stats(core.pool_id).query_count == 1
    assert (client.facts.queue_length, client.facts.request_us) == (0, 0)


def test_prepared_counters(core: Bench) -> None:
    """client_parse counts what clients sent, server_parse what went out, bind the named Binds."""
    client, server = core.linked()
    client.say(parse("a", "A"), parse("b", "A"), parse("", "A"), bind("a"), bind("b"), bind(""), execute(), SYNC)
    server.heard()
    stats = core.engine.pool_stats(core.pool_id)
    assert (stats.client_parse_count, stats.server_parse_count, stats.bind_count) == (2, 1, 2)


def test_pool_counts(core: Bench) -> None:
    """Each mode has its count; the oldest wait is that of the head of the line."""
    core.pool()
    parked, linked, waiting = core.client(), core.client(), core.client()
    server = core.server()
    linked.say(query("x"))
    waiting.say(query("y"))
    core.tick(3)
    held = core.server()
    assert waiting.mode == "linked"
    held.say(TAG, IDLE)
    core.engine.hold(held.id)
    taken = core.server()
    core.engine.take(taken.id)
    idle = core.server()
    counts = core.engine.pool_counts(core.pool_id)
    assert (counts.cl_parked, counts.cl_linked, counts.cl_waiting) == (2, 1, 0)
    assert (counts.sv_idle, counts.sv_linked, counts.sv_held, counts.sv_dialogue) == (1, 1, 1, 1)
    assert counts.oldest_wait_us == 0
    core.engine.take(idle.id)
    waiting.say(query("z"))
    core.tick(5)
    assert core.engine.pool_counts(core.pool_id).oldest_wait_us == 5 * SECOND
    assert (parked.mode, server.mode) == ("parked", "linked")


def test_facts(core: Bench) -> None:
    """What a connection tells while it is linked and afterwards."""
    client, server = core.linked()
    core.tick(1)
    client.say(query("x"))
    facts = client.facts
    assert (facts.link, facts.request_us, facts.queue_length) == (server.id, START_US + SECOND, 1)
    assert facts.last_activity_us == START_US + SECOND
    assert server.facts.send_pending == len(query("x"))
    core.tick(1)
    server.say(TAG, IDLE)
    assert server.facts.idle_since_us == START_US + 2 * SECOND
    assert core.engine.idle_servers(core.pool_id) == [(server.id, START_US + 2 * SECOND)]
    assert client.facts.link == 0


def test_query_timeout(core: Bench) -> None:
    """Only a query in flight is too slow, counted from its own start."""
    core.pool(query_timeout_us=10 * SECOND)
    client, server = core.linked(query("begin"))
    server.say(TAG, BLOCK)
    core.tick(60)
    assert core.overdue() == []
    client.say(query("x"))
    core.tick(10)
    assert core.overdue() == []
    core.tick(1)
    assert core.overdue() == [(client.id, "query_timeout")]


def test_idle_transaction_timeout(core: Bench) -> None:
    """Counted from the server's last message, in a block, with nothing in flight."""
    core.pool(idle_transaction_timeout_us=10 * SECOND)
    client, server = core.linked(query("begin"))
    core.tick(60)
    assert core.overdue() == []
    server.say(TAG, BLOCK)
    core.tick(10)
    assert core.overdue() == []
    core.tick(1)
    assert core.overdue() == [(client.id, "idle_transaction_timeout")]
    client.say(query("x"))
    assert core.overdue() == []


def test_half_a_message_behind_the_end(core: Bench) -> None:
    """A client that never ends a message it began keeps its server no longer than one that idles in a block."""
    core.pool(idle_transaction_timeout_us=10 * SECOND)
    client, server = core.linked(query("x"), b"d\0\0\x10\0half")
    server.say(TAG, IDLE)
    assert (client.mode, server.mode) == ("linked", "linked")
    core.tick(10)
    assert core.overdue() == []
    core.tick(1)
    assert core.overdue() == [(client.id, "idle_transaction_timeout")]
    client.say(b"x" * (0x1000 - 8))
    assert (client.mode, server.mode) == ("parked", "idle")
    assert core.overdue() == []


def test_transaction_timeout(core: Bench) -> None:
    """Counted from the first request of the transaction, busy or not."""
    core.pool(transaction_timeout_us=10 * SECOND)
    client, server = core.linked(query("begin"))
    server.say(TAG, BLOCK)
    core.tick(11)
    assert core.overdue() == [(client.id, "transaction_timeout")]
    client.say(query("commit"))
    server.say(TAG, IDLE)
    assert core.overdue() == []


@pytest.mark.parametrize(("own", "pool_s", "late_s"), [(-1, 10, 11), (5 * SECOND, 10, 6), (0, 10, 0)])
def test_query_wait_timeout(core: Bench, own: int, pool_s: int, late_s: int) -> None:
    """The client's own limit goes before the pool's; 0 is off."""
    core.pool(query_wait_timeout_us=pool_s * SECOND)
    client = core.client(wait_us=own)
    client.say(query("x"))
    core.tick(late_s - 1 if late_s else 1000)
    assert core.overdue() == []
    if late_s:
        core.tick(1)
        assert core.overdue() == [(client.id, "query_wait_timeout")]


def test_queued_query_timeout(core: Bench) -> None:
    """The global limit holds for those who wait."""
    core.limits(queued_query_timeout_us=3 * SECOND)
    core.pool()
    client = core.client()
    client.say(query("x"))
    core.tick(4)
    assert core.overdue() == [(client.id, "query_timeout_queued")]


def test_query_wait_notify_once(core: Bench) -> None:
    """A long wait is told once, and again in the next wait."""
    core.pool(query_wait_notify_us=SECOND)
    client = core.client()
    for _ in range(2):
        client.say(query("x"))
        core.tick(2)
        assert core.overdue() == [(client.id, "query_wait_notify")]
        assert core.overdue() == []
        server = core.server()
        server.say(TAG, IDLE)
        server.leave()


def test_client_idle_timeout(core: Bench) -> None:
    """Counted while parked, from the last message or from the end of the last transaction."""
    client = core.client(idle_us=10 * SECOND)
    core.tick(11)
    assert core.overdue() == [(client.id, "client_idle_timeout")]
    core.engine.readmit(client.id, 60 * SECOND, -1)
    assert core.overdue() == []
    server = core.server()
    client.say(query("x"))
    core.tick(100)
    server.say(TAG, IDLE)
    assert core.overdue() == []
    core.tick(61)
    assert core.overdue() == [(client.id, "client_idle_timeout")]


def test_a_flush_is_no_query_in_flight(core: Bench) -> None:
    """Between Flush and the next request nothing is in flight, and the server stays."""
    core.pool(PoolMode.TRANSACTION, 0, query_timeout_us=SECOND)
    client, server = core.linked(parse("", "x"), FLUSH)
    server.say(b"1\0\0\0\x04")
    core.tick(5)
    assert core.overdue() == []
    assert client.mode == "linked"


def test_closing_too_slowly(core: Bench) -> None:
    """A connection that cannot be flushed for ten seconds is given up."""
    client = core.client()
    core.engine.close(client.id, b"bye")
    core.tick(9)
    core.overdue()
    assert client.mode == "closing"
    core.tick(1)
    core.overdue()
    assert client.mode == "gone"
