"""Cancel requests: whose key it is, here, at another worker of the fleet or at another node, and who waits for it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.policy import cancel as policy
from pgshoal.worker import cancel_job, clients
from pgshoal.worker.cancel_job import CancelJob
from pgshoal.worker.handler import Handler
from pgshoal.worker.log import place, socket_prefix
from pgshoal.worker.records import Client

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.worker.client_login import ClientLogin
    from pgshoal.worker.handler import WorkerFace
    from pgshoal.worker.peers import Forward

WAIT_TIMEOUT: Final = "cancel_wait_timeout"


class Carrier(Handler):
    """The connection that brought a cancel request; it stays open until the request has been delivered.

    A client that does not wait for that changes nothing: its request is delivered all the same.
    """

    __slots__ = ("addresses", "conn", "connect_time", "job", "lead", "number", "since_us", "where", "worker")

    def __init__(self, worker: WorkerFace, login: ClientLogin) -> None:
        self.worker = worker
        self.conn = login.conn
        self.connect_time = login.connect_time
        self.number = login.number
        self.lead = login.lead()
        self.addresses = login.peer_host, login.peer_port, login.local_host, login.local_port
        self.where = place(login.peer_host, login.peer_port, login.peer_pid)
        self.since_us = worker.engine.now_us()
        #: what it waits for; None if that is known to another worker only
        self.job: CancelJob | Forward | None = None
        worker.handlers[self.conn] = worker.front.carriers[self.conn] = self

    def closed(self, reason: str) -> None:
        """The client did not wait."""
        if self._forget():
            clients.log_closing(self.worker, self.lead, reason, self.connect_time, told=False)

    def is_for(self, database: str) -> None:
        """Whose client it is for; the log then says so."""
        self.lead = socket_prefix("C", self.conn, database, "", self.where)

    def finish(self, reason: str) -> None:
        """Close the client's side; it never gets an error packet."""
        if self._forget():
            self.worker.handlers.pop(self.conn, None)
            _drop(self.worker, self.conn, self.lead, self.connect_time, reason)

    def _forget(self) -> bool:
        # An id may be another connection's by now.
        if self.worker.front.carriers.get(self.conn) is not self:
            return False
        del self.worker.front.carriers[self.conn]
        return True


def begin(worker: WorkerFace, login: ClientLogin, key: bytes) -> None:
    """A cancel request has come on the connection of `login`, which is no login any more."""
    front, config = worker.front, worker.config
    if len(front.carriers) >= policy.carriers_max(config.settings.max_client_conn):
        _drop(worker, login.conn, login.lead(), login.connect_time, policy.NOBODY)
        return
    route = policy.route(key, front.stamp, policy.seats_of(worker.fleet.workers), config.peers)
    if front.find_key(key) is not None:
        route = policy.Here(key)  # also one from before peer_id was changed, or from another seat
    carrier = Carrier(worker, login)
    match route:
        case policy.Here() if front.find_key(route.key) is not None:
            carrier.job = job = cancel_job.cancel(worker, route.key, carrier.finish)
            if job is not None:
                carrier.is_for(job.client.database.name)
        case policy.Peer():
            carrier.job = worker.peers.forward(route.peer_id, route.key, carrier)
        case policy.Here() | policy.Seat():  # a client that has moved kept its key
            worker.fleet.ask("cancel", lambda answer: _answered(carrier, answer), {"key": route.key.hex()})
        case policy.Lost():
            carrier.finish(route.reason)


def _answered(carrier: Carrier, answer: Message | None) -> None:
    """What another worker did; without a supervisor there is none."""
    fields = {} if answer is None else answer.fields
    carrier.is_for(fields.get("database", ""))
    carrier.finish(fields.get("reason", policy.NOBODY))


def listen(worker: WorkerFace) -> None:
    """Deliver what reached other workers of the fleet."""

    def heard(message: Message) -> None:
        key = bytes.fromhex(message["key"])
        holder = worker.front.find_key(key)
        database = holder.database.name if isinstance(holder, Client) else ""

        def done(reason: str) -> None:
            worker.fleet.reply(message, {"reason": reason, "database": database})

        cancel_job.cancel(worker, key, done)

    worker.fleet.on("cancel", heard)


def expire(worker: WorkerFace, now_us: int) -> None:
    """What waits too long: requests for our clients, for other workers' and for other nodes'."""
    cancel_job.expire(worker, now_us)
    worker.peers.expire(now_us)
    wait_us = int(worker.config.settings.cancel_wait_timeout * 1e6)
    if wait_us > 0:
        for carrier in list(worker.front.carriers.values()):
            if carrier.job is None and now_us - carrier.since_us > wait_us:
                carrier.finish(WAIT_TIMEOUT)


def _drop(worker: WorkerFace, conn: int, lead: str, connect_time: float, reason: str) -> None:
    clients.log_closing(worker, lead, reason, connect_time, told=False)
    with suppress(KeyError):
        worker.engine.close(conn, b"", reason)
