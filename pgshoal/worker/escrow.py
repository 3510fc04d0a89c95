"""The sockets of our servers in the supervisor's hands, and the slots of those whose backends are not gone yet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Rows, Server

#: A server that takes longer to end is not waited for: another one may be evicted meanwhile.
SOON_US: Final = 1_000_000
#: A slot must not be lost to one message that was.
AGAIN_US: Final = 10_000_000
#: How CLOSED begins when the server's side ended first, or never was.
_ENDED_FIRST: Final = ("server conn crashed?", "connect failed")
#: Our own reasons to close a server that runs no query.
_AT_REST: Final = (
    *_ENDED_FIRST,
    "client disconnect while server was not ready",
    "idle transaction timeout",
    "idle server got dirty",
)


@dataclass(slots=True)
class Dying:
    """A server we have closed; its backend may live on for a while."""

    rows: Rows
    since_us: int
    said_us: int


def ended_first(reason: str, tls: bool) -> bool:
    """Whether CLOSED with this reason means that there is no backend any more.

    The end of a TLS session is not that of its connection: then the supervisor looks at the socket itself.
    """
    return reason.startswith(_ENDED_FIRST) and not tls


def at_work(reason: str) -> bool:
    """Whether the backend of a server that was closed for this reason may still run a query."""
    return not reason.startswith(_AT_REST)


class Escrow:
    """Tells the supervisor of every server from connect to close, and hears when a backend is really gone."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._dying: dict[int, Dying] = {}
        worker.fleet.on("gone", self._gone)

    def begin(self, server: Server) -> None:
        """Right after `connect`, before anything can be sent: from now on the supervisor can outlive us for it."""
        worker = self.worker
        with suppress(KeyError, RuntimeError):  # it has failed already; or there are no sockets at all
            fd = worker.engine.descriptor(server.conn)
            database = server.pool.database
            mode = effective.server_tls(worker.config.settings, database.config).server_tls_sslmode
            tls = mode != "disable" and not isinstance(server.target, str)
            fields = {
                "server": server.number,
                "rows": list(server.rows or ()),
                "host": server.address,
                "port": server.port,
                "tls": tls,
                "database": database.name,
            }
            worker.fleet.send("escrow", fields, fd=fd)

    def keyed(self, server: Server) -> None:
        """BackendKeyData has come."""
        self.worker.fleet.send("backend", {"server": server.number, "key": server.cancel_key.hex()})

    def lost(self, server: Server) -> None:
        """Its backend ended first: the slot is free."""
        rows, server.rows = server.rows, None
        if rows is not None:
            self.worker.fleet.send("lost", {"server": server.number})
            self.worker.budget.give(rows)
            self.worker.growth.freed()

    def bury(self, server: Server, busy: bool) -> None:
        """We have closed it: the slot counts until `gone`."""
        rows, server.rows = server.rows, None
        if rows is not None:
            now_us = self.worker.engine.now_us()
            self._dying[server.number] = Dying(rows, now_us, now_us)
            self.worker.fleet.send("bury", {"server": server.number, "busy": busy})

    def _gone(self, message: Message) -> None:
        dying = self._dying.pop(message["server"], None)
        if dying is not None:
            self.worker.budget.give(dying.rows)
            self.worker.growth.freed()
            self.worker.pause.changed()

    def expire(self, now_us: int) -> None:
        """Ask again for those that take long: the supervisor answers at once if it knows nothing of them (any more)."""
        for number, dying in list(self._dying.items()):
            if now_us - dying.said_us >= AGAIN_US:
                dying.said_us = now_us
                self.worker.fleet.send("bury", {"server": number, "busy": True})

    def dying(self, row: int) -> int:
        """Servers of a row that are closed and not gone."""
        return sum(row in each.rows for each in self._dying.values())

    def coming(self, row: int) -> int:
        """Those of them that will be gone soon."""
        since_us = self.worker.engine.now_us() - SOON_US
        return sum(row in each.rows for each in self._dying.values() if each.since_us >= since_us)
