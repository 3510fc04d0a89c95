"""Cancels of this worker's own clients: hold the server, carry the request to it, let it go."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.policy import cancel as policy
from pgshoal.wire.build import cancel_request, ssl_request
from pgshoal.worker.handler import ConsoleLogin, Handler
from pgshoal.worker.records import Client, Server, ServerState

if TYPE_CHECKING:
    from pgshoal.worker.handler import WorkerFace

SENT: Final = "successfully sent cancel request"
FAILED: Final = "failed to send cancel request"
_IDLE: Final = "cancel request for idle client"
_NOW_IDLE: Final = "not sending cancel request for client that is now idle"
_SETTING: Final = "ignoring cancel request for server that is setting vars"
_YES = ord("S")
_NO = ord("N")

#: What became of a request, in the log's words.
Done = Callable[[str], None]


class CancelJob:
    """Requests for one client that nothing has been sent for yet: one signal will do for all of them."""

    __slots__ = ("client", "delivery", "since_us", "waiters", "worker")

    def __init__(self, worker: WorkerFace, client: Client) -> None:
        self.worker = worker
        self.client = client
        self.since_us = worker.engine.now_us()
        self.waiters: list[Done] = []
        self.delivery: CancelDelivery | None = None
        worker.front.cancels[client.conn] = self

    def start(self) -> None:
        """Deliver now if the query still runs and there is room for one more connection, else wait on."""
        worker, client = self.worker, self.client
        conn, _ = _server_of(worker, client)
        target = client.pool.servers.get(conn)
        if target is None or not target.cancel_key:
            self.finish(_NOW_IDLE)
            return
        pool = target.pool
        size = effective.pool_size(worker.config, pool.database.config, pool.user.name)
        if policy.may_deliver(target.cancels, len(pool.servers), size):
            with suppress(KeyError):  # the target died in this same wake
                self.delivery = CancelDelivery(worker, self, target)

    @property
    def active(self) -> bool:
        """Whether it is on its way to the server."""
        return self.delivery is not None

    def close(self) -> None:
        """The request is on its way: what comes from now on is another request."""
        if self.worker.front.cancels.get(self.client.conn) is self:
            del self.worker.front.cancels[self.client.conn]

    def finish(self, reason: str) -> None:
        """Tell all who wait."""
        self.close()
        waiters, self.waiters = self.waiters, []
        for done in waiters:
            done(reason)


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
        worker.handlers[self.conn] = worker.front.deliveries[self.conn] = self

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
            name = self.target.server_name if self._tls_mode() == "verify-full" else ""
            try:
                context = self.worker.tls.server_side(self.target.pool.database.config)
                if self.worker.engine.start_tls(self.conn, context, name):
                    return
            except (ValueError, OSError) as error:
                self.worker.log.warning(f"{self.worker.servers.prefix(self.record)}TLS setup failed: {error}")
        elif kind == _NO and not payload and self._tls_mode() in ("allow", "prefer"):
            self._deliver()
            return
        self.end(FAILED)

    def _tls_mode(self) -> str:
        return effective.server_tls(self.worker.config.settings, self.target.pool.database.config).server_tls_sslmode

    def secured(self, version: str, cipher: str, alpn: str, sni: str, certificate: bytes | None) -> None:
        """The handshake is done."""
        self.record.tls = f"{version}/{cipher}"
        self._deliver()

    def _deliver(self) -> None:
        # PostgreSQL closes when it has signalled the backend; only then may the target serve somebody else.
        self.job.close()
        self.worker.engine.send(self.conn, cancel_request(self.target.cancel_key))

    def oversize(self, header: bytes) -> None:
        """Not PostgreSQL's way to answer."""
        self.end(FAILED)

    def closed(self, reason: str) -> None:
        """The end of file that says the request was handled, or a connection that failed."""
        sent = SENT if not reason.startswith(("connect failed", "tls:")) else FAILED
        self.worker.servers.gone(self.record, sent)
        self._release(sent)

    def end(self, reason: str) -> None:
        """Give up."""
        self.worker.servers.close(self.record, reason)
        self._release(reason)

    def _release(self, reason: str) -> None:
        self.target.cancels -= 1
        self.worker.front.deliveries.pop(self.conn, None)
        if self.worker.servers.by_conn.get(self.target.conn) is self.target:
            with suppress(KeyError):
                self.worker.engine.unhold(self.target.conn)
        self.job.finish(reason)
        retry(self.worker)


def cancel(worker: WorkerFace, key: bytes, done: Done) -> CancelJob | None:
    """Cancel what the client runs that holds this key; `done` is called once, perhaps before this returns."""
    found = worker.front.find_key(key)
    if found is None:
        done(policy.NOBODY)
        return None
    if isinstance(found, ConsoleLogin):
        if worker.console is not None:
            worker.console.cancel(found)
        done("cancel request for console client")
        return None
    conn, why = _server_of(worker, found)
    if not conn:
        done(why)
        return None
    job = worker.front.cancels.get(found.conn) or CancelJob(worker, found)
    if len(job.waiters) >= policy.PER_CLIENT_MAX:
        done(policy.NOBODY)
        return None
    job.waiters.append(done)
    if job.delivery is None:
        job.start()
    return job


def retry(worker: WorkerFace) -> None:
    """A connection has ended: some request that waits may have room now."""
    for job in list(worker.front.cancels.values()):
        if job.delivery is None:
            job.start()


def expire(worker: WorkerFace, now_us: int) -> None:
    """cancel_wait_timeout for requests that wait, server_connect_timeout for deliveries; then try those that wait."""
    settings, front = worker.config.settings, worker.front
    wait_us, deliver_us = int(settings.cancel_wait_timeout * 1e6), int(settings.server_connect_timeout * 1e6)
    for job in list(front.cancels.values()):
        if job.delivery is None and wait_us > 0 and now_us - job.since_us > wait_us:
            job.finish("cancel_wait_timeout")
    for delivery in list(front.deliveries.values()):
        if deliver_us > 0 and now_us - delivery.since_us > deliver_us:
            delivery.end("connect timeout")
    retry(worker)


def _server_of(worker: WorkerFace, client: Client) -> tuple[int, str]:
    """Who works for the client now; or 0 and why nobody does, also when the client has just died."""
    if client.conn not in worker.front.clients:
        return 0, _IDLE
    try:
        conn = worker.engine.link_of(client.conn)
        setting = not conn and worker.engine.facts(client.conn).mode == "linking"
    except KeyError:
        return 0, _IDLE
    return conn, _SETTING if setting else _IDLE
