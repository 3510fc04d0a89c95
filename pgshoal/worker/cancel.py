"""Cancel requests: find whose key it is, hold that server, deliver over a new connection, let the server go."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pgshoal.config import effective
from pgshoal.engine.contract import ConnId
from pgshoal.wire.build import cancel_request, ssl_request
from pgshoal.worker import clients
from pgshoal.worker.handler import ConsoleLogin, Handler
from pgshoal.worker.records import Client, Server, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.client_login import ClientLogin
    from pgshoal.worker.handler import WorkerFace

SENT = "successfully sent cancel request"
_YES = ord("S")
_NO = ord("N")


class CancelJob(Handler):
    """The connection that brought a cancel request; it stays open until the request has been delivered.

    A client that does not wait for that changes nothing: its request is delivered all the same.
    """

    __slots__ = ("client", "conn", "connect_time", "delivery", "gone", "lead", "number", "since_us", "worker")

    def __init__(self, worker: WorkerFace, login: ClientLogin, client: Client) -> None:
        self.worker = worker
        self.conn = login.conn
        self.connect_time = login.connect_time
        self.number = login.number
        self.lead = login.lead()
        self.client = client
        self.since_us = worker.engine.now_us()
        self.delivery: CancelDelivery | None = None
        self.gone = False

    def closed(self, reason: str) -> None:
        """The client did not wait."""
        self.gone = True
        clients.log_closing(self.worker, self.lead, reason, self.connect_time, told=False)

    def start(self) -> None:
        """Deliver now if the query still runs and the pool has room for one more connection, else wait on."""
        worker = self.worker
        client = self.client
        target = client.pool.servers.get(_server_of(worker, client))
        if target is None or not target.cancel_key:
            self.finish("not sending cancel request for client that is now idle")
            return
        pool = target.pool
        size = effective.pool_size(worker.config, pool.database.config, pool.user.name)
        if size and len(pool.servers) >= 2 * size:
            return
        with suppress(KeyError):  # the target died in this same wake
            self.delivery = CancelDelivery(worker, self, target)

    def finish(self, reason: str) -> None:
        """Close the client's side; it never gets an error packet."""
        self.worker.front.cancels.pop(self.conn, None)
        if not self.gone:
            self.worker.handlers.pop(self.conn, None)
            _drop(self.worker, self.conn, self.lead, self.connect_time, reason)


class CancelDelivery(Handler):
    """Our connection to the server that carries the request; the target is held until the server has closed it."""

    __slots__ = ("conn", "job", "record", "since_us", "target", "worker")

    def __init__(self, worker: WorkerFace, job: CancelJob, target: Server) -> None:
        self.worker = worker
        self.job = job
        self.target = target
        engine, pool = worker.engine, target.pool
        self.since_us = engine.now_us()
        engine.hold(target.conn)
        target.cancels += 1
        self.conn = engine.connect(target.target, worker.servers.options)
        self.record = Server(
            self.conn, worker.next_number(), pool, ServerState.CANCEL, time.time(), self.since_us,
            target.address, target.port, target.target,
        )  # fmt: skip
        pool.database.server_connections += 1
        pool.user.server_connections += 1
        worker.servers.by_conn[self.conn] = pool.servers[self.conn] = self.record
        worker.handlers[self.conn] = self

    def connected(self) -> None:
        """Over TLS if the target's own connection is."""
        worker, record = self.worker, self.record
        _, _, record.local_host, record.local_port = worker.engine.addresses(self.conn)
        if worker.config.settings.log_connections:
            unix = isinstance(record.target, str)
            where = "" if unix else f" (from {record.local_host}:{record.local_port})"
            worker.log.log(f"{worker.servers.prefix(record)}new connection to server{where}")
        if self.target.tls:
            worker.engine.send(self.conn, ssl_request())
        else:
            self._deliver()

    def message(self, kind: int, payload: bytes) -> None:
        """The answer to SSLRequest; a server says nothing else to a cancel request."""
        if kind == _YES and not payload:
            mode = self.worker.config.settings.server_tls_sslmode
            name = self.target.server_name if mode == "verify-full" else ""
            try:
                if self.worker.engine.start_tls(self.conn, self.worker.tls.server_side(), name):
                    return
            except (ValueError, OSError) as error:
                self.worker.log.warning(f"{self.worker.servers.prefix(self.record)}TLS setup failed: {error}")
        elif kind == _NO and not payload and self.worker.config.settings.server_tls_sslmode in ("allow", "prefer"):
            self._deliver()
            return
        self.end("failed to send cancel request")

    def secured(self, version: str, cipher: str, alpn: str, sni: str, certificate: bytes | None) -> None:
        """The handshake is done."""
        self.record.tls = f"{version}/{cipher}"
        self._deliver()

    def _deliver(self) -> None:
        # PostgreSQL closes when it has signalled the backend; only then may the target serve somebody else.
        self.worker.engine.send(self.conn, cancel_request(self.target.cancel_key))

    def oversize(self, header: bytes) -> None:
        """Not PostgreSQL's way to answer."""
        self.end("failed to send cancel request")

    def closed(self, reason: str) -> None:
        """The end of file that says the request was handled, or a connection that failed."""
        sent = SENT if not reason.startswith(("connect failed", "tls:")) else "failed to send cancel request"
        self.worker.servers.gone(self.record, sent)
        self._release(sent)

    def end(self, reason: str) -> None:
        """Give up."""
        self.worker.servers.close(self.record, reason)
        self._release(reason)

    def _release(self, reason: str) -> None:
        self.target.cancels -= 1
        if self.worker.servers.by_conn.get(self.target.conn) is self.target:
            with suppress(KeyError):
                self.worker.engine.unhold(self.target.conn)
        self.job.finish(reason)
        retry(self.worker)


def begin(worker: WorkerFace, login: ClientLogin, key: bytes) -> None:
    """A cancel request has come on the connection of `login`, which is no login any more."""
    peer_id = worker.config.settings.peer_id
    if peer_id > 0 and len(key) == 8:
        if key[1] | key[2] << 8 != peer_id:
            _drop(worker, login.conn, login.lead(), login.connect_time, "could not find peer to forward request to")
            return
        # The hop budget is spent on the way here; the key as we gave it out has it whole.
        key = key[:7] + bytes((key[7] | 3,))
    found = worker.front.find_key(key)
    reason = ""
    if found is None:
        reason = "failed cancel request"
    elif isinstance(found, ConsoleLogin):
        reason = "cancel request for console client"
        if worker.console is not None:
            worker.console.cancel(found)
    elif not _server_of(worker, found):
        reason = "cancel request for idle client"
    if reason or not isinstance(found, Client):
        _drop(worker, login.conn, login.lead(), login.connect_time, reason)
        return
    job = CancelJob(worker, login, found)
    worker.handlers[job.conn] = worker.front.cancels[job.conn] = job
    job.start()


def retry(worker: WorkerFace) -> None:
    """A connection has ended: some cancel request that waits may have room now."""
    for job in list(worker.front.cancels.values()):
        if job.delivery is None:
            job.start()


def expire(worker: WorkerFace, now_us: int) -> None:
    """cancel_wait_timeout for requests that wait, server_connect_timeout for deliveries; then try those that wait."""
    settings = worker.config.settings
    wait_us, deliver_us = int(settings.cancel_wait_timeout * 1e6), int(settings.server_connect_timeout * 1e6)
    for job in list(worker.front.cancels.values()):
        delivery = job.delivery
        if delivery is None:
            if wait_us > 0 and now_us - job.since_us > wait_us:
                job.finish("cancel_wait_timeout")
        elif deliver_us > 0 and now_us - delivery.since_us > deliver_us:
            delivery.end("connect timeout")
    retry(worker)


def _server_of(worker: WorkerFace, client: Client) -> ConnId:
    """Who works for the client now; 0 for nobody, also when the client has just died."""
    if client.conn not in worker.front.clients:
        return 0
    try:
        return worker.engine.link_of(client.conn)
    except KeyError:
        return 0


def _drop(worker: WorkerFace, conn: ConnId, lead: str, connect_time: float, reason: str) -> None:
    clients.log_closing(worker, lead, reason, connect_time, told=False)
    with suppress(KeyError):
        worker.engine.close(conn, b"", reason)
