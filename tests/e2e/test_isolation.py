"""Many clients that misbehave in every way, in all three pool modes at once: nothing of one ever reaches another."""

from __future__ import annotations

import os

from tests.e2e.conftest import MakePooler
from tests.soak.crowd import run
from tests.soak.lodger import Lodger
from tests.soak.person import Person
from tests.soak.stranger import Stranger
from tests.soak.world import World, context, create, entries, settings
from tests.support.certs import Authority
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
