"""The worker's records: databases, users, pools, clients and servers, and who may change what."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pgshoal.engine.contract import Address, ConnId, PoolId

if TYPE_CHECKING:
    from pgshoal.auth.secret import Keys
    from pgshoal.config.model import DatabaseConfig, Secret
    from pgshoal.worker.welcome import WelcomePlan


class ServerState(Enum):
    """Where a server stands, in SHOW SERVERS' words; idle, active and being_canceled come from the engine."""

    LOGIN = "new"
    POOLED = "pooled"  # with the engine: idle, linked or held
    USED = "used"  # idle longer than server_check_delay; needs a check before use
    TESTED = "tested"  # a reset or check query is under way
    LOOKUP = "active"  # an auth_query is under way; see worker/auth_lookup.py
    CANCEL = "active_cancel"  # a connection that carries a cancel request
    STREAM = "stream"  # a replication client's own, shown as active; see worker/replication.py


class Rows(NamedTuple):
    """The rows of the fleet's ledger a server counts in."""

    pool: int
    database: int
    user: int


NO_ROWS: Final = Rows(-1, -1, -1)


@dataclass(slots=True, eq=False)
class Database:
    """A [databases] entry, or one made from `*`."""

    name: str
    config: DatabaseConfig
    auto: bool = False
    paused: bool = False
    disabled: bool = False
    client_connections: int = 0
    server_connections: int = 0
    idle_since_us: int = 0  # auto entries without clients and servers


@dataclass(slots=True, eq=False)
class Found:
    """A secret that auth_query has found, with the keys of the last SCRAM login; or a password, typed and approved."""

    secret: Secret
    scram_keys: Keys | None = field(default=None, repr=False)
    typed: bool = False  # right whatever the files say


@dataclass(slots=True, eq=False)
class User:
    """A name that may log in, or that we log in as."""

    name: str
    secret: Secret | None
    client_connections: int = 0
    server_connections: int = 0
    #: kept from a client's SCRAM login with a stored SCRAM secret, to log in to servers without the password
    scram_keys: Keys | None = field(default=None, repr=False)
    #: by client database: what auth_query said, or the client typed, at the last login there
    found: dict[str, Found] = field(default_factory=dict, repr=False)

    def forget_typed(self, database: str) -> None:
        """A client came in by other means: what was typed before counts no more, if there is a secret on file."""
        found = self.found.get(database)
        if found is not None and found.typed and self.secret is not None and self.secret.kind != "empty":
            del self.found[database]


@dataclass(slots=True)
class Welcome:
    """What a pool's first server login reported; parameters in the server's order and spelling."""

    parameters: list[tuple[str, str]]
    plan: WelcomePlan | None = None  # see worker/welcome.py; None = to be made (again)
    borrowed: bool = False  # another worker's server has said so


@dataclass(slots=True, eq=False)
class Stream:
    """What makes a pool the pool of one replication client."""

    kind: str  # "logical" or "physical"
    parameters: tuple[tuple[str, str], ...]  # tracked ones the client has asked for
    options: str  # as the client wrote them
    evicted: bool = False  # a server of the shared pool was sent away for it


@dataclass(slots=True, eq=False)
class Pool:
    """The pool of one (database, server-side user)."""

    id: PoolId
    database: Database
    user: User
    rows: Rows = NO_ROWS
    welcome: Welcome | None = None
    clients: dict[ConnId, Client] = field(default_factory=dict)
    servers: dict[ConnId, Server] = field(default_factory=dict)
    #: logged-in clients that wait for the welcome, in order
    login_queue: dict[ConnId, Client] = field(default_factory=dict)
    #: cancel requests that wait for a connection: see worker/cancel.py
    last_login_failed: bool = False
    last_connect_failed_us: int = 0  # 0 = the last attempt did not fail
    last_error: str = ""
    last_lifetime_kill_us: int = 0
    idle_since_us: int = 0  # no clients and no servers since
    reserve_logged: bool = False
    client_logins: int = 0  # total_client_login_count
    stream: Stream | None = None


@dataclass(slots=True, eq=False)
class Client:
    """A client after its login; before that, see worker/client_login.py."""

    conn: ConnId
    number: int  # unique over clients and servers: SHOW's `id`
    pool: Pool
    user: User  # who logged in (the pool's user may be forced)
    database: Database
    cancel_key: bytes = field(repr=False)  # 8 bytes, 32 for clients of protocol 3.2
    connect_time: float  # wall clock, seconds
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    peer_pid: int = 0  # Unix sockets
    tls: str = ""
    replication: str = "none"
    admitted: tuple[int, ...] = ()  # the rows of the fleet's ledger it counts in


@dataclass(slots=True, eq=False)
class Server:
    """A connection to PostgreSQL, from connect to close."""

    conn: ConnId
    number: int
    pool: Pool
    state: ServerState
    connect_time: float  # wall clock, seconds
    connect_us: int  # engine clock
    address: str  # host as logged
    port: int
    target: Address = ""  # what it was connected to; a cancel request goes there too
    server_name: str = ""  # the name its certificate was verified for
    local_host: str = ""
    local_port: int = 0
    cancel_key: bytes = field(default=b"", repr=False)  # backend pid and secret as received
    tls: str = ""
    rows: Rows | None = None  # what it counts in; None for a connection that carries a cancel request
    close_needed: bool = False
    recheck: bool = False  # target_session_attrs: at its next release it is asked what it is now
    cancels: int = 0  # cancel requests attached
    released_us: int = 0
