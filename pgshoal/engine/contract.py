"""The contract every engine honours: events out, verbs in; see docs/topics/link.md for the relay's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

#: A connection. Unique within an engine's life, never reused, never 0.
ConnId = int
#: A pool. Unique within an engine's life, never 0.
PoolId = int
#: (host, port) with an IP literal; or a Unix path "/dir/.s.PGSQL.5432"; or an abstract one "@name".
Address = tuple[str, int] | str


class Event(IntEnum):
    """First element of an event tuple; the second is the connection, listener or pool it speaks of."""

    #: (ACCEPTED, conn, listener): in dialogue, startup framing, reading. Given right before the connection's first
    #: PACKET, DIRECT_TLS or OVERSIZE, or by the next `overdue` if it says nothing; one that ends before is never told.
    ACCEPTED = 1
    #: (ACCEPT_FAILED, listener, text): the listener is paused.
    ACCEPT_FAILED = 2
    #: (PACKET, conn, payload): a startup-framed packet without its length.
    PACKET = 3
    #: (DIRECT_TLS, conn): the first byte was 0x16.
    DIRECT_TLS = 4
    #: (MESSAGE, conn, type, payload): `type` is an int, payload bytes without the length.
    #: A server's one-byte answer to an SSLRequest comes as (MESSAGE, conn, byte, b"").
    MESSAGE = 5
    #: (OVERSIZE, conn, header): the length (or a client's type byte 0) is not allowed; the connection is frozen.
    OVERSIZE = 6
    #: (CONNECTED, conn): a connection made by `connect` is up, in dialogue.
    CONNECTED = 7
    #: (SECURED, conn, version, cipher, alpn, sni, peer_certificate_der): the TLS handshake is done.
    #: Texts such as "TLSv1.3", "TLS_AES_256_GCM_SHA384"; alpn and sni "" when absent; certificate bytes or None.
    SECURED = 8
    #: (CLOSED, conn, reason): gone, not by our `close`; the id is dead. Client reasons: "client close request",
    #: "client unexpected eof", "tls: ..."; server reasons as in docs/topics/link.md; "connect failed: ...".
    CLOSED = 9
    #: (FAULT, client, key, detail): the client is frozen and unlinked; tell it (REFUSALS[key]) and close it.
    FAULT = 10
    #: (STARVED, pool): a client waits and no idle server was there; at most one per pool and wake.
    STARVED = 11
    #: (RETURNED, server): released, now in dialogue; park it, use it or close it.
    RETURNED = 12
    #: (DIVERTED, fd, listener): accepted while `divert` is on; nothing of it has been read. Whoever takes the event
    #: owns the descriptor: non-blocking, close-on-exec, with the listener's options.
    DIVERTED = 13
    #: (MOVED, client, fd, state): what `emigrate` began is done; the id is dead. Whoever takes the event owns the
    #: descriptor (non-blocking, close-on-exec; -1 with the driver "manual") and hands both to `immigrate` somewhere.
    MOVED = 14
    #: (RESTED, pool): a server has become idle, after `tell_rest`.
    RESTED = 15


class PoolMode(IntEnum):
    """When a server goes back to its pool."""

    SESSION = 0
    TRANSACTION = 1
    STATEMENT = 2


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What an engine must know of a pool. Limits in microseconds; 0 = off."""

    mode: PoolMode = PoolMode.SESSION
    max_prepared_statements: int = 0
    round_robin: bool = False
    decide: bool = False  # every release gives RETURNED
    query_timeout_us: int = 0
    query_wait_timeout_us: int = 0
    query_wait_notify_us: int = 0
    idle_transaction_timeout_us: int = 0
    transaction_timeout_us: int = 0


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Process-wide settings the relay needs."""

    max_packet_size: int = 2**31 - 1
    disable_pqexec: bool = False  # a simple Query gives FAULT "pqexec_disallowed"
    extra_parameters: tuple[str, ...] = ()  # track_extra_parameters
    queued_query_timeout_us: int = 0  # the global query_timeout, for waiting clients
    #: no TLS is offered: the engine itself answers SSLRequest and GSSENCRequest with `N` (see link.md)
    refuse_encryption: bool = False


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """TCP options of a socket; 0 = the system's default. Times in seconds, tcp_user_timeout in ms."""

    keepalive: bool = True
    keepidle_s: int = 0
    keepintvl_s: int = 0
    keepcnt: int = 0
    user_timeout_ms: int = 0
    buffer_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS material and policy as read from the configuration; PEM bytes, not paths."""

    certificate_pem: bytes = b""
    key_pem: bytes = b""
    ca_pem: bytes = b""  # empty = the system's store (client role) or no client certificates (server role)
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = "default"  # TLS <= 1.2: a keyword or an OpenSSL list
    tls13_ciphers: str = ""
    curve: str = ""  # of an ECDHE key exchange, by OpenSSL's name; empty = the usual choice
    #: server role: ask for / require and verify a client certificate. client role: verify the chain / also the name.
    request_certificate: bool = False
    require_certificate: bool = False
    verify_chain: bool = False
    verify_name: bool = False


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """How a pool stands. `oldest_wait_us`: how long the head of the line has waited."""

    cl_parked: int
    cl_linked: int
    cl_waiting: int
    sv_idle: int
    sv_linked: int
    sv_held: int
    sv_dialogue: int
    oldest_wait_us: int


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Totals since the pool was made. Times in microseconds."""

    server_assignment_count: int = 0
    xact_count: int = 0
    query_count: int = 0
    client_bytes: int = 0
    server_bytes: int = 0
    xact_time_us: int = 0
    query_time_us: int = 0
    wait_time_us: int = 0
    client_parse_count: int = 0
    server_parse_count: int = 0
    bind_count: int = 0


@dataclass(frozen=True, slots=True)
class ConnFacts:
    """How a connection stands. Times in microseconds of the engine's clock, 0 = none."""

    mode: str  # as in docs/topics/link.md: dialogue parked waiting linking linked idle held moving frozen closing
    link: ConnId
    last_activity_us: int  # last message read
    request_us: int  # when the current query (or wait) began; 0 = none
    status: str  # "I", "T", "E" of the link or server; "" when not known
    queue_length: int
    prepared_statements: int
    recv_pending: int  # bytes read and not yet parsed or forwarded
    send_pending: int  # bytes not yet sent
    idle_since_us: int  # servers: when it became idle
    decide: bool


class TlsContext(Protocol):
    """Opaque: made by one engine, used by the same."""


@runtime_checkable
class Engine(Protocol):
    """One engine, one thread. Verbs on a dead connection raise KeyError; in the wrong mode, RuntimeError."""

    @property
    def name(self) -> str:
        """ "uring", "epoll" or "python"."""

    # -- the loop (driver "manual": wait does nothing; time by set_now)
    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """Wait for sockets, do all hot work, return [(fd, selectors mask)] for watched descriptors."""

    def watch(self, fd: int, mask: int) -> None:
        """Watch a foreign descriptor for asyncio (replaces an earlier mask)."""

    def unwatch(self, fd: int) -> None: ...

    def events(self) -> list[tuple[Any, ...]]:
        """Take all events so far, in order. Verbs called later may add more."""

    def pending(self) -> bool:
        """True if `events` would return something; then `wait` must not block."""

    def now_us(self) -> int:
        """Monotonic microseconds, read once per wake."""

    def shutdown(self) -> None:
        """Close every socket (servers as `close` does), and descriptors in events not taken; free the driver."""

    # -- sockets
    def set_limits(self, limits: EngineLimits) -> None: ...

    def listen(self, fd: int, listener: int, options: SocketOptions) -> None:
        """Accept from `fd` (already listening, owned by the caller; the engine keeps its own duplicate)."""

    def pause_listener(self, listener: int) -> None: ...

    def resume_listener(self, listener: int) -> None: ...

    def unlisten(self, listener: int) -> None: ...

    def divert(self, on: bool) -> None:
        """While on, a freshly accepted socket is not a connection: DIVERTED gives it to Python. Off at first."""

    def adopt(self, fd: int, listener: int) -> None:
        """Take an accepted socket as if this engine had accepted it from `listener`; ACCEPTED comes as usual.

        The engine owns `fd` from the call on and closes it on every error: ValueError for an unknown listener,
        OSError for what is no socket, RuntimeError with the driver "manual".
        """

    def connect(self, address: Address, options: SocketOptions) -> ConnId:
        """Begin a connection to a server; CONNECTED or CLOSED follows. Never raises for network reasons."""

    def descriptor(self, conn: ConnId) -> int:
        """The number of the connection's socket, from `connect` (or ACCEPTED) until it ends or is closed.

        The engine keeps it: duplicate or pass it on at once. KeyError for a connection without a socket: dead,
        failed in `connect` itself (its CLOSED stands in the events), or ended while frozen. RuntimeError with the
        driver "manual".
        """

    def addresses(self, conn: ConnId) -> tuple[str, int, str, int]:
        """(peer host, peer port, local host, local port); hosts are "unix" and ports 0 on Unix sockets."""

    def credentials(self, conn: ConnId) -> tuple[int, int, int]:
        """(pid, uid, gid) of a Unix-socket peer; RuntimeError otherwise."""

    # -- moving clients to another process
    def emigrate(self, client: ConnId) -> bool:
        """Begin to move a client. True: MOVED follows, unless CLOSED, FAULT or our `close` comes first.

        A parked or waiting client goes as soon as its output is sent (a waiting one leaves the line); what it sends
        meanwhile goes with it. A linked one goes when it is released, before anything more of it is looked at.
        False: not possible now: TLS is on, a session-mode link, or another mode. Asking again is harmless.
        """

    def immigrate(self, fd: int, listener: int, state: bytes) -> ConnId:
        """The other end of `emigrate`, in any engine: a client in dialogue, for Python to `admit` with welcome=b"".

        No ACCEPTED is given, and nothing is parsed before `admit`, which keeps the parameters of the state and
        ignores its own. `listener` need not be known. The engine owns `fd` from the call on and closes it on every
        error: ValueError for a bad state or version, OSError for what is no socket. Driver "manual": `fd` is -1.
        """

    # -- TLS
    def server_context(self, settings: TlsSettings) -> TlsContext:
        """For connections we accepted; ALPN postgresql. ValueError with a readable text."""

    def client_context(self, settings: TlsSettings) -> TlsContext:
        """For connections we made; ALPN postgresql. ValueError with a readable text."""

    def start_tls(self, conn: ConnId, context: TlsContext, server_name: str = "") -> bool:
        """Begin a handshake (after flushing what was sent); SECURED or CLOSED follows. False: plain bytes stand unread.

        `server_name`: for our own connections, the name to verify (and to send as SNI unless it is an IP literal).
        """

    # -- dialogue
    def proceed(self, conn: ConnId, limit: int, data: bytes = b"") -> None:
        """Sends `data`; a client's next message, of at most `limit` bytes (type and length included)."""

    def proceed_startup(self, conn: ConnId) -> None:
        """A client's next packet in startup framing (after SSLRequest was refused, or after TLS)."""

    def set_dialogue_limit(self, conn: ConnId, limit: int) -> None:
        """Servers: largest message accepted in dialogue (default 1 MiB)."""

    def send(self, conn: ConnId, data: bytes) -> None:
        """Send in dialogue; also to a waiting client (a NOTICE)."""

    def close(self, conn: ConnId, data: bytes = b"", reason: str = "") -> None:
        """Send `data`, flush, close. No event for this connection follows.

        A server's socket is closed by the end of the writing side only and never reset, here and wherever the engine
        closes one itself: a duplicate sees the end when the server has closed its own side.
        A linked partner: a server is released if the link is clean, else closed with `reason` (or the reasons of
        link.md); a client gets FAULT "server_closed" with `reason` as detail.
        """

    # -- pools
    def add_pool(self, spec: PoolSpec) -> PoolId: ...

    def set_pool(self, pool: PoolId, spec: PoolSpec) -> None: ...

    def drop_pool(self, pool: PoolId) -> None:
        """The pool must have no connections (RuntimeError)."""

    def pause_pool(self, pool: PoolId, paused: bool) -> None:
        """Paused: nobody is linked; on resume the line is served."""

    def tell_rest(self, pool: PoolId) -> None:
        """RESTED is given once, when next a server of the pool becomes idle because nobody waits for it."""

    def hush_pool(self, pool: PoolId, hushed: bool) -> None:
        """Hushed: clients wait without STARVED, as the pool cannot grow anyway; a wake for nothing costs much."""

    def admit(
        self,
        client: ConnId,
        pool: PoolId,
        parameters: Sequence[tuple[str, str]],
        client_idle_timeout_us: int = 0,
        query_wait_timeout_us: int = -1,
        welcome: bytes = b"",
    ) -> None:
        """Dialogue -> parked; `welcome` is sent, then bytes already received are relayed.

        Limits: 0 = off, -1 = the pool's. Parameters in a tuple that was given before cost nothing; for a client from
        `immigrate` they are ignored.
        """

    def readmit(self, client: ConnId, client_idle_timeout_us: int, query_wait_timeout_us: int) -> None:
        """Change the limits of an admitted client (after RELOAD)."""

    def enroll(self, server: ConnId, pool: PoolId, parameters: Sequence[tuple[str, str]]) -> None:
        """A freshly logged-in server: dialogue -> first waiter or idle list. `parameters`: all it reported."""

    def park(self, server: ConnId) -> None:
        """Dialogue -> first waiter or idle list (again, after `take` or RETURNED)."""

    def take(self, server: ConnId) -> bool:
        """Idle -> dialogue. False if it is not idle."""

    def decide(self, server: ConnId, decide: bool) -> None:
        """Mark a server: its next release gives RETURNED."""

    def unwait(self, client: ConnId) -> None:
        """Take a waiting client out of the line and freeze it (Python then closes it)."""

    def hold(self, server: ConnId) -> None:
        """A cancel request is attached (counted); the server is not given to anyone until `unhold`."""

    def unhold(self, server: ConnId) -> None: ...

    # -- facts
    def link_of(self, conn: ConnId) -> ConnId:
        """The partner while *linked* (not while linking), else 0."""

    def pool_counts(self, pool: PoolId) -> PoolCounts: ...

    def pool_stats(self, pool: PoolId) -> PoolStats: ...

    def idle_servers(self, pool: PoolId) -> list[tuple[ConnId, int]]:
        """[(server, idle since, us)], longest idle first."""

    def waiting_clients(self, pool: PoolId) -> list[ConnId]:
        """First in line first."""

    def facts(self, conn: ConnId) -> ConnFacts: ...

    def parameters(self, conn: ConnId) -> dict[str, str]:
        """Tracked values of an admitted client or enrolled server, canonical names."""

    def overdue(self, now_us: int) -> list[tuple[ConnId, str]]:
        """[(client, key)] as in link.md; gives ACCEPTED for silent clients; resets what has been closing for 10 s."""

    def memory(self) -> list[tuple[str, int, int, int]]:
        """SHOW MEM: (name, size, used, free)."""

    # -- driver "manual" only (RuntimeError elsewhere)
    def set_now(self, now_us: int) -> None: ...

    def accept_manual(self, listener: int) -> ConnId:
        """As if a client had connected."""

    def connected_manual(self, conn: ConnId) -> None:
        """As if a `connect` had succeeded."""

    def received(self, conn: ConnId, data: bytes) -> None: ...

    def received_eof(self, conn: ConnId) -> None: ...

    def output(self, conn: ConnId) -> bytes:
        """Take what the engine wants to send (as if all of it were sent)."""

    def reading(self, conn: ConnId) -> bool:
        """Whether the engine wants to read from it now."""
