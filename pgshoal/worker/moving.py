"""Clients change to another process of their number without noticing: after a restart, before the old process ends."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pgshoal.auth.secret import Keys
from pgshoal.config.model import Secret
from pgshoal.errors import Refused, refuse
from pgshoal.fleet.ledger import LedgerFull
from pgshoal.worker import clients
from pgshoal.worker.log import pointer
from pgshoal.worker.records import Client, Database, Found, User

if TYPE_CHECKING:
    from pgshoal.engine.contract import ConnId
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker

#: Clients that may be on their way at once: the kernel bounds how many descriptors are in channels.
_AT_ONCE = 200
#: After which a client is taken in again whose pool could not be made.
_AGAIN_S = 0.5
#: What goes with a client as it is.
_PLAIN = ("number", "connect_time", "peer_host", "peer_port", "local_host", "local_port", "peer_pid", "replication")


class Moving:
    """Both ends: `leave` sends clients away, `move` brings them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked: set[ConnId] = set()
        #: Those that have arrived, but whose pool's limits could not be entered in the ledger.
        self._held_up: deque[Message] = deque()
        worker.fleet.on("move", self._arrived)

    # -- away

    def leave(self) -> None:
        """Ask the engine for clients that can go, some at a time; one in a transaction goes when that has ended.

        To be called until no client is left.
        """
        worker = self._worker
        if worker.fleet.backlog:
            return
        self._asked &= worker.front.clients.keys()
        asked = 0
        for conn in worker.front.clients.keys() - worker.front.unwelcomed.keys() - self._asked:
            if worker.front.clients[conn].pool.stream is not None:
                continue  # its server cannot go with it
            with suppress(KeyError):  # its CLOSED is still to be read
                if worker.engine.emigrate(conn):
                    self._asked.add(conn)
                    asked += 1
            if asked == _AT_ONCE:
                return

    def moved(self, conn: ConnId, fd: int, state: bytes) -> None:
        """The engine has let go of a client."""
        worker = self._worker
        client = worker.front.clients.get(conn)
        try:
            if client is not None:
                clients.depart(worker, client)
                worker.fleet.send("move", _facts(client), state, fd)
        finally:
            if fd >= 0:
                os.close(fd)

    # -- here

    def _arrived(self, message: Message) -> None:
        if self._held_up or not self._take_in(message):
            self._held_up.append(message)
            if len(self._held_up) == 1:
                self._worker.loop.call_later(_AGAIN_S, self._again)

    def _again(self) -> None:
        while self._held_up and self._take_in(self._held_up[0]):
            self._held_up.popleft()
        if self._held_up:
            self._worker.loop.call_later(_AGAIN_S, self._again)
        self._worker.settle()

    def _take_in(self, message: Message) -> bool:
        """False if its pool cannot be made just now."""
        worker = self._worker
        database, user = self._database(message["database"]), self._user(message["user"], message["database"])
        try:
            pool = None if database is None else worker.pools.pool(database, user)
        except LedgerFull as error:
            worker.log.warning(f"client {message['number']} waits on its way between workers: {error}")
            return False
        try:
            conn = worker.engine.immigrate(message.fd, 0, message.blob)
        except (OSError, ValueError) as error:
            worker.log.warning(f"client {message['number']} was lost on its way between workers: {error}")
            return True
        if database is None or pool is None:
            self._refuse(conn, refuse("no_such_database", db=message["database"]))
            return True
        rows = worker.admissions.enter(0, exempt=True) or ()
        client = Client(
            conn,
            pool=pool,
            user=user,
            database=database,
            cancel_key=bytes.fromhex(message["key"]),
            admitted=worker.admissions.recount(worker.config, rows, database, user),
            **{name: message[name] for name in _PLAIN},
        )
        database.client_connections += 1
        user.client_connections += 1
        worker.front.keys[hash(client.cancel_key)] = conn
        clients.arrive(worker, client)
        worker.log.debug(f"client {client.number} has come from another process as {pointer(conn)}")
        return True

    def _refuse(self, conn: ConnId, refused: Refused) -> None:
        self._worker.engine.close(conn, clients.error_packet(refused), refused.text)

    def _database(self, name: str) -> Database | None:
        pools = self._worker.pools
        return pools.databases.get(name) or pools.database(name)

    def _user(self, facts: dict[str, Any], database: str) -> User:
        """The user with what its logins have taught the other process; what we know better ourselves stays."""
        user = self._worker.pools.record(facts["name"])
        if user.scram_keys is None and facts["keys"] and user.secret == _secret(facts["secret"]):
            user.scram_keys = _keys(facts["keys"])
        for each in facts["found"]:
            if each["database"] not in user.found:
                secret = _secret(each["secret"])
                assert secret is not None
                user.found[each["database"]] = Found(secret, _keys(each["keys"]), each.get("typed", False))
        return user


def _facts(client: Client) -> dict[str, Any]:
    """All that the other process must know; it goes over the channel only."""
    user = client.user
    return {
        **{name: getattr(client, name) for name in _PLAIN},
        "database": client.database.name,
        "key": client.cancel_key.hex(),
        "user": {
            "name": user.name,
            "secret": _told(user.secret),
            "keys": _hex(user.scram_keys),
            "found": [
                {"database": name, "secret": _told(found.secret), "keys": _hex(found.scram_keys), "typed": found.typed}
                for name, found in user.found.items()
            ],
        },
    }


def _told(secret: Secret | None) -> list[str] | None:
    return None if secret is None else [secret.kind, secret.text]


def _secret(told: list[Any] | None) -> Secret | None:
    return None if told is None else Secret(told[0], told[1])


def _hex(keys: Keys | None) -> list[str]:
    return [] if keys is None else [key.hex() for key in keys]


def _keys(told: list[str]) -> Keys | None:
    return Keys(*map(bytes.fromhex, told)) if told else None
