"""One simple query of our own on a server in dialogue: reset, check and connect queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pgshoal.policy.hosts import Session
from pgshoal.wire import build, read
from pgshoal.wire.errors import WireError
from pgshoal.worker.handler import Handler
from pgshoal.worker.records import Server

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

_ERROR, _READY, _STATUS, _COPY_IN, _COPY_BOTH, _ROW = b"EZSGWD"
ASYNCHRONOUS: Final = frozenset(b"NAS")
EMPTY_CHECK: Final = "<empty>"
#: Why a server is closed that does not say what its sessions are like.
UNSAID: Final = "session query failed"
#: What a client may have set does not count: reset_val is the value that sessions begin with.
_SESSION: Final = (
    "SELECT pg_catalog.pg_is_in_recovery(), (SELECT reset_val FROM pg_catalog.pg_settings"
    " WHERE name OPERATOR(pg_catalog.=) 'default_transaction_read_only')"
)


class ServerQuery(Handler):
    """Runs one query; `done(error)` is called once, with the server's error or "", when it is ready and idle again.

    A server that ends in another state, or asks for COPY data, is closed with `broken` as the reason.
    """

    __slots__ = ("broken", "done", "error", "parameters", "server", "worker")

    def __init__(self, worker: Worker, server: Server, sql: str, broken: str, done: Callable[[str], None]) -> None:
        self.worker = worker
        self.server = server
        self.broken = broken
        self.done = done
        self.error = ""
        self.parameters: dict[str, str] = {}
        worker.handlers[server.conn] = self
        worker.engine.send(server.conn, build.query(sql))

    def message(self, kind: int, payload: bytes) -> None:
        """Only errors, parameters and the end matter."""
        try:
            if kind == _ERROR:
                fields = read.error_fields(payload)
                self.error = self.error or f"{fields.severity}: {fields.text}"
            elif kind == _STATUS:
                name, value = read.parameter_status(payload)
                self.parameters[name] = value
            elif kind in (_COPY_IN, _COPY_BOTH):
                self._break()
            elif kind == _READY:
                self._ready(read.ready_for_query(payload))
        except WireError as error:
            self.broken = error.reason
            self._break()

    def _ready(self, status: str) -> None:
        if status != "I":
            self._break()
            return
        self.worker.handlers.pop(self.server.conn, None)
        self.done(self.error)

    def _break(self) -> None:
        self.worker.servers.close(self.server, self.broken)

    def oversize(self, header: bytes) -> None:
        """A row too large for a dialogue: whoever writes such a check query gets a new server each time."""
        self._break()

    def closed(self, reason: str) -> None:
        """The server went away meanwhile."""
        self.worker.servers.gone(self.server, reason)


class SessionQuery(ServerQuery):
    """Asks what sessions of this server are like; `found` gets None if it does not say."""

    __slots__ = ("said",)

    def __init__(self, worker: Worker, server: Server, found: Callable[[Session | None], None]) -> None:
        self.said: list[bytes | None] = []
        super().__init__(worker, server, _SESSION, UNSAID, lambda error: found(self._session(error)))

    def message(self, kind: int, payload: bytes) -> None:
        """As every query of ours, with its rows."""
        if kind != _ROW:
            super().message(kind, payload)
            return
        try:
            self.said += read.data_row(payload)
        except WireError as error:
            self.broken = error.reason
            self._break()

    def _session(self, error: str) -> Session | None:
        if error or len(self.said) != 2:
            return None
        standby = self.said[0] == b"t"
        return Session(standby, standby or self.said[1] == b"on")


class UsedServer(Handler):
    """A server set aside until its check; anything but notices and parameters makes it unfit."""

    __slots__ = ("server", "worker")

    def __init__(self, worker: Worker, server: Server) -> None:
        self.worker = worker
        self.server = server
        worker.handlers[server.conn] = self

    def message(self, kind: int, payload: bytes) -> None:
        """The server speaks unasked."""
        if kind not in ASYNCHRONOUS:
            self.worker.servers.close(self.server, "SV_USED server got dirty")

    def oversize(self, header: bytes) -> None:
        """Not a message."""
        self.worker.servers.close(self.server, "bad pkt header")

    def closed(self, reason: str) -> None:
        """The server went away."""
        self.worker.servers.gone(self.server, reason)
