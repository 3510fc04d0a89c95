"""Replication connections: each client has a server of its own, in a pool of its own, from its login to its end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.errors import Refused, refuse
from pgshoal.wire import read
from pgshoal.wire.build import READY_IDLE, backend_key_data, notice
from pgshoal.wire.errors import WireError
from pgshoal.worker import clients
from pgshoal.worker.records import Client, Pool, Server, ServerState, Stream, Welcome
from pgshoal.worker.server_queries import ASYNCHRONOUS, UsedServer
from pgshoal.worker.welcome import WelcomePlan

if TYPE_CHECKING:
    from pgshoal.engine.contract import ConnId
    from pgshoal.policy.startup import LoginWish
    from pgshoal.worker.app import Worker
    from pgshoal.worker.records import Database, User

Parameters = tuple[tuple[str, str], ...]

EVICTED: Final = "evicted for pool_size"
CLIENT_CLOSED: Final = "replication client was closed"
#: By kind of replication: how a server is asked for it, and what the log says.
WORDS: Final = {"none": "no", "logical": "database", "physical": "yes"}
_ERROR: Final = ord("E")


def startup(stream: Stream) -> Parameters:
    """What a server's startup packet says beyond user, database and the entry's own parameters."""
    options = (("options", stream.options),) if stream.options else ()
    return (*stream.parameters, *options, ("replication", WORDS[stream.kind]))


class Replication:
    """All replication clients of the worker and their servers.

    A client's pool is found by nobody else, so its server is never given to another client. It counts in the rows
    of the pool it would belong to otherwise, so limits hold. The engine gets to know the server when the client
    says its first word: until then it is in dialogue, out of reach of all that looks for idle servers.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: servers that are ready and wait for the client's first word, with what they reported
        self.ready: dict[ConnId, list[tuple[str, str]]] = {}

    # -- the client's side

    def pool(self, database: Database, user: User, wish: LoginWish, wished: Parameters) -> Pool:
        """A pool for one client that has proved itself."""
        return self.worker.pools.stream_pool(database, user, Stream(wish.replication, wished, wish.options))

    def left(self, client: Client) -> None:
        """The client is gone, and takes its server with it, however far that is."""
        pool = client.pool
        if not pool.servers and pool.stream is not None and pool.stream.evicted:
            self._take_back(pool)
        for server in list(pool.servers.values()):
            if server.state is ServerState.CANCEL:
                continue
            # One the engine has closed with its client is still to be told of, with the engine's reason.
            with suppress(KeyError):
                self.worker.engine.facts(server.conn)
                self.worker.servers.close(server, CLIENT_CLOSED)
        self._settle(pool)

    def _take_back(self, pool: Pool) -> None:
        """It waits no more for the busy server that was to go at its release."""
        shared = self._shared(pool)
        if shared is not None:
            self.worker.servers.promises.settle((shared,))

    def _shared(self, pool: Pool) -> Pool | None:
        """The pool of everybody else with this database and user."""
        return self.worker.pools.by_key.get((pool.database.name, pool.user.name))

    def starved(self, pool: Pool) -> None:
        """The client has said something: from now on the engine relays."""
        for server in list(pool.servers.values()):
            parameters = self.ready.pop(server.conn, None)
            if parameters is not None:
                self.worker.handlers.pop(server.conn, None)
                with suppress(KeyError):  # it died in this same wake
                    self.worker.engine.enroll(server.conn, pool.id, parameters)

    # -- the server's side

    def logged_in(self, server: Server, parameters: list[tuple[str, str]]) -> None:
        """The server is ready: its client is welcomed with what this very server has reported."""
        worker, pool = self.worker, server.pool
        server.state = ServerState.STREAM
        self.ready[server.conn] = parameters
        Standby(worker, server)
        worker.growth.want(pool)  # no more hushed
        waiting, pool.login_queue = pool.login_queue, {}
        for client in waiting.values():
            stood = worker.front.unwelcomed.pop(client.conn)
            self._greet(client, stood.wished, parameters)

    def _greet(self, client: Client, wished: Parameters, parameters: list[tuple[str, str]]) -> None:
        worker = self.worker
        settings = worker.config.settings
        order = worker.front.rules.order
        plan = WelcomePlan(Welcome(parameters), "session", settings.max_prepared_statements, order)
        # Nothing must differ from the server, or it would be set there, and many servers of this kind know no SET.
        tracked = plan.told(())[1]
        reported = {name.lower() for name, _ in parameters}
        told, _ = plan.told(tuple(pair for pair in wished if pair[0].lower() not in reported))
        message = settings.login_notify_message
        key = backend_key_data(client.cancel_key)
        greeting = b"%b%b%b%b" % (told, key, notice(message) if message else b"", READY_IDLE)
        with suppress(KeyError):  # as in `clients`: its CLOSED is still to be read
            # No limit holds for a stream.
            worker.engine.admit(client.conn, client.pool.id, tracked, 0, 0, greeting)

    def failed(self, pool: Pool, refused: Refused | None) -> None:
        """An attempt has not succeeded. A refusal is the end, the log says why; else there will be another one."""
        if refused is not None:
            clients.close_pool(self.worker, pool, refuse("login_failed"))
            self._settle(pool)
        else:
            self.worker.growth.want(pool)

    def lost(self, server: Server, reason: str) -> None:
        """A server has gone, or was closed; its client has nothing left to do here."""
        pool = server.pool
        self.ready.pop(server.conn, None)
        if server.state is not ServerState.CANCEL:
            for client in list(pool.clients.values()):
                if self._to_be_told(client, reason):
                    clients.close(self.worker, client, refuse("server_reason", reason=reason))
        self._settle(pool)

    def _to_be_told(self, client: Client, reason: str) -> bool:
        """Not those that wait for another attempt, nor those whose FAULT or CLOSED is still to be read."""
        if client.conn in self.worker.front.unwelcomed:
            return reason == refuse("connect_string_changed").text
        try:
            return self.worker.engine.facts(client.conn).mode in ("parked", "waiting")
        except KeyError:
            return False

    def _settle(self, pool: Pool) -> None:
        if not pool.clients and not pool.servers and self.worker.pools.by_id.get(pool.id) is pool:
            self.worker.pools.drop(pool)

    # -- limits

    def make_room(self, pool: Pool) -> None:
        """The client waits for a slot: one idle server of the same database and user goes, or a busy one at its end."""
        worker, stream = self.worker, pool.stream
        limit, row = worker.budget.limits(pool).pool, pool.rows.pool
        shared = self._shared(pool)
        if stream is None or shared is None or not limit:
            return
        if worker.budget.count(row, limit) < worker.budget.part(limit):
            return
        if worker.escrow.coming(row) or worker.servers.promises.owed((shared,)):
            return
        # One for one: after this the pool may stay as far above its size as the reserve allows.
        stream.evicted = True
        worker.growth.give_up(shared, EVICTED)


class Standby(UsedServer):
    """A server that is ready while its client is silent."""

    __slots__ = ()

    def message(self, kind: int, payload: bytes) -> None:
        """Unasked: notices and reports are dropped; an error is the end, and the client is told its text."""
        if kind in ASYNCHRONOUS:
            return
        reason = "unknown pkt from server"
        if kind == _ERROR:
            with suppress(WireError):
                reason = read.error_fields(payload).text
        self.worker.servers.close(self.server, reason)
