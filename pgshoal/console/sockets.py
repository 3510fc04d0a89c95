"""What SHOW CLIENTS, SERVERS and SOCKETS say of one connection, and how it is found out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgshoal.console.tables import TABLES
from pgshoal.policy.access import CONSOLE_DATABASE
from pgshoal.worker.cancel_job import CancelJob
from pgshoal.worker.log import pointer
from pgshoal.worker.records import Pool, Server, ServerState

if TYPE_CHECKING:
    from pgshoal.console.session import AdminConsole, Session
    from pgshoal.engine.contract import ConnFacts, ConnId
    from pgshoal.worker.app import Worker
    from pgshoal.worker.cancel import Carrier
    from pgshoal.worker.client_login import ClientLogin
    from pgshoal.worker.peers import Forward
    from pgshoal.worker.records import Client

Value = str | int | None
Row = tuple[Value, ...]

#: Engine modes of a client after its login -> SHOW CLIENTS' state.
_CLIENT_STATES: Final = {"parked": "idle", "linked": "active", "linking": "active", "waiting": "waiting"}
#: Engine modes of a server that is with the engine -> SHOW SERVERS' state.
_SERVER_STATES: Final = {"idle": "idle", "linked": "active", "linking": "active", "held": "being_canceled"}
#: SHOW SOCKETS has no word for a client without a server.
_SOCKET_STATES: Final = {"cl_idle": "cl_active", "sv_new": "sv_login"}


@dataclass(frozen=True, slots=True)
class SocketFacts:
    """One connection. Times in wall-clock seconds, `wait_us` in microseconds."""

    side: str  # "C" or "S"
    conn: ConnId
    number: int
    user: str
    database: str
    state: str
    addr: str
    port: int
    local_addr: str
    local_port: int
    connect_time: float
    request_time: float
    wait_us: int
    remote_pid: int = 0
    tls: str = ""
    application_name: str = ""
    replication: str = "none"
    close_needed: bool = False
    link: ConnId = 0
    seat: int = 0
    prepared_statements: int = 0
    recv: int = 0
    send: int = 0

    @property
    def socket_state(self) -> str:
        """The state as SHOW SOCKETS spells it."""
        name = ("cl_" if self.side == "C" else "sv_") + self.state
        return _SOCKET_STATES.get(name, name)


def timestamp(seconds: float) -> str:
    """Local time as the console prints it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


def unique(conn: ConnId, seat: int) -> str:
    """A connection's pointer as its worker's log names it, with the seat in front: engines number for themselves."""
    return pointer(seat << 64 | conn)


GETTERS: Mapping[str, Callable[[SocketFacts], Value]] = {
    "type": lambda s: s.side,
    "user": lambda s: s.user or "(nouser)",
    "database": lambda s: s.database or "(nodb)",
    "replication": lambda s: s.replication,
    "state": lambda s: s.state,
    "addr": lambda s: s.addr,
    "port": lambda s: s.port,
    "local_addr": lambda s: s.local_addr,
    "local_port": lambda s: s.local_port,
    "connect_time": lambda s: timestamp(s.connect_time),
    "request_time": lambda s: timestamp(s.request_time),
    "wait": lambda s: s.wait_us // 1_000_000,
    "wait_us": lambda s: s.wait_us % 1_000_000,
    "close_needed": lambda s: int(s.close_needed),
    "ptr": lambda s: unique(s.conn, s.seat),
    "link": lambda s: unique(s.link, s.seat) if s.link else "",
    "remote_pid": lambda s: s.remote_pid,
    "tls": lambda s: s.tls,
    "application_name": lambda s: s.application_name,
    "prepared_statements": lambda s: s.prepared_statements,
    "id": lambda s: s.number,
    "recv_pos": lambda s: s.recv,
    "pkt_pos": lambda s: 0,
    "pkt_remain": lambda s: 0,
    "send_pos": lambda s: 0,
    "send_remain": lambda s: 0,
    "pkt_avail": lambda s: s.recv,
    "send_avail": lambda s: s.send,
}


class Snapshot:
    """Reads connections at one moment. One that died in this very wake is left out."""

    def __init__(self, worker: Worker, console: AdminConsole) -> None:
        self.worker = worker
        self.console = console
        self.now_us = worker.engine.now_us()
        self.seat = worker.fleet.seat
        self._wall_offset = time.time() - self.now_us / 1e6

    def clients(self) -> Iterator[SocketFacts]:
        """All after their login, by pool; then the console's."""
        for pool in sorted_pools(self.worker):
            yield from filter(None, map(self._client, pool.clients.values()))
        yield from filter(None, map(self._cancel, self.worker.front.carriers.values()))
        yield from filter(None, map(self._session, self.console.sessions.values()))

    def servers(self) -> Iterator[SocketFacts]:
        """All, by pool; then connections to peers."""
        for pool in sorted_pools(self.worker):
            yield from filter(None, map(self._server, pool.servers.values()))
        yield from filter(None, map(self._forward, self.worker.peers.connections()))

    def logins(self) -> Iterator[SocketFacts]:
        """Clients that have not proved themselves yet."""
        yield from filter(None, map(self._login, self.worker.front.logins.values()))

    # -- one connection

    def _facts(self, conn: ConnId) -> ConnFacts | None:
        try:
            return self.worker.engine.facts(conn)
        except KeyError:
            return None

    def _wall(self, at_us: int, otherwise: float) -> float:
        return self._wall_offset + at_us / 1e6 if at_us else otherwise

    def _since(self, at_us: int) -> int:
        return max(0, self.now_us - at_us) if at_us else 0

    def _client(self, client: Client) -> SocketFacts | None:
        facts = self._facts(client.conn)
        if facts is None:
            return None
        stood = self.worker.front.unwelcomed.get(client.conn)
        state = _CLIENT_STATES.get(facts.mode) if stood is None else "waiting"
        if state is None:
            return None
        link = facts.link
        if client.pool.stream is not None:
            link = link or next(iter(client.pool.servers), 0)
            state = "active" if stood is None else state
        application_name = ""
        if stood is None:
            application_name = self.worker.engine.parameters(client.conn).get("application_name", "")
        else:
            application_name = dict(stood.wished).get("application_name", "")
        return SocketFacts(
            "C", client.conn, client.number, client.user.name, client.database.name, state,
            client.peer_host, client.peer_port, client.local_host, client.local_port,
            client.connect_time,
            self._wall(facts.last_activity_us, client.connect_time),
            self._since(facts.request_us if stood is None else stood.since_us),
            client.peer_pid, client.tls, application_name, client.replication,
            link=link, prepared_statements=facts.prepared_statements,
            recv=facts.recv_pending, send=facts.send_pending, seat=self.seat,
        )  # fmt: skip

    def _session(self, session: Session) -> SocketFacts | None:
        login, facts = session.login, self._facts(session.conn)
        if facts is None:
            return None
        return SocketFacts(
            "C", login.conn, login.number, login.user.name, CONSOLE_DATABASE, "active" if session.pending else "idle",
            login.peer_host, login.peer_port, login.local_host, login.local_port,
            login.connect_time,
            self._wall(session.request_us, login.connect_time),
            self._since(session.request_us) if session.pending else 0,
            login.peer_pid, login.tls, dict(login.parameters).get("application_name", ""),
            recv=facts.recv_pending, send=facts.send_pending, seat=self.seat,
        )  # fmt: skip

    def _login(self, login: ClientLogin) -> SocketFacts | None:
        facts = self._facts(login.conn)
        if facts is None:
            return None
        user = "" if login.user is None else login.user.name
        database = "" if login.database is None else login.database.name
        return SocketFacts(
            "C", login.conn, login.number, user, database, "login",
            login.peer_host, login.peer_port, login.local_host, login.local_port,
            login.connect_time, login.connect_time, 0, login.peer_pid, login.tls,
            replication="none" if login.wish is None else login.wish.replication,
            recv=facts.recv_pending, send=facts.send_pending, seat=self.seat,
        )  # fmt: skip

    def _cancel(self, carrier: Carrier) -> SocketFacts | None:
        """A cancel request belongs to the pool of the client it is for, if that client is in this worker."""
        if self._facts(carrier.conn) is None:
            return None
        job = carrier.job
        pool = job.client.pool if isinstance(job, CancelJob) else None
        user, database = ("", "") if pool is None else (pool.user.name, pool.database.name)
        return SocketFacts(
            "C", carrier.conn, carrier.number, user, database,
            "waiting_cancel_req" if job is not None and not job.active else "active_cancel_req",
            *carrier.addresses,
            carrier.connect_time, carrier.connect_time, self._since(carrier.since_us), seat=self.seat,
        )  # fmt: skip

    def _forward(self, forward: Forward) -> SocketFacts | None:
        facts = self._facts(forward.conn)
        if facts is None:
            return None
        host, port = ("unix", 0) if isinstance(forward.address, str) else forward.address
        return SocketFacts(
            "S", forward.conn, forward.number, "", "", "active_cancel" if forward.sent else "new",
            host, port, str(forward.local[0]), int(forward.local[1]),
            forward.connect_time, forward.connect_time, self._since(forward.since_us), seat=self.seat,
        )  # fmt: skip

    def _server(self, server: Server) -> SocketFacts | None:
        facts = self._facts(server.conn)
        if facts is None:
            return None
        state = server.state.value
        if server.state is ServerState.POOLED:
            # In dialogue it is between two states, for as long as this wake lasts.
            state = _SERVER_STATES.get(facts.mode, "tested")
        elif server.state is ServerState.STREAM:
            state = "active"
        pool = server.pool
        kind, link = "none", facts.link
        if pool.stream is not None and server.state is not ServerState.CANCEL:
            kind, link = pool.stream.kind, link or next(iter(pool.clients), 0)
        unix = server.address.startswith(("/", "@"))
        return SocketFacts(
            "S", server.conn, server.number, pool.user.name, pool.database.name, state,
            "unix" if unix else server.address, server.port,
            "unix" if unix else server.local_host,
            self.worker.config.settings.listen_port if unix else server.local_port,
            server.connect_time,
            self._wall(facts.last_activity_us, server.connect_time),
            self._since(facts.request_us),
            int.from_bytes(server.cancel_key[:4], "big"), server.tls,
            self._application_name(server),
            kind, server.close_needed, link, prepared_statements=facts.prepared_statements,
            recv=facts.recv_pending, send=facts.send_pending, seat=self.seat,
        )  # fmt: skip

    def _application_name(self, server: Server) -> str:
        if server.state in (ServerState.LOGIN, ServerState.CANCEL):
            return ""
        ready = self.worker.replication.ready.get(server.conn)
        if ready is not None:
            return dict(ready).get("application_name", "")
        try:
            return self.worker.engine.parameters(server.conn).get("application_name", "")
        except RuntimeError:  # logged in, and not enrolled yet
            return ""


def sorted_pools(worker: Worker) -> list[Pool]:
    """By database, then user."""
    return sorted(worker.pools.by_id.values(), key=lambda pool: (pool.database.name, pool.user.name))


def order(row: Row) -> tuple[int, str, str]:
    """How connections of several workers are put in line: clients, cancel requests, the console, servers, logins.

    Within one database and user they stay as each worker has them.
    """
    side, user, database, state = (str(row[at]) for at in (0, 1, 2, _STATE_AT))
    if state == "cl_login":
        rank = 4
    elif side == "S":
        rank = 3
    else:
        rank = 2 if database == CONSOLE_DATABASE else int("cancel_req" in state)
    return rank, database, user


_COLUMNS: Final = tuple(GETTERS[column.name] for column in TABLES["CLIENTS"].columns)
_BUFFERS: Final = tuple(GETTERS[column.name] for column in TABLES["SOCKETS"].columns[len(_COLUMNS) :])
_STATE_AT: Final = [column.name for column in TABLES["CLIENTS"].columns].index("state")


def row(facts: SocketFacts) -> Row:
    """A row of SHOW CLIENTS or SERVERS."""
    return tuple(get(facts) for get in _COLUMNS)


def socket_row(facts: SocketFacts) -> Row:
    """A row of SHOW SOCKETS."""
    plain = row(facts)
    buffers = tuple(get(facts) for get in _BUFFERS)
    return (*plain[:_STATE_AT], facts.socket_state, *plain[_STATE_AT + 1 :], *buffers)
