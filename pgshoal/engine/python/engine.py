"""The face of the twin: every verb of the contract, over the core and one of two drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgshoal.engine.contract import (
    Address,
    ConnFacts,
    ConnId,
    EngineLimits,
    Event,
    PoolCounts,
    PoolId,
    PoolSpec,
    PoolStats,
    SocketOptions,
    TlsContext,
    TlsSettings,
)
from pgshoal.engine.python import timeouts, tls
from pgshoal.engine.python.conn import (
    CLOSING,
    DIALOGUE,
    FROZEN,
    HELD,
    IDLE,
    LINKED,
    LINKING,
    MOVING,
    PARKED,
    WAITING,
    Client,
    Conn,
    Server,
)
from pgshoal.engine.python.core import Core
from pgshoal.engine.python.dialogue import client_dialogue, server_asked
from pgshoal.engine.python.driver import EpollDriver
from pgshoal.engine.python.frames import SERVER_DIALOGUE_LIMIT
from pgshoal.engine.python.manual import ManualDriver
from pgshoal.engine.python.pool import Pool
from pgshoal.engine.python.server import server_input
from pgshoal.wire.params import canonical_name


class PythonEngine:
    """The engine in plain Python; `driver` is "manual" for tests, anything else means sockets."""

    name = "python"

    def __init__(self, driver: str = "sockets") -> None:
        self._core = Core()
        self._last_pool = 0
        self._driver: EpollDriver | ManualDriver
        self._driver = ManualDriver(self._core) if driver == "manual" else EpollDriver(self._core)
        self.wait = self._driver.wait
        self.watch = self._driver.watch
        self.unwatch = self._driver.unwatch
        self.divert = self._driver.divert
        self.adopt = self._driver.adopt

    # -- the loop

    def events(self) -> list[tuple[Any, ...]]:
        """Take all events so far, in order."""
        core = self._core
        taken, core.events = core.events, []
        for event in taken:
            if event[0] is Event.STARVED and event[1] in core.pools:
                core.pools[event[1]].starved = False
        return taken

    def pending(self) -> bool:
        """True if `events` would return something."""
        return bool(self._core.events)

    def now_us(self) -> int:
        """Monotonic microseconds, read once per wake."""
        return self._core.now

    def shutdown(self) -> None:
        """Close every socket."""
        self._driver.shutdown()

    # -- sockets

    def set_limits(self, limits: EngineLimits) -> None:
        """Take process-wide settings."""
        self._core.limits = limits
        self._core.parameters_table.set_extra(limits.extra_parameters)

    def listen(self, fd: int, listener: int, options: SocketOptions) -> None:
        """Accept from a listening descriptor."""
        self._driver.listen(fd, listener, options)

    def pause_listener(self, listener: int) -> None:
        """Accept nothing for now."""
        self._driver.pause_listener(listener)

    def resume_listener(self, listener: int) -> None:
        """Accept again."""
        self._driver.resume_listener(listener)

    def unlisten(self, listener: int) -> None:
        """Forget a listener."""
        self._driver.unlisten(listener)

    def connect(self, address: Address, options: SocketOptions) -> ConnId:
        """Begin a connection to a server."""
        server = Server(self._core.next_id())
        server.limit = SERVER_DIALOGUE_LIMIT
        server.last_us = self._core.now
        self._core.conns[server.id] = server
        self._driver.connect(server, address, options)
        return server.id

    def descriptor(self, conn: ConnId) -> int:
        """The number of a connection's socket."""
        return self._driver.descriptor(self._alive(conn))

    def addresses(self, conn: ConnId) -> tuple[str, int, str, int]:
        """(peer host, peer port, local host, local port)."""
        return self._driver.addresses(self._conn(conn))

    def credentials(self, conn: ConnId) -> tuple[int, int, int]:
        """(pid, uid, gid) of a Unix-socket peer."""
        return self._driver.credentials(self._conn(conn))

    def emigrate(self, client: ConnId) -> bool:
        """Move a client, now or at its release."""
        found = self._alive(client)
        if not isinstance(found, Client):
            raise RuntimeError("not a client")
        if self._driver.encrypted(found):
            return False
        if found.mode is LINKED or found.mode is LINKING:
            found.leaving = found.pool is not None and found.pool.pooled
            return found.leaving
        if found.mode is PARKED or found.mode is WAITING:
            self._core.depart(found)
            self._driver.flush()
            return True
        return found.mode is MOVING

    def immigrate(self, fd: int, listener: int, state: bytes) -> ConnId:
        """A client that comes from elsewhere."""
        return self._driver.arrive(fd, listener, state).id

    # -- TLS

    def server_context(self, settings: TlsSettings) -> TlsContext:
        """For connections we accepted."""
        return tls.server_context(settings)

    def client_context(self, settings: TlsSettings) -> TlsContext:
        """For connections we made."""
        return tls.client_context(settings)

    def start_tls(self, conn: ConnId, context: TlsContext, server_name: str = "") -> bool:
        """Begin a handshake; False if plain bytes stand unread."""
        found = self._in(conn, DIALOGUE)
        direct = isinstance(found, Client) and found.fresh and found.inbuf[:1] == b"\x16"
        if found.inbuf and not direct:
            return False
        early = bytes(found.inbuf)
        found.inbuf.clear()
        if isinstance(found, Server):
            found.answered = False
        elif isinstance(found, Client):
            found.fresh = False
        self._driver.start_tls(found, context, server_name, early)
        return True

    # -- dialogue

    def proceed(self, conn: ConnId, limit: int, data: bytes = b"") -> None:
        """A client's next message."""
        client = self._client(conn, DIALOGUE)
        if data:
            self.send(conn, data)
        client.framing_startup = False
        client.limit = limit
        self._proceed(client)

    def proceed_startup(self, conn: ConnId) -> None:
        """A client's next packet in startup framing."""
        client = self._client(conn, DIALOGUE)
        client.framing_startup = True
        client.fresh = False
        self._proceed(client)

    def _proceed(self, client: Client) -> None:
        client.awaiting = False
        client_dialogue(self._core, client)
        self._driver.resume(client)

    def set_dialogue_limit(self, conn: ConnId, limit: int) -> None:
        """Servers: largest message accepted in dialogue."""
        found = self._alive(conn)
        found.limit = limit

    def send(self, conn: ConnId, data: bytes) -> None:
        """Send in dialogue; also to a waiting client."""
        found = self._alive(conn)
        if found.mode is not DIALOGUE and found.mode is not WAITING:
            raise RuntimeError(f"send in mode {found.mode}")
        self._core.write(found, bytes(data))
        if isinstance(found, Server):
            server_asked(self._core, found, data)
        self._driver.flush()

    def close(self, conn: ConnId, data: bytes = b"", reason: str = "") -> None:
        """Send, flush, close; the partner is told."""
        core = self._core
        found = self._alive(conn)
        joined = found.mode in (LINKED, LINKING)
        core.leave_pool(found)
        found.mode = CLOSING
        found.closing_us = core.now
        found.inbuf.clear()
        if data:
            core.write(found, bytes(data))
        if isinstance(found, Client):
            if joined:
                core.part(found, reason)
        elif isinstance(found, Server) and joined and found.link is not None:
            client = found.link
            core.unlink(client, found)
            client.mode = FROZEN
            client.inbuf.clear()
            core.emit((Event.FAULT, client.id, "server_closed", reason))
        if not found.out:
            core.forget(found)
        core.settle()
        self._driver.flush()

    # -- pools

    def add_pool(self, spec: PoolSpec) -> PoolId:
        """Make a pool."""
        self._last_pool += 1
        self._core.pools[self._last_pool] = Pool(self._last_pool, spec)
        return self._last_pool

    def set_pool(self, pool: PoolId, spec: PoolSpec) -> None:
        """New rules for a pool."""
        self._core.pools[pool].set_spec(spec)

    def drop_pool(self, pool: PoolId) -> None:
        """Forget an empty pool."""
        found = self._core.pools[pool]
        if found.clients or found.servers:
            raise RuntimeError("the pool has connections")
        del self._core.pools[pool]

    def pause_pool(self, pool: PoolId, paused: bool) -> None:
        """Link nobody, or serve the line again."""
        found = self._core.pools[pool]
        found.paused = paused
        if not paused:
            self._core.serve(found)
            self._driver.flush()

    def tell_rest(self, pool: PoolId) -> None:
        """RESTED once, when a server becomes idle."""
        self._core.pools[pool].rest_wanted = True

    def hush_pool(self, pool: PoolId, hushed: bool) -> None:
        """STARVED is not wanted."""
        self._core.pools[pool].hushed = hushed

    def admit(
        self,
        client: ConnId,
        pool: PoolId,
        parameters: Sequence[tuple[str, str]],
        client_idle_timeout_us: int = 0,
        query_wait_timeout_us: int = -1,
        welcome: bytes = b"",
    ) -> None:
        """Dialogue -> parked."""
        core = self._core
        found = self._client(client, DIALOGUE)
        home = core.pools[pool]
        carried = found.pset is not None
        if not carried:
            core.parameters_table.admit(found, parameters)
        found.pool = home
        home.clients[found.id] = found
        found.mode = PARKED
        found.awaiting = False
        found.last_us = core.now
        found.idle_limit_us = client_idle_timeout_us
        found.wait_limit_us = query_wait_timeout_us
        if welcome:
            core.write(found, bytes(welcome))
        if found.inbuf:
            home.client_bytes += 0 if carried else len(found.inbuf)
            core.unread.append(found)
            core.settle()
        self._driver.resume(found)
        self._driver.flush()

    def readmit(self, client: ConnId, client_idle_timeout_us: int, query_wait_timeout_us: int) -> None:
        """New limits of an admitted client."""
        found = self._alive(client)
        if not isinstance(found, Client):
            raise RuntimeError("not a client")
        found.idle_limit_us = client_idle_timeout_us
        found.wait_limit_us = query_wait_timeout_us

    def enroll(self, server: ConnId, pool: PoolId, parameters: Sequence[tuple[str, str]]) -> None:
        """A logged-in server joins a pool."""
        found = self._server(server, DIALOGUE)
        home = self._core.pools[pool]
        if found.pool is not None:
            raise RuntimeError("the server has a pool")
        self._core.parameters_table.admit(found, parameters)
        found.pool = home
        found.enrolled = True
        home.servers[found.id] = found
        self._free(found)

    def park(self, server: ConnId) -> None:
        """Dialogue -> first waiter or idle list."""
        found = self._server(server, DIALOGUE)
        if found.pool is None:
            raise RuntimeError("park of a server that was not enrolled")
        self._free(found)

    def _free(self, server: Server) -> None:
        """Out of dialogue: what stands unread is judged as an idle server's."""
        core = self._core
        server.mode = IDLE
        server.answered = server.answer_due = False
        if server.inbuf:
            server_input(core, server, b"")
        if not server.gone:
            core.place(server)
        core.settle()
        self._driver.flush()

    def take(self, server: ConnId) -> bool:
        """Idle -> dialogue."""
        found = self._server(server)
        if found.mode is not IDLE or found.pool is None:
            return False
        found.pool.idle.remove(found)
        found.mode = DIALOGUE
        found.idle_us = 0
        return True

    def decide(self, server: ConnId, decide: bool) -> None:
        """Mark a server."""
        self._server(server).decide = decide

    def unwait(self, client: ConnId) -> None:
        """Take a waiting client out of the line and freeze it."""
        found = self._client(client, WAITING)
        assert found.pool is not None
        found.pool.waiting.pop(found.id, None)
        found.mode = FROZEN
        found.inbuf.clear()

    def hold(self, server: ConnId) -> None:
        """A cancel request is attached."""
        found = self._server(server)
        found.holds += 1
        if found.mode is IDLE and found.pool is not None:
            found.pool.idle.remove(found)
            found.mode = HELD
            found.idle_us = 0

    def unhold(self, server: ConnId) -> None:
        """A cancel request is done."""
        found = self._server(server)
        if not found.holds:
            raise RuntimeError("unhold without hold")
        found.holds -= 1
        if not found.holds and found.mode is HELD:
            found.mode = IDLE
            self._core.place(found)
            self._core.settle()
            self._driver.flush()

    # -- facts

    def link_of(self, conn: ConnId) -> ConnId:
        """The partner while linked, else 0."""
        found = self._conn(conn)
        return found.link.id if found.mode is LINKED else 0  # type: ignore[attr-defined]

    def pool_counts(self, pool: PoolId) -> PoolCounts:
        """How a pool stands."""
        return self._core.pools[pool].counts(self._core.now)

    def pool_stats(self, pool: PoolId) -> PoolStats:
        """Totals of a pool."""
        return self._core.pools[pool].stats()

    def idle_servers(self, pool: PoolId) -> list[tuple[ConnId, int]]:
        """Longest idle first."""
        return [(server.id, server.idle_us) for server in self._core.pools[pool].idle]

    def waiting_clients(self, pool: PoolId) -> list[ConnId]:
        """First in line first."""
        return list(self._core.pools[pool].waiting)

    def facts(self, conn: ConnId) -> ConnFacts:
        """How a connection stands."""
        return timeouts.facts(self._conn(conn))

    def parameters(self, conn: ConnId) -> dict[str, str]:
        """Tracked values, canonical names."""
        found = self._conn(conn)
        values = {name: value for name, (_, value) in found.values.items()}
        if isinstance(found, Server):
            values = {name: value for name, value in found.extras.items() if value is not None} | values
        return {canonical_name(name): values[name] for name in sorted(values)}

    def overdue(self, now_us: int) -> list[tuple[ConnId, str]]:
        """Clients past a limit; also resets connections that close too slowly."""
        found = timeouts.overdue(self._core, now_us)
        self._driver.flush()
        return found

    def memory(self) -> list[tuple[str, int, int, int]]:
        """SHOW MEM."""
        return timeouts.memory(self._core)

    # -- driver "manual"

    def set_now(self, now_us: int) -> None:
        """Set the clock."""
        self._manual.set_now(now_us)

    def accept_manual(self, listener: int) -> ConnId:
        """As if a client had connected."""
        return self._manual.accept(listener)

    def connected_manual(self, conn: ConnId) -> None:
        """As if a `connect` had succeeded."""
        self._manual.connected(self._server(conn))

    def received(self, conn: ConnId, data: bytes) -> None:
        """As if bytes had come."""
        self._manual.received(self._conn(conn), bytes(data))

    def received_eof(self, conn: ConnId) -> None:
        """As if the peer had closed."""
        self._manual.received_eof(self._conn(conn))

    def output(self, conn: ConnId) -> bytes:
        """Take what the engine wants to send."""
        return self._manual.output(self._conn(conn))

    def reading(self, conn: ConnId) -> bool:
        """Whether the engine wants to read from it."""
        return self._manual.reading(self._conn(conn))

    @property
    def _manual(self) -> ManualDriver:
        if not isinstance(self._driver, ManualDriver):
            raise RuntimeError("only with the driver manual")
        return self._driver

    # -- looking up

    def _conn(self, conn: ConnId) -> Conn:
        return self._core.conns[conn]

    def _alive(self, conn: ConnId) -> Conn:
        found = self._core.conns[conn]
        if found.mode is CLOSING:
            raise KeyError(conn)
        return found

    def _in(self, conn: ConnId, mode: str) -> Conn:
        found = self._alive(conn)
        if found.mode is not mode:
            raise RuntimeError(f"connection is {found.mode}, not {mode}")
        return found

    def _client(self, conn: ConnId, mode: str) -> Client:
        found = self._in(conn, mode)
        if not isinstance(found, Client):
            raise RuntimeError("not a client")
        return found

    def _server(self, conn: ConnId, mode: str = "") -> Server:
        found = self._in(conn, mode) if mode else self._alive(conn)
        if not isinstance(found, Server):
            raise RuntimeError("not a server")
        return found
