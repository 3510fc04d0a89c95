"""Other nodes behind the same address: cancel requests for their clients are passed on to them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pgshoal.config import effective
from pgshoal.engine.contract import Address, ConnId
from pgshoal.fleet.ledger import Kind, LedgerFull
from pgshoal.policy import cancel as policy
from pgshoal.wire.build import cancel_request
from pgshoal.worker.cancel_job import FAILED, SENT
from pgshoal.worker.handler import Handler
from pgshoal.worker.log import place
from pgshoal.worker.resolver import endpoint

if TYPE_CHECKING:
    from pgshoal.config.model import PeerConfig
    from pgshoal.worker.app import Worker
    from pgshoal.worker.cancel import Carrier

WAIT_TIMEOUT: Final = "cancel_wait_timeout"
REMOVED: Final = "peer removed"
AGAIN_S: Final = 0.02


class Forward(Handler):
    """One request for another node: first it waits for a slot, then it is our connection to that node.

    PgBouncer's peers speak no TLS for this, and read nothing but the request.
    """

    __slots__ = (
        "address", "carrier", "conn", "connect_time", "key", "line", "local", "number", "sent", "since_us", "worker",
    )  # fmt: skip

    def __init__(self, worker: Worker, line: Line, key: bytes, carrier: Carrier) -> None:
        self.worker = worker
        self.line = line
        self.key = key
        self.carrier = carrier
        self.since_us = worker.engine.now_us()
        self.conn: ConnId = 0
        self.number = 0
        self.connect_time = 0.0
        self.address: Address = ""
        self.local: list[str | int] = ["", 0]
        self.sent = False

    @property
    def active(self) -> bool:
        """Whether it is on its way."""
        return self.conn != 0

    def open(self, config: PeerConfig, host: str) -> None:
        """Connect to an address of the peer."""
        engine = self.worker.engine
        self.since_us = engine.now_us()
        self.connect_time = time.time()
        self.address = endpoint(host, config.port)
        try:
            self.conn = engine.connect(self.address, self.worker.servers.options)
        except ValueError:  # such as an IPv6 scope this machine does not have
            self.line.over(self, FAILED)
            return
        self.number = self.worker.next_number()
        self.worker.handlers[self.conn] = self

    def connected(self) -> None:
        """Nothing else is ever said on this connection."""
        worker, engine = self.worker, self.worker.engine
        _, _, *self.local = engine.addresses(self.conn)
        if worker.config.settings.log_connections:
            where = "" if isinstance(self.address, str) else f" (from {self.local[0]}:{self.local[1]})"
            worker.log.log(f"{self.prefix}new connection to server{where}")
        self.sent = True
        engine.send(self.conn, cancel_request(self.key))

    def message(self, kind: int, payload: bytes) -> None:
        """Not how a peer answers."""
        self.end(FAILED)

    def oversize(self, header: bytes) -> None:
        """Not how a peer answers."""
        self.end(FAILED)

    def closed(self, reason: str) -> None:
        """The end of file that says the request was handled, or a connection that failed."""
        self._log_closing(SENT if self.sent else reason)
        self.line.over(self, SENT if self.sent else FAILED)

    def end(self, reason: str) -> None:
        """Give up."""
        worker = self.worker
        if self.conn:
            worker.handlers.pop(self.conn, None)
            self._log_closing(reason)
            with suppress(KeyError):  # it died in this same wake
                worker.engine.close(self.conn, b"", reason)
        self.line.over(self, reason)

    @property
    def prefix(self) -> str:
        """How log lines begin that speak of this connection."""
        return f"S-0x{self.conn:x}: {self.line.name} "

    def _log_closing(self, reason: str) -> None:
        if self.worker.config.settings.log_disconnections:
            age_s = int(time.time() - self.connect_time)
            self.worker.log.log(f"{self.prefix}closing because: {reason} (age={age_s}s)")


@dataclass(slots=True, eq=False)
class Line:
    """Requests for one peer; `active` are those with a slot, their host name being looked up included."""

    peers: Peers
    peer_id: int
    row: int  # of the ledger
    name: str = ""
    looking: bool = False
    waiting: deque[Forward] = field(default_factory=deque)
    active: dict[Forward, None] = field(default_factory=dict)

    def over(self, forward: Forward, reason: str) -> None:
        """A request has ended in some way."""
        self.peers.over(self, forward, reason)


class Peers:
    """Every peer's line. What a peer's pool_size allows counts for the whole fleet."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        #: peers something was sent to
        self.lines: dict[int, Line] = {}

    def forward(self, peer_id: int, key: bytes, carrier: Carrier) -> Forward | None:
        """Pass a request on; its carrier is told the end."""
        worker, config = self.worker, self.worker.config
        under_way = sum(len(line.waiting) + len(line.active) for line in self.lines.values())
        if not policy.may_forward(under_way, config.settings.max_client_conn):
            carrier.finish(policy.NOBODY)
            return None
        try:
            line = self._line(peer_id)
        except LedgerFull as error:
            worker.log.error(str(error))
            carrier.finish(policy.NOBODY)
            return None
        carrier.lead = f"C-0x{carrier.conn:x}: peer-{peer_id}@{carrier.where} "
        forward = Forward(worker, line, key, carrier)
        line.waiting.append(forward)
        self._serve(line)
        return forward

    def over(self, line: Line, forward: Forward, reason: str) -> None:
        """A request has ended: give its slot to the next."""
        if forward in line.active:
            del line.active[forward]
            self.worker.fleet.ledger.leave(line.row)
        elif forward in line.waiting:
            line.waiting.remove(forward)
        forward.carrier.finish(reason)
        self._serve(line)

    def expire(self, now_us: int) -> None:
        """cancel_wait_timeout for those that wait, server_connect_timeout for the others; removed peers."""
        config = self.worker.config
        wait_us = int(config.settings.cancel_wait_timeout * 1e6)
        open_us = int(config.settings.server_connect_timeout * 1e6)
        for peer_id, line in list(self.lines.items()):
            removed = peer_id not in config.peers
            for forward in [*line.waiting]:
                if removed or (wait_us > 0 and now_us - forward.since_us > wait_us):
                    self.over(line, forward, REMOVED if removed else WAIT_TIMEOUT)
            for forward in [*line.active]:
                if removed or (open_us > 0 and now_us - forward.since_us > open_us):
                    forward.end(REMOVED if removed else "connect timeout")
            if removed:
                del self.lines[peer_id]
                self.worker.fleet.ledger.forget(line.row)
            else:
                self._serve(line)

    # -- slots

    def _serve(self, line: Line) -> None:
        config = self.worker.config
        while line.waiting and line.peer_id in config.peers and self._take(line):
            forward = line.waiting.popleft()
            line.active[forward] = None
            self._open(forward, config.peers[line.peer_id])

    def _open(self, forward: Forward, peer: PeerConfig) -> None:
        def found(addresses: list[str]) -> None:
            if forward not in forward.line.active:
                return  # given up meanwhile
            if addresses:
                forward.open(peer, addresses[0])
            else:
                forward.line.over(forward, "server DNS lookup failed")

        self.worker.resolver.find(peer.host, found)

    def _take(self, line: Line) -> bool:
        size = effective.peer_pool_size(self.worker.config, line.peer_id)
        if self.worker.fleet.ledger.admit(line.row, size):
            return True
        if not line.looking:
            # Nobody rings for these slots, and they are free again within milliseconds.
            line.looking = True
            self.worker.loop.call_later(AGAIN_S, self._look, line)
        return False

    def _look(self, line: Line) -> None:
        line.looking = False
        self._serve(line)
        self.worker.settle()

    def _line(self, peer_id: int) -> Line:
        line = self.lines.get(peer_id)
        if line is None:
            row = self.worker.fleet.ledger.row(Kind.PEER, str(peer_id))
            line = self.lines[peer_id] = Line(self, peer_id, row)
        peer = self.worker.config.peers[peer_id]
        host = "unix" if peer.host.startswith(("/", "@")) else peer.host
        line.name = f"peer-{peer_id}@{place(host, peer.port)}"
        return line

    # -- for the console

    def rows(self) -> list[tuple[int, str, int, int]]:
        """SHOW PEERS: peer_id, host, port, pool_size."""
        config = self.worker.config
        return [
            (peer.peer_id, peer.host, peer.port, effective.peer_pool_size(config, peer.peer_id))
            for _, peer in sorted(config.peers.items())
        ]

    def pool_rows(self) -> list[tuple[int, int, int, int, int]]:
        """SHOW PEER_POOLS: peer_id, cl_active_cancel_req, cl_waiting_cancel_req, sv_active_cancel, sv_login."""
        rows = []
        for peer_id, line in sorted(self.lines.items()):
            sent = sum(forward.sent for forward in line.active)
            rows.append((peer_id, sent, len(line.waiting) + len(line.active) - sent, sent, len(line.active) - sent))
        return rows

    def connections(self) -> Iterator[Forward]:
        """Our connections to peers."""
        for line in self.lines.values():
            yield from (forward for forward in line.active if forward.active)
