"""The common set-up of the recipes: transaction mode, SCRAM, one server unless a recipe says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.fakeclient import FakeClient, Message
from tests.support.pooler import Pooler, database
from tests.support.postgres import PASSWORDS, Postgres

MakePooler = Callable[..., Pooler]


class Lane:
    """A logged-in client that writes either in one piece or byte by byte."""

    def __init__(self, pooler: Pooler, cut: bool, user: str, dbname: str, parameters: dict[str, str]) -> None:
        self.client = FakeClient((pooler.host, pooler.port))
        self.cut = cut
        self.client.login(user, dbname, PASSWORDS[user], **parameters)

    def send(self, *parts: bytes) -> None:
        """Sends a batch the lane's way."""
        if self.cut:
            self.client.send_cut(*parts)
        else:
            self.client.send(*parts)

    def ask(self, *parts: bytes, syncs: int = 1) -> list[Message]:
        """Sends a batch and reads up to that many ReadyForQuery."""
        self.send(*parts)
        return [got for _ in range(syncs) for got in self.client.read_until("Z")]


@pytest.fixture(params=[False, True], ids=["whole", "bytes"])
def cut(request: pytest.FixtureRequest) -> bool:
    """Whether lanes write byte by byte."""
    return bool(request.param)


@pytest.fixture(scope="module")
def make_pooler(pg15: Postgres, engine: str) -> Iterator[MakePooler]:
    """Makes poolers in front of PostgreSQL 15, one per set of settings; all stop at the end of the module."""
    made: dict[str, Pooler] = {}
    with ExitStack() as stack:

        def make(**settings: Any) -> Pooler:
            wanted = {
                "engine": engine,
                "pool_mode": "transaction",
                "default_pool_size": 1,
                "auth_type": "scram-sha-256",
                **settings,
            }
            key = repr(sorted(wanted.items()))
            if key not in made:
                made[key] = stack.enter_context(Pooler({"app": database(pg15)}, **wanted))
            return made[key]

        yield make


@pytest.fixture
def lanes(cut: bool) -> Iterator[Callable[..., Lane]]:
    """Makes lanes and closes them at the end."""
    opened: list[Lane] = []

    def open_lane(pooler: Pooler, user: str = "alice", dbname: str = "app", **parameters: str) -> Lane:
        lane = Lane(pooler, cut, user, dbname, parameters)
        opened.append(lane)
        return lane

    yield open_lane
    for lane in opened:
        lane.client.close()
