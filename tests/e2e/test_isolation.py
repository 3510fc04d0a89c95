"""Many clients that misbehave in every way, in all three pool modes at once: nothing of one ever reaches another."""

from __future__ import annotations

import os

import pytest

from tests.e2e.conftest import MakePooler
from tests.soak.crowd import run
from tests.soak.lodger import Lodger
from tests.soak.person import Person
from tests.soak.stranger import Stranger
from tests.soak.wire import values
from tests.soak.world import World, context, create, entries, settings
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient
from tests.support.postgres import Postgres

#: On each engine; `make soak` does the same for hours.
ISOLATION_S = float(os.environ.get("PGSHOAL_ISOLATION_S", "20"))


def test_isolation(make: MakePooler, pg15: Postgres, authority: Authority) -> None:
    """Rows, errors, settings, statements, portals, calls and cancels stay with their clients; money adds up."""
    create(pg15, "isolation")
    pooler = make(entries(pg15, "isolation"), workers=2, **settings(authority))
    world = World(pg15, pooler, "isolation", ISOLATION_S, context(authority))
    run(world, 24)
    assert world.wrong == []
    clients = (Person(world, 0), Stranger(world, 0), Stranger(world, 1), Lodger(world, 0))
    names = {f"{type(client).__name__.lower()}: {way.__name__}" for client in clients for way in client.ways}
    assert names <= set(world.done)
    assert world.committed
    assert world.done["calls heard"] > 0


@pytest.mark.parametrize(
    "more", [{}, {"server_check_delay": 0, "server_check_query": "select 1"}], ids=["set", "check"]
)
def test_the_unnamed_statement_outlives_what_we_ask_of_the_server(make: MakePooler, more: dict[str, object]) -> None:
    """SETs for another client and checks end it on the server; its client, whose own query it was not, goes on."""
    pooler = make(default_pool_size=1, **more)
    address = (pooler.host, pooler.port)
    with FakeClient(address) as one, FakeClient(address) as two:
        one.login("alice", "app", application_name="one")
        two.login("alice", "app", application_name="two")
        one.ask(m.parse("", "select $1::text"), m.SYNC)
        two.ask(m.parse("named", "select 1"), m.bind("named"), m.execute(), m.SYNC)
        found = one.ask(m.bind("", "", (b"mine",)), m.execute(), m.SYNC)
        assert values(found) == [b"mine"]
