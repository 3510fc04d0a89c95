"""Who hears a connection's events, and what the client side may ask of the worker around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from pgshoal.engine.contract import ConnId

if TYPE_CHECKING:
    from pgshoal.auth.keys import KeyCache
    from pgshoal.config.model import Config
    from pgshoal.engine.contract import Engine
    from pgshoal.worker.admissions import Admissions
    from pgshoal.worker.auth_lookup import Lookups
    from pgshoal.worker.balance import Balance
    from pgshoal.worker.front import Front
    from pgshoal.worker.link import Fleet
    from pgshoal.worker.log import Log
    from pgshoal.worker.peers import Peers
    from pgshoal.worker.pools import Pools
    from pgshoal.worker.records import Pool, User
    from pgshoal.worker.replication import Replication
    from pgshoal.worker.servers import Servers
    from pgshoal.worker.tlsfiles import TlsFiles

T = TypeVar("T")


class Handler:
    """One connection in dialogue: a client logging in, a console session, a server logging in, a cancel request.

    The worker calls the method named after the engine's event. Events that cannot come in a state are ignored
    here, so a handler states only what it expects. After `closed` the worker has already forgotten the handler.
    """

    __slots__ = ()

    def packet(self, payload: bytes) -> None:
        """PACKET."""

    def direct_tls(self) -> None:
        """DIRECT_TLS."""

    def message(self, kind: int, payload: bytes) -> None:
        """MESSAGE; `kind` is the type byte."""

    def oversize(self, header: bytes) -> None:
        """OVERSIZE."""

    def connected(self) -> None:
        """CONNECTED."""

    def secured(self, version: str, cipher: str, alpn: str, sni: str, certificate: bytes | None) -> None:
        """SECURED."""

    def closed(self, reason: str) -> None:
        """CLOSED."""

    def fault(self, key: str, detail: str) -> None:
        """FAULT."""

    def returned(self) -> None:
        """RETURNED."""


@dataclass(slots=True, eq=False)
class ConsoleLogin:
    """Who was let into the console; `unix_owner` is the process's own account on the Unix socket."""

    conn: ConnId
    number: int
    user: User
    is_admin: bool
    cancel_key: bytes
    connect_time: float
    connect_us: int
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    peer_pid: int = 0
    tls: str = ""
    #: tracked startup parameters of the client, such as application_name
    parameters: list[tuple[str, str]] = field(default_factory=list)
    unix_owner: bool = False
    #: rows of the fleet's ledger it counts in
    admitted: tuple[int, ...] = ()


class Console(Protocol):
    """The admin console as the login sees it."""

    def open(self, login: ConsoleLogin) -> Handler:
        """Send the console's welcome (AuthenticationOk included) and give back who hears the session from now on.

        The session ends with `clients.console_gone(worker, conn)`, on `closed` and before its own close.
        """

    def cancel(self, login: ConsoleLogin) -> None:
        """A cancel request came for this session."""


class WorkerFace(Protocol):
    """What the client side needs of the worker. `handlers` is asked first, then `front.clients`."""

    engine: Engine
    config: Config
    log: Log
    tls: TlsFiles
    front: Front
    fleet: Fleet
    admissions: Admissions
    peers: Peers
    pools: Pools
    servers: Servers
    lookups: Lookups
    balance: Balance
    replication: Replication
    key_cache: KeyCache
    console: Console | None
    handlers: dict[ConnId, Handler]
    #: "" while running; "clients" or "servers" in SHUTDOWN WAIT_FOR_CLIENTS or WAIT_FOR_SERVERS
    shutdown: str

    def next_number(self) -> int:
        """The next `id` of SHOW CLIENTS and SHOW SERVERS."""

    def grow(self, pool: Pool) -> None:
        """Somebody needs a server of this pool: open one if the limits allow."""

    def offload(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run heavy work in a thread (see worker/offload.py), then `done` with its result on the loop."""

    def ask_outside(self, question: Callable[[], T], done: Callable[[T], None], wanted: Callable[[], bool]) -> bool:
        """Ask somebody who may take long (see worker/askers.py); False if too many wait already."""
