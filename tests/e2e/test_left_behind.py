"""What a client leaves behind on a server in transaction mode: the list in docs/topics/isolation.md, each way."""

from __future__ import annotations

import psycopg
import pytest

from tests.e2e.conftest import MakePooler

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

#: What is done, and what another client on the same server is answered then; "" is what a clean one gives.
LEFT: dict[str, tuple[str, str, object, object]] = {
    "a setting that PostgreSQL does not report": ("set work_mem = '55MB'", "show work_mem", "4MB", "55MB"),
    "a channel": ("listen somebody", "select count(*) from pg_listening_channels()", 0, 1),
    "a lock of the session": (
        "select pg_advisory_lock(3)",
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        0,
        1,
    ),
    "a temporary table": ("create temp table kept()", "select to_regclass('kept') is not null", False, True),
    "a statement prepared in SQL": (
        "prepare kept as select 1",
        "select count(*) from pg_prepared_statements where from_sql",
        0,
        1,
    ),
    "a cursor with hold": (
        "declare kept cursor with hold for select 1",
        "select count(*) from pg_cursors where is_holdable",
        0,
        1,
    ),
}


@pytest.mark.parametrize("always", [0, 1])
def test_what_stays_in_transaction_mode(make: MakePooler, always: int) -> None:
    """It stays with the server for the next client, unless server_reset_query_always is on."""
    pooler = make(default_pool_size=1, server_reset_query_always=always)
    found = {}
    for name, (done, asked, _, _) in LEFT.items():
        with pooler.connect() as one, pooler.connect() as two:
            one.execute(done.encode())
            (row,) = two.execute(asked.encode()).fetchall()
            found[name] = row[0]
    assert found == {name: (clean, left)[not always] for name, (_, _, clean, left) in LEFT.items()}


def test_calls_go_to_whoever_has_the_server(make: MakePooler) -> None:
    """What a client that has left LISTENs to is told to the next one on that server."""
    pooler = make(default_pool_size=1)
    with pooler.connect() as one:
        one.execute("listen somebody")
    heard: list[psycopg.Notify] = []
    with pooler.connect() as two:
        two.add_notify_handler(heard.append)
        two.execute("notify somebody, 'news'")
    assert [(call.channel, call.payload) for call in heard] == [("somebody", "news")]
