"""The core: connections, pools, linking and leaving, without sockets and without a clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from pgshoal.engine.contract import EngineLimits, Event
from pgshoal.engine.python import reading
from pgshoal.engine.python.client import client_input
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
    UNNAMED_UNKNOWN,
    WAITING,
    Client,
    Server,
)
from pgshoal.engine.python.dialogue import client_dialogue
from pgshoal.engine.python.frames import DIALOGUE_PENDING_MAX, ERR_CRASHED, PAUSE_ABOVE, RESUME_BELOW
from pgshoal.engine.python.moving import state_of
from pgshoal.engine.python.params import Parameters, set_query
from pgshoal.engine.python.prepared import Store
from pgshoal.engine.python.server import server_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgshoal.engine.python.conn import Conn
    from pgshoal.engine.python.pool import Pool

UNSENT = "client disconnect before everything was sent to the server"
IN_PROGRESS = "client disconnected with query in progress"
NOT_READY = "client disconnect while server was not ready"


class Core:
    """All connections and pools of one engine."""

    def __init__(self) -> None:
        self.now = 0
        self.limits = EngineLimits()
        self.conns: dict[int, Conn] = {}
        self.pools: dict[int, Pool] = {}
        self.events: list[tuple[Any, ...]] = []
        self.store = Store()
        self.parameters_table = Parameters()
        self.serial = 0
        #: Connections with output to flush, or that are gone; the driver empties it.
        self.dirty: list[Conn] = []
        self.freed: deque[Server] = deque()
        self.unread: deque[Client] = deque()
        #: Accepted since the last `overdue`; most have spoken, and been announced, since.
        self.silent: list[Client] = []
        self._last_id = 0

    def next_id(self) -> int:
        """A number no connection had before."""
        self._last_id += 1
        return self._last_id

    def accepted(self, listener: int) -> Client:
        """A client has connected; Python learns of it when it speaks."""
        client = Client(self.next_id(), listener)
        client.last_us = self.now
        self.conns[client.id] = client
        self.silent.append(client)
        return client

    def announce(self, client: Client) -> None:
        """ACCEPTED comes with the first thing a client says."""
        if not client.announced:
            client.announced = True
            self.emit((Event.ACCEPTED, client.id, client.listener))

    def announce_silent(self) -> None:
        """Those that have said nothing for a while are announced too."""
        silent, self.silent = self.silent, []
        for client in silent:
            if client.mode is DIALOGUE and not client.gone:
                self.announce(client)

    def emit(self, event: tuple[Any, ...]) -> None:
        """Tell Python."""
        self.events.append(event)

    def drop_descriptors(self, close: Callable[[int], None]) -> None:
        """Descriptors in events that nobody will take."""
        events, self.events = self.events, []
        for event in events:
            if event[0] is Event.DIVERTED:
                close(event[1])
            elif event[0] is Event.MOVED:
                close(event[2])
            else:
                self.events.append(event)

    # -- input and output

    def received(self, conn: Conn, data: bytes) -> None:
        """Bytes from a socket."""
        conn.last_us = self.now
        mode = conn.mode
        if conn.is_server:
            assert isinstance(conn, Server)
            if mode is LINKED and conn.pool is not None:
                conn.pool.server_bytes += len(data)
            server_input(self, conn, data)
        else:
            assert isinstance(conn, Client)
            if mode is DIALOGUE:
                conn.inbuf += data
                client_dialogue(self, conn)
                return
            if conn.pool is not None:
                conn.pool.client_bytes += len(data)
            if mode is FROZEN or mode is CLOSING:
                return
            client_input(self, conn, data)
        if self.freed or self.unread:
            self.settle()

    def settle(self) -> None:
        """Do what followed from the bytes: give freed servers away, then look at kept input."""
        freed, unread = self.freed, self.unread
        while freed or unread:
            if freed:
                server = freed.popleft()
                if server.mode is IDLE and not server.gone:
                    self.place(server)
            else:
                client = unread.popleft()
                if not client.gone and (client.mode is PARKED or client.mode is LINKED) and client.inbuf:
                    client_input(self, client, b"")

    def write(self, conn: Conn, data: bytes) -> None:
        """Add to a connection's output."""
        conn.out.append(data)
        conn.out_size += len(data)
        self.touch(conn)

    def touch(self, conn: Conn) -> None:
        """Output was added: let the driver know, and mark a slow reader."""
        if not conn.dirty:
            conn.dirty = True
            self.dirty.append(conn)
        if conn.out_size > PAUSE_ABOVE:
            conn.full = True

    def flushed(self, conn: Conn) -> None:
        """Output has gone."""
        if conn.full and conn.out_size < RESUME_BELOW:
            conn.full = False

    def reading(self, conn: Conn) -> bool:
        """Whether the engine wants bytes from this connection."""
        mode = conn.mode
        if mode is LINKED:
            return not conn.link.full  # type: ignore[attr-defined]
        if mode is DIALOGUE:
            return conn.is_server or not (conn.awaiting and len(conn.inbuf) > DIALOGUE_PENDING_MAX)  # type: ignore[attr-defined]
        if mode is LINKING:
            return conn.is_server
        return mode is PARKED or mode is IDLE or mode is HELD

    # -- ends

    def forget(self, conn: Conn) -> None:
        """The connection is no more; the driver closes its socket."""
        conn.gone = True
        self.conns.pop(conn.id, None)
        self.leave_pool(conn)
        conn.inbuf = bytearray()
        conn.out = []
        conn.out_size = 0
        if not conn.dirty:
            conn.dirty = True
            self.dirty.append(conn)

    def leave_pool(self, conn: Conn) -> None:
        """Take it out of every list of its pool, and give back the statements it used."""
        if isinstance(conn, Server):
            conn.cache = {}
        elif isinstance(conn, Client):
            conn.prepared = {}
            conn.unnamed = None
        pool = conn.pool
        if pool is None:
            return
        if isinstance(conn, Server):
            pool.servers.pop(conn.id, None)
            if conn.mode is IDLE and conn in pool.idle:
                pool.idle.remove(conn)
        else:
            pool.clients.pop(conn.id, None)
            pool.waiting.pop(conn.id, None)

    def lost(self, conn: Conn, reason: str) -> None:
        """A connection ends by itself: CLOSED, and its partner is told."""
        if isinstance(conn, Server):
            self.server_lost(conn, reason, "server_crashed" if reason == ERR_CRASHED else "server_closed", reason)
        else:
            assert isinstance(conn, Client)
            self.forget(conn)
            if conn.announced or conn.mode is not DIALOGUE:
                self.emit((Event.CLOSED, conn.id, reason))
            self.part(conn, "")

    def server_lost(self, server: Server, reason: str, key: str, detail: str) -> None:
        """A server closes; its client gets a FAULT."""
        client = server.link
        mode = server.mode
        self.forget(server)
        self.emit((Event.CLOSED, server.id, reason))
        if client is not None and mode in (LINKED, LINKING):
            self.unlink(client, server)
            client.mode = FROZEN
            client.inbuf.clear()
            self.emit((Event.FAULT, client.id, key, "" if key == "server_crashed" else detail))

    def fault(self, client: Client, key: str, detail: str = "") -> None:
        """A client's fault: it is frozen, and its server released or closed."""
        client.mode = FROZEN
        client.inbuf.clear()
        self.emit((Event.FAULT, client.id, key, detail))
        self.part(client, "")

    def part(self, client: Client, reason: str) -> None:
        """The client leaves its link: the server is released if it is clean, else closed."""
        server = client.link
        if server is None:
            return
        half = (client.skip > 0 and client.forwarding) or server.skip or server.inbuf
        if server.mode is LINKING:
            why = NOT_READY
        elif half or server.out:
            why = UNSENT
        elif server.queue:
            why = IN_PROGRESS
        elif server.status != "I" or server.busy or client.errored:
            why = NOT_READY
        else:
            why = ""
        self.unlink(client, server)
        client.last_us = self.now
        if why:
            self.forget(server)
            self.emit((Event.CLOSED, server.id, reason or why))
        else:
            server.mode = IDLE
            server.released = True
            self.freed.append(server)

    def unlink(self, client: Client, server: Server) -> None:
        """Forget everything that belongs to the link only."""
        client.link = None
        server.link = None
        client.errored = False
        client.portals = {}
        client.skip = 0
        server.queue.clear()
        server.copy_in = False
        server.busy = False
        server.query_us = 0
        server.xact_us = 0
        server.unnamed_waits = 0
        server.described = False
        server.sets = []
        server.batch = None
        server.withheld = b""
        reading.told(server, False)

    def statement_block(self, client: Client, server: Server) -> None:
        """A transaction block in statement mode: both go."""
        key = "statement_mode_transaction"
        self.server_lost(server, "transaction blocks not allowed in statement pooling mode", key, "")

    # -- linking

    def release(self, client: Client, server: Server) -> None:
        """The transaction is over: the client is parked, the server is free once its bytes are judged."""
        skip, forwarding = client.skip, client.forwarding
        self.unlink(client, server)
        client.skip, client.forwarding = skip, forwarding
        client.mode = PARKED
        client.last_us = self.now
        server.mode = IDLE
        server.released = True
        self.freed.append(server)
        if client.leaving:
            self.depart(client)
        elif client.inbuf:
            self.unread.append(client)

    def depart(self, client: Client) -> None:
        """Nothing more is read; once all is sent, the driver takes the socket away and calls `moved`."""
        if client.pool is not None:
            client.pool.waiting.pop(client.id, None)
        client.mode = MOVING
        self.touch(client)

    def moved(self, client: Client, fd: int) -> None:
        """The socket is Python's now."""
        self.emit((Event.MOVED, client.id, fd, state_of(client)))
        self.forget(client)

    def place(self, server: Server) -> None:
        """Give a free server to a cancel, to Python, to the first waiter or to the idle list."""
        pool = server.pool
        assert pool is not None
        if server.holds:
            server.mode = HELD
            return
        released, server.released = server.released, False
        if released and (server.decide or pool.spec.decide):
            server.decide = False
            server.mode = DIALOGUE
            self.emit((Event.RETURNED, server.id))
        else:
            self.offer(server, pool)

    def offer(self, server: Server, pool: Pool) -> None:
        """To the first waiter or to the idle list."""
        server.status = "I"
        if pool.waiting and not pool.paused:
            client = pool.waiting.pop(next(iter(pool.waiting)))
            self.join(client, server)
            self.unread.append(client)
        else:
            server.mode = IDLE
            server.idle_us = self.now
            pool.idle.append(server)
            if pool.rest_wanted:
                pool.rest_wanted = False
                self.emit((Event.RESTED, pool.id))

    def acquire(self, client: Client) -> bool:
        """A parked client has a message. True if it is linked now; else it waits or its SETs are under way."""
        pool = client.pool
        assert pool is not None
        idle = pool.idle
        if idle and not pool.paused and not pool.waiting:
            server = idle.popleft() if pool.spec.round_robin else idle.pop()
            self.join(client, server)
            return client.mode is LINKED
        client.mode = WAITING
        client.wait_us = self.now
        client.notified = False
        pool.waiting[client.id] = client
        if not pool.starved and not pool.hushed:
            pool.starved = True
            self.emit((Event.STARVED, pool.id))
        return False

    def join(self, client: Client, server: Server) -> None:
        """Link the two; first the client's parameters, if the server has others."""
        pool = client.pool
        assert pool is not None
        pool.assigned += 1
        if client.mode is WAITING:
            pool.wait_time += self.now - client.wait_us
        client.link = server
        server.link = client
        server.idle_us = 0
        if not pool.pooled:
            # Nobody looks at what it parses.
            server.unnamed = UNNAMED_UNKNOWN
        if client.pset is not server.pset:
            sets = self.parameters_table.difference(client, server)
            if sets:
                client.mode = server.mode = LINKING
                server.sets = sets
                server.status = "I"
                # A simple Query ends the unnamed statement.
                server.unnamed = 0
                self.write(server, set_query(sets))
                return
        client.mode = server.mode = LINKED

    def serve(self, pool: Pool) -> None:
        """After a pause: the line is served from the idle list."""
        while pool.waiting and pool.idle and not pool.paused:
            server = pool.idle.popleft() if pool.spec.round_robin else pool.idle.pop()
            client = pool.waiting.pop(next(iter(pool.waiting)))
            self.join(client, server)
            self.unread.append(client)
            self.settle()

    def forget_extras(self, server: Server) -> None:
        """DISCARD ALL: what we set is gone."""
        if server.extras:
            server.extras = {}
            self.parameters_table.intern(server)
