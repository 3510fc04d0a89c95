"""What the first login of a pool anywhere in the fleet has reported, so that others greet clients without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pgshoal.worker import clients
from pgshoal.worker.records import Welcome

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Pool

Parameters = list[tuple[str, str]]


def _key(pool: Pool) -> tuple[str, str]:
    return pool.database.name, pool.user.name


class Welcomes:
    """By (database, server user). A pool's own login counts more than what another worker has said."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._known: dict[tuple[str, str], Parameters] = {}
        for entry in worker.fleet.state.get("welcomes", ()):
            self._store(entry)
        worker.fleet.on("welcome", self._heard)

    def _store(self, entry: dict[str, Any]) -> tuple[str, str]:
        key = (entry["database"], entry["user"])
        if entry["parameters"] is None:
            self._known.pop(key, None)
        else:
            self._known[key] = [(name, value) for name, value in entry["parameters"]]
        return key

    def known(self, pool: Pool) -> Welcome | None:
        """For a new pool."""
        found = self._known.get(_key(pool))
        return None if found is None else Welcome(found, borrowed=True)

    def told(self, pool: Pool, parameters: Parameters) -> None:
        """A server of the pool has logged in; the first of them speaks for all."""
        if pool.welcome is not None and not pool.welcome.borrowed:
            return
        pool.welcome = Welcome(parameters)
        clients.welcome_waiting(self.worker, pool)
        if self.worker.pools.by_key.get(_key(pool)) is pool and self._known.get(_key(pool)) != parameters:
            self._known[_key(pool)] = parameters
            self._send(pool, parameters)

    def forget(self, pool: Pool) -> None:
        """The server may have become another one: ask anew. Each worker does so on its own, when told to reconnect."""
        pool.welcome = None
        if self._known.pop(_key(pool), None) is not None:
            self._send(pool, None)

    def doubt(self, applies: Callable[[str], bool]) -> None:
        """Ask anew about these databases, also where no pool of ours does: others have spoken of them."""
        for key in [key for key in self._known if applies(key[0])]:
            del self._known[key]

    def _send(self, pool: Pool, parameters: Parameters | None) -> None:
        database, user = _key(pool)
        self.worker.fleet.send("welcome", {"database": database, "user": user, "parameters": parameters})

    def _heard(self, message: Message) -> None:
        # A pool that has a welcome keeps it: each worker is told itself when to forget.
        pool = self.worker.pools.by_key.get(self._store(message.fields))
        found = None if pool is None else self.known(pool)
        if pool is not None and found is not None and pool.welcome is None:
            pool.welcome = found
            clients.welcome_waiting(self.worker, pool)
