"""What the client side keeps: connections by stage, cancel keys, and what it remembers between logins."""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pgshoal.auth.secret import mock_verifier, parse_scram_secret
from pgshoal.config import effective
from pgshoal.engine.contract import ConnId
from pgshoal.policy.access import CONSOLE_USER
from pgshoal.policy.cancel import LONG_RANDOM, SHORT_RANDOM, Stamp, long_key, short_key
from pgshoal.policy.startup import LoginWish, StartupRules, make_rules
from pgshoal.worker.records import User

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.worker.cancel import Carrier
    from pgshoal.worker.cancel_job import CancelDelivery, CancelJob
    from pgshoal.worker.client_login import ClientLogin
    from pgshoal.worker.handler import ConsoleLogin
    from pgshoal.worker.records import Client, Database

_WISHES_MAX: Final = 256
_WISH_BYTES_MAX: Final = 512
_LIMITS_MAX: Final = 4096
#: Taken from the system at one go.
_RANDOM_BYTES: Final = 4096


@dataclass(slots=True)
class Unwelcomed:
    """A client that has proved itself and waits for its pool's first server."""

    wished: tuple[tuple[str, str], ...]
    since_us: int
    connect_us: int


class Front:
    """One per worker. Every accepted connection stands in exactly one of logins, clients, consoles and carriers."""

    def __init__(self, config: Config) -> None:
        #: in order of arrival, so that those due for client_login_timeout come first
        self.logins: dict[ConnId, ClientLogin] = {}
        self.clients: dict[ConnId, Client] = {}
        self.unwelcomed: dict[ConnId, Unwelcomed] = {}
        self.consoles: dict[ConnId, ConsoleLogin] = {}
        #: connections that brought a cancel request
        self.carriers: dict[ConnId, Carrier] = {}
        #: sockets whose PROXY header is still to come
        self.arriving = 0
        #: by client: requests that are not sent yet; and our connections to servers that carry them
        self.cancels: dict[ConnId, CancelJob] = {}
        self.deliveries: dict[ConnId, CancelDelivery] = {}
        self.stamp = Stamp()
        #: hash of a cancel key -> connection; the key itself is then compared in constant time
        self.keys: dict[int, ConnId] = {}
        self._random = b""
        self._random_at = 0
        #: by name, what a login would otherwise work out anew each time: max_user_client_connections,
        #: max_db_client_connections
        self.user_limits: dict[str, int] = {}
        self.database_limits: dict[str, int] = {}
        self.wishes: dict[bytes, tuple[LoginWish, bytes | None]] = {}
        self.mock_key = os.urandom(32)
        #: who the owner of the process is on the console, and everybody with auth_type any
        self.console_user = User(CONSOLE_USER, None)
        self.rules: StartupRules
        self.mock_iterations = 0
        #: a SCRAM secret no password fits; "" if nobody here has a SCRAM secret
        self.mock_secret = ""
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Take the settings that are looked at once, not at every login."""
        settings = config.settings
        self.stamp = replace(self.stamp, peer_id=settings.peer_id)
        self.rules = make_rules(settings.track_extra_parameters, settings.ignore_startup_parameters)
        self.wishes.clear()
        self.user_limits.clear()
        self.database_limits.clear()
        # What users who do not exist are measured with must look and cost like what those who do have.
        stored = next((found.text for found in config.secrets.values() if found.kind == "scram"), "")
        verifier = parse_scram_secret(stored) if stored else None
        self.mock_iterations = settings.scram_iterations if verifier is None else verifier.iterations
        self.mock_secret = mock_verifier("", self.mock_key, self.mock_iterations).text() if verifier else ""

    def user_limit(self, config: Config, name: str) -> int:
        """max_user_client_connections."""
        if len(self.user_limits) >= _LIMITS_MAX:
            self.user_limits.clear()
        limit = self.user_limits[name] = effective.max_user_client_connections(config, name)
        return limit

    def database_limit(self, config: Config, database: Database) -> int:
        """max_db_client_connections."""
        if len(self.database_limits) >= _LIMITS_MAX:
            self.database_limits.clear()
        limit = self.database_limits[database.name] = effective.max_db_client_connections(config, database.config)
        return limit

    def connections(self) -> int:
        """Sockets of clients: a worker that is to end waits for all. max_client_conn does not count the carriers."""
        return len(self.logins) + len(self.clients) + len(self.consoles) + len(self.carriers) + self.arriving

    def remember_wish(self, packet: bytes, wish: LoginWish, negotiation: bytes | None) -> None:
        """Drivers open many connections with the same startup packet; it need be read only once."""
        if len(packet) > _WISH_BYTES_MAX:
            return
        if len(self.wishes) >= _WISHES_MAX:
            self.wishes.clear()
        self.wishes[packet] = (wish, negotiation)

    def sit(self, seat: int, generation: int, secret: bytes) -> None:
        """Where in the fleet this worker is; once, before the first client."""
        self.stamp = replace(self.stamp, seat=seat, generation=generation, secret=secret)

    def new_key(self, conn: ConnId, long: bool = False) -> bytes:
        """A cancel key nobody holds; `long` for clients of protocol 3.2."""
        size, make = (LONG_RANDOM, long_key) if long else (SHORT_RANDOM, short_key)
        while True:
            at = self._random_at
            if at + size > len(self._random):
                self._random, at = os.urandom(_RANDOM_BYTES), 0
            self._random_at = at + size
            found = make(self.stamp, self._random[at : at + size])
            if self.keys.setdefault(hash(found), conn) == conn:
                return found

    def forget_key(self, key: bytes) -> None:
        """The session has ended."""
        self.keys.pop(hash(key), None)

    def find_key(self, key: bytes) -> Client | ConsoleLogin | None:
        """Whose cancel key this is."""
        conn = self.keys.get(hash(key), 0)
        found = self.clients.get(conn) or self.consoles.get(conn)
        if found is None or not hmac.compare_digest(found.cancel_key, key):
            return None
        return found
