"""Our login to a PostgreSQL server: TLS, the startup packet, every kind of password request, up to the first ready."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from pgshoal.auth.channel_binding import tls_server_end_point
from pgshoal.auth.failed import AuthFailed, BadMechanism
from pgshoal.auth.md5 import md5_answer
from pgshoal.auth.scram import ScramClient
from pgshoal.auth.secret import Keys
from pgshoal.config import effective
from pgshoal.config.model import Config, Secret
from pgshoal.errors import Refused, refuse
from pgshoal.wire import build, read
from pgshoal.wire.catalogue import backend
from pgshoal.wire.errors import WireError
from pgshoal.worker import replication
from pgshoal.worker.handler import Handler
from pgshoal.worker.records import Found, Pool, Server, User

if TYPE_CHECKING:
    from pgshoal.worker.app import Worker

#: Nothing a server says before it is ready is longer, and all its parameters together are shorter.
LOGIN_MESSAGE_MAX: Final = 70_000
PARAMETERS_MAX: Final = 256
_YES, _NO = b"SN"
_AUTH, _STATUS, _KEY, _READY, _ERROR, _NOTICE, _NEGOTIATE = b"RSKZENv"
WRONG_PASSWORD_TYPE: Final = "server_wrong_password_type"


class Stage(Enum):
    """Where a server login stands."""

    CONNECTING = auto()
    SSL_ANSWER = auto()
    HANDSHAKE = auto()
    AUTHENTICATION = auto()
    PARAMETERS = auto()  # AuthenticationOk has come
    OVER = auto()


def holder(pool: Pool) -> User | Found:
    """Who has the pool user's secret: its record, or what was found out or typed by clients of this database."""
    user = pool.user
    found = user.found.get(pool.database.name)
    return found if found is not None and (found.typed or user.secret is None) else user


def credential(config: Config, pool: Pool) -> Secret | None:
    """What we log in with: the forced user's password, its auth_file entry, or what the login user has."""
    entry = pool.database.config
    # The pool of auth_query is that of auth_user, whatever user the entry forces on clients.
    if entry.user is None or entry.user != pool.user.name:
        return holder(pool).secret
    if entry.password is not None and entry.password.kind != "empty":
        return entry.password
    return config.secrets.get(entry.user) or holder(pool).secret


class ServerLogin(Handler):
    """One attempt; it ends in `servers.logged_in` or `servers.login_failed`, once."""

    __slots__ = ("binding", "host", "parameters", "scram", "server", "stage", "worker")

    def __init__(self, worker: Worker, server: Server, host: str) -> None:
        """`host` as configured: the name a certificate must carry."""
        self.worker = worker
        self.server = server
        self.host = host
        self.stage = Stage.CONNECTING
        self.scram: ScramClient | None = None
        self.binding: bytes | None = None
        self.parameters: list[tuple[str, str]] = []

    # -- connection and TLS

    def connected(self) -> None:
        """Ask for TLS where it may be had, else log in at once."""
        worker, server = self.worker, self.server
        engine = worker.engine
        engine.set_dialogue_limit(server.conn, LOGIN_MESSAGE_MAX)
        _, _, server.local_host, server.local_port = engine.addresses(server.conn)
        if worker.config.settings.log_connections:
            unix = isinstance(server.target, str)
            where = "" if unix else f" (from {server.local_host}:{server.local_port})"
            worker.log.log(f"{worker.servers.prefix(server)}new connection to server{where}")
        if isinstance(server.target, str) or self._tls_mode() == "disable":
            self._start()
            return
        self.stage = Stage.SSL_ANSWER
        engine.send(server.conn, build.ssl_request())

    def _tls_mode(self) -> str:
        return effective.server_tls(self.worker.config.settings, self.server.pool.database.config).server_tls_sslmode

    def _ssl_answer(self, answer: int, more: bytes) -> None:
        mode = self._tls_mode()
        if answer == _YES and not more:
            self._handshake()
        elif answer == _NO and not more:
            if mode in ("allow", "prefer"):
                self._start()
            else:
                self.fail("server refused SSL")
        else:
            self.fail("bad sslreq answer")

    def _handshake(self) -> None:
        mode = self._tls_mode()
        name = self.host if mode == "verify-full" else ""
        try:
            context = self.worker.tls.server_side(self.server.pool.database.config)
            self.stage = Stage.HANDSHAKE
            started = self.worker.engine.start_tls(self.server.conn, context, name)
        except (ValueError, OSError) as error:
            self.worker.log.warning(f"{self.worker.servers.prefix(self.server)}TLS setup failed: {error}")
            self.fail("TLS startup failed")
            return
        if not started:
            self.fail("received unencrypted data after SSL response")

    def secured(self, version: str, cipher: str, alpn: str, sni: str, certificate: bytes | None) -> None:
        """The handshake is done."""
        self.server.tls = f"{version}/{cipher}"
        self.server.server_name = self.host
        if certificate is not None:
            self.binding = tls_server_end_point(certificate)
        if self.worker.config.settings.log_connections:
            self.worker.log.log(f"{self.worker.servers.prefix(self.server)}SSL established: {self.server.tls}")
        self._start()

    def _start(self) -> None:
        entry, user = self.server.pool.database.config, self.server.pool.user.name
        wishes = (
            ("client_encoding", entry.client_encoding),
            ("datestyle", entry.datestyle),
            ("timezone", entry.timezone),
            ("application_name", entry.application_name),
        )
        named = [(name, value) for name, value in wishes if value is not None]
        stream = self.server.pool.stream
        if stream is not None:
            own = {name.lower() for name, _ in stream.parameters}
            named = [*(pair for pair in named if pair[0] not in own), *replication.startup(stream)]
        self.stage = Stage.AUTHENTICATION
        packet = build.startup_message([("database", entry.server_dbname), ("user", user), *named])
        self.worker.engine.send(self.server.conn, packet)

    # -- messages

    def message(self, kind: int, payload: bytes) -> None:
        """Everything a server may say before it is ready; anything else ends the attempt."""
        if self.stage is Stage.SSL_ANSWER:
            self._ssl_answer(kind, payload)
            return
        spec = backend(kind)
        try:
            if spec is None or not spec.length_ok(len(payload) + 4):
                raise WireError("bad packet")
            if kind == _AUTH and self.stage is Stage.AUTHENTICATION:
                self._authenticate(read.auth_request(payload))
            elif kind == _ERROR:
                self._error(read.error_fields(payload))
            elif kind == _STATUS:
                self._parameter(*read.parameter_status(payload))
            elif kind == _KEY and self.stage is Stage.PARAMETERS:
                self.server.cancel_key = read.backend_key_data(payload)
                self.worker.escrow.keyed(self.server)
            elif kind == _READY and self.stage is Stage.PARAMETERS:
                self._ready(read.ready_for_query(payload))
            elif kind not in (_NOTICE, _NEGOTIATE):
                raise WireError("unknown pkt from server")
        except WireError as error:
            self.fail(error.reason)

    def _parameter(self, name: str, value: str) -> None:
        if len(self.parameters) >= PARAMETERS_MAX:
            raise WireError("broken ParameterStatus packet")
        self.parameters = [pair for pair in self.parameters if pair[0] != name]
        self.parameters.append((name, value))

    def _error(self, fields: read.ErrorFields) -> None:
        log = self.worker.log
        if self.server.pool.stream is not None:
            log.error(f"S: login failed: {fields.severity}: {fields.text}")
            self.fail("login failed", refuse("login_failed"))
            return
        log.warning(f"server login failed: {fields.severity} {fields.text}")
        self.fail(fields.text, refuse("server_login_error", sqlstate=fields.sqlstate, text=fields.text))

    def _ready(self, status: str) -> None:
        if status != "I":
            raise WireError("bad packet")
        self.stage = Stage.OVER
        self.worker.servers.logged_in(self.server, self.parameters)

    # -- passwords

    def _authenticate(self, request: read.AuthRequest) -> None:
        secret = credential(self.worker.config, self.server.pool)
        try:
            if request.code == read.AUTH_OK:
                self._accepted()
            elif request.code == read.AUTH_CLEARTEXT:
                self._cleartext(secret)
            elif request.code == read.AUTH_MD5:
                self._md5(secret, request.content)
            elif request.code == read.AUTH_SASL and self.scram is None:
                self._sasl(secret, request.mechanisms)
            elif request.code in (read.AUTH_SASL_CONTINUE, read.AUTH_SASL_FINAL) and self.scram is not None:
                self._scram(self.scram, request)
            else:
                self._refuse("unknown/unsupported auth method", "login_failed")
        except BadMechanism as error:
            self._refuse(error.reason, "server_sasl_unsupported")
        except AuthFailed as error:
            bad_signature = error.reason == "invalid server signature"
            self._refuse(error.reason, "server_invalid_signature" if bad_signature else "login_failed")

    def _accepted(self) -> None:
        # A server that skips the end of SCRAM has not proved that it knows the password.
        if self.scram is not None and not self.scram.done:
            self._refuse("server did not prove itself", "server_signature_unverified")
            return
        self.scram = None
        self.stage = Stage.PARAMETERS

    def _cleartext(self, secret: Secret | None) -> None:
        if secret is None or secret.kind != "plain":
            self._refuse("cannot send a password: wrong password type", WRONG_PASSWORD_TYPE)
            return
        self._send(build.password_message(build.encode(secret.text)))

    def _md5(self, secret: Secret | None, salt: bytes) -> None:
        answer = md5_answer(secret.text, self.server.pool.user.name, salt) if secret is not None else None
        if answer is None:
            self._refuse("cannot do MD5 authentication: wrong password type", WRONG_PASSWORD_TYPE)
            return
        self._send(build.password_message(answer))

    def _sasl(self, secret: Secret | None, mechanisms: tuple[str, ...]) -> None:
        keys: str | Keys | None = None
        if secret is not None and secret.kind == "plain":
            keys = secret.text
        elif secret is not None and secret.kind == "scram":
            keys = self._kept_keys(secret)
            if keys is None:
                text = "password is SCRAM secret but client authentication did not provide SCRAM keys"
                self._refuse(f"cannot do SCRAM authentication: {text}", WRONG_PASSWORD_TYPE)
                return
        if keys is None:
            self._refuse("cannot do SCRAM authentication: wrong password type", WRONG_PASSWORD_TYPE)
            return
        self.scram = ScramClient(keys, mechanisms, self.binding, cache=self.worker.key_cache)
        self._send(build.sasl_initial(self.scram.mechanism, self.scram.start()))

    def _kept_keys(self, secret: Secret) -> Keys | None:
        """The keys of a client's login, only if they were made from this very secret."""
        who = holder(self.server.pool)
        return who.scram_keys if who.secret == secret else None

    def _scram(self, scram: ScramClient, request: read.AuthRequest) -> None:
        answer = scram.feed(request.content)
        if answer is None:
            work = scram.needs_work()
            if work is not None:
                self.worker.offload(work, lambda keys: self._derived(scram, keys))
        elif answer:
            self._send(build.sasl_response(answer))

    def _derived(self, scram: ScramClient, keys: Keys) -> None:
        if self.stage is Stage.AUTHENTICATION and scram is self.scram and self._alive():
            self._send(build.sasl_response(scram.resume(keys)))

    def _alive(self) -> bool:
        return self.worker.handlers.get(self.server.conn) is self

    def _send(self, packet: bytes) -> None:
        self.worker.engine.send(self.server.conn, packet)

    # -- failing

    def _refuse(self, text: str, key: str) -> None:
        self.worker.log.error(f"{self.worker.servers.prefix(self.server)}{text}")
        self.fail("failed to answer authreq", refuse(key))

    def fail(self, reason: str, refused: Refused | None = None) -> None:
        """The attempt is over."""
        if self.stage is not Stage.OVER:
            self.stage = Stage.OVER
            self.worker.servers.login_failed(self.server, reason, refused)

    def oversize(self, header: bytes) -> None:
        """A length no login message may have."""
        self.fail("bad pkt header")

    def closed(self, reason: str) -> None:
        """Refused, reset, or a failed handshake."""
        if self.stage is Stage.OVER:
            return
        stage, self.stage = self.stage, Stage.OVER
        worker = self.worker
        if stage is Stage.HANDSHAKE and reason.startswith("tls:"):
            worker.log.warning(f"{worker.servers.prefix(self.server)}TLS handshake error: {reason[4:].strip()}")
        if stage is Stage.CONNECTING:
            worker.log.warning(f"{worker.servers.prefix(self.server)}{reason}")
            reason = "connect failed"
        worker.servers.gone(self.server, reason)
        worker.servers.failed(self.server, reason)
