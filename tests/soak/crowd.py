"""All kinds of clients at once, from the first to the verdict."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import asyncpg
import psycopg

from tests.soak.lodger import Lodger
from tests.soak.person import Person
from tests.soak.stranger import Stranger
from tests.soak.trouble import trouble
from tests.soak.verdict import judge
from tests.soak.world import LODGERS, Client, World, live
from tests.support.fakeclient import LoginRefused

#: What a client may hear when a server goes away under it, or the network does.
LOST = re.compile(
    "server conn|terminat|closed the connection|server closed|shutting down|starting up|recovery mode|connect"
    "|query_wait_timeout|EOF|lost|in failed sql|timed out|invalid server parameter"
    "|SSL|connection is closed|middle of operation"
    # what drivers make of two errors in a row
    "|mix COPY|cannot be mixed|while busy|another operation|too many values|received 2 results"
)


def lost(error: Exception) -> bool:
    """Whether it is only the end of a connection."""
    return isinstance(error, OSError | asyncio.IncompleteReadError) or (
        isinstance(error, LoginRefused | psycopg.Error | asyncpg.PostgresError | asyncpg.InterfaceError)
        and LOST.search(str(error)) is not None
    )


async def cycle(world: World, clients: Sequence[Client]) -> None:
    """All of them until the end, and the trouble if it is wanted."""
    lives = [live(world, client, lost) for client in clients]
    await asyncio.gather(*lives, *([trouble(world)] if world.chaos else []))
    await asyncio.sleep(0.1)  # transports need a turn of the loop to end


def run(world: World, size: int, more: Sequence[Client] = ()) -> None:
    """So many clients, some of each kind; afterwards `world.wrong` is the verdict."""
    clients: list[Client] = [*more]
    clients += [Lodger(world, number) for number in range(min(LODGERS, size))]
    clients += [(Person, Stranger)[number % 2](world, number) for number in range(size)]
    asyncio.run(cycle(world, clients))
    judge(world)
