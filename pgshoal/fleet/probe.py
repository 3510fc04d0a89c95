"""Asks a PostgreSQL server for its limits, over one short connection with a login of the configuration."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pgshoal.auth.channel_binding import tls_server_end_point
from pgshoal.auth.failed import AuthFailed
from pgshoal.auth.md5 import md5_answer
from pgshoal.auth.scram import ScramClient
from pgshoal.config import effective
from pgshoal.config.model import Config, Secret, ServerTls
from pgshoal.errors import printable
from pgshoal.fleet import servertls
from pgshoal.policy import foresight
from pgshoal.policy.foresight import Place, RoleFacts, ServerFacts
from pgshoal.wire import build, read
from pgshoal.wire.errors import WireError

#: No message of a login is longer, and no row of the answers.
_MESSAGE_MAX: Final = 70_000
_ROWS_MAX: Final = 100_000
#: Logins that are tried for one server before it counts as one that cannot be asked.
_LOGINS_MAX: Final = 4
_PATIENCE_S: Final = 15.0  # where server_connect_timeout is off
_GOODBYE_S: Final = 1.0
_AUTH, _STATUS, _KEY, _READY, _ERROR, _NOTICE, _NEGOTIATE = b"RSKZENv"
_ROW, _COLUMNS, _DONE = b"DTC"
_RANK: Final = {"plain": 0, "md5": 1, "empty": 2, "scram": 3}
# Three answers in one round trip. Rows of the second have two columns, of the third three, of the first five.
_QUESTION: Final = (
    "SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('max_connections'), "
    "pg_catalog.current_setting('superuser_reserved_connections'), "
    "pg_catalog.current_setting('reserved_connections', true), "
    "pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()); "
    "SELECT datname, datconnlimit FROM pg_catalog.pg_database; "
    "SELECT rolname, rolconnlimit, rolsuper FROM pg_catalog.pg_roles WHERE rolconnlimit >= 0 OR rolsuper"
)


class CannotAsk(Exception):
    """Why a server did not tell its limits."""


class Unreachable(CannotAsk):
    """It does not answer; no other login would help."""


@dataclass(frozen=True, slots=True)
class Login:
    """A database and a user that the configuration leads to this server with."""

    dbname: str
    user: str
    secret: Secret | None = field(repr=False)
    tls: ServerTls


def logins(config: Config, place: Place) -> list[Login]:
    """How to get in, most promising first: those whose password we have in plain text."""
    found: dict[tuple[str, str], Login] = {}
    plain = sorted(foresight.plain_users(config), key=lambda user: _rank(config.secrets.get(user)))[:_LOGINS_MAX]
    for pool in foresight.pools(config):
        if place not in pool.places:
            continue
        entry = config.autodb if pool.database == "*" else config.databases[pool.database]
        for user in (pool.user,) if pool.user else plain:
            secret = config.secrets.get(user)
            if entry is not None and entry.user == user and entry.password is not None and entry.password.text:
                secret = entry.password
            tls = effective.server_tls(config.settings, entry)
            login = Login(pool.dbname or "postgres", user, secret, tls)
            found.setdefault((login.dbname, login.user), login)
    return sorted(found.values(), key=lambda login: _rank(login.secret))


def _rank(secret: Secret | None) -> int:
    return _RANK["empty" if secret is None else secret.kind]


async def ask(config: Config, place: Place) -> ServerFacts:
    """The limits of one server; CannotAsk with the last reason if no login gets in."""
    settings = config.settings
    reason = CannotAsk("no user is known to log in as")
    for login in logins(config, place)[:_LOGINS_MAX]:
        try:
            async with asyncio.timeout(settings.server_connect_timeout or _PATIENCE_S):
                return await _ask_as(place, login)
        except TimeoutError:
            raise Unreachable("no answer (server_connect_timeout)") from None
        except OSError as error:
            raise Unreachable(_reason(error)) from None
        except Unreachable:
            raise
        except (CannotAsk, WireError, AuthFailed, ValueError) as error:
            reason = CannotAsk(printable(f"{login.user}@{login.dbname}: {error}"))
    raise reason


def _reason(error: OSError) -> str:
    """The system's words; asyncio has its own, which hold less."""
    if isinstance(error, ssl.SSLError) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def _ask_as(place: Place, login: Login) -> ServerFacts:
    conversation = Conversation(*await _connect(place))
    try:
        await conversation.secure(login.tls, place[0])
        await conversation.log_in(login)
        return facts(await conversation.rows(_QUESTION))
    except asyncio.IncompleteReadError:
        raise Unreachable("the server closed the connection") from None
    finally:
        await conversation.close()


async def _connect(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = place
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    if host.startswith("@"):
        return await asyncio.open_unix_connection(f"\0{host[1:]}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)


class Conversation:
    """One connection to a server, one message after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._binding: bytes | None = None

    async def secure(self, settings: ServerTls, host: str) -> None:
        """TLS, as server_tls_sslmode wants it."""
        mode = settings.server_tls_sslmode
        if mode == "disable" or host.startswith(("/", "@")):
            return
        context = servertls.context(settings, verify_name=True)
        self._writer.write(build.ssl_request())
        answer = await self._reader.readexactly(1)
        if answer == b"S":
            try:
                await self._writer.start_tls(context, server_hostname=host)
            except ssl.SSLError as error:
                raise Unreachable(f"TLS: {error.reason or error}") from None
            certificate = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            self._binding = tls_server_end_point(certificate) if certificate else None
        elif answer != b"N" or mode in servertls.STRICT:
            raise Unreachable("server refused SSL")

    async def log_in(self, login: Login) -> None:
        """Up to the first ReadyForQuery."""
        named = [("database", login.dbname), ("user", login.user), ("application_name", "pgshoal check")]
        self._writer.write(build.startup_message(named))
        exchange = Exchange(login, self._binding)
        while True:
            kind, payload = await self._message()
            if kind == _AUTH:
                answer = await exchange.answer(read.auth_request(payload))
                if answer:
                    self._writer.write(answer)
            elif kind == _READY:
                if not exchange.accepted:
                    raise WireError("ready before the login was accepted")
                return
            elif kind not in (_STATUS, _KEY, _NOTICE, _NEGOTIATE):
                raise WireError("unknown pkt from server")

    async def rows(self, sql: str) -> list[list[str | None]]:
        """All rows of all answers to a query."""
        self._writer.write(build.query(sql))
        found: list[list[str | None]] = []
        while True:
            kind, payload = await self._message()
            if kind == _ROW and len(found) < _ROWS_MAX:
                found.append([None if cell is None else read.decode(cell) for cell in read.data_row(payload)])
            elif kind == _READY:
                return found
            elif kind not in (_COLUMNS, _DONE, _STATUS, _NOTICE):
                raise WireError("unknown pkt from server")

    async def _message(self) -> tuple[int, bytes]:
        header = await self._reader.readexactly(5)
        length = int.from_bytes(header[1:])
        if not 4 <= length <= _MESSAGE_MAX:
            raise WireError("bad pkt header")
        payload = await self._reader.readexactly(length - 4)
        if header[0] == _ERROR:
            raise CannotAsk(read.error_fields(payload).text)
        return header[0], payload

    async def close(self) -> None:
        """Say goodbye and leave, politely for a moment."""
        try:
            self._writer.write(build.terminate())
            self._writer.close()
            async with asyncio.timeout(_GOODBYE_S):
                await self._writer.wait_closed()
        except (RuntimeError, OSError):  # a timeout is an OSError as well
            self._writer.transport.abort()


class Exchange:
    """The answers to one login's authentication requests."""

    def __init__(self, login: Login, binding: bytes | None) -> None:
        self._user, self._binding = login.user, binding
        self._secret = login.secret or Secret("empty", "")
        self._scram: ScramClient | None = None
        self.accepted = False

    async def answer(self, request: read.AuthRequest) -> bytes:
        """What to send; nothing at the end."""
        secret, scram = self._secret, self._scram
        if request.code == read.AUTH_OK:
            if scram is not None and not scram.done:
                raise AuthFailed("server did not prove itself")
            self.accepted = True
            return b""
        if request.code == read.AUTH_CLEARTEXT and secret.kind == "plain":
            return build.password_message(build.encode(secret.text))
        if request.code == read.AUTH_MD5 and secret.kind in ("plain", "md5"):
            return build.password_message(md5_answer(secret.text, self._user, request.content) or b"")
        if request.code == read.AUTH_SASL and secret.kind == "plain" and scram is None:
            self._scram = scram = ScramClient(secret.text, request.mechanisms, self._binding)
            return build.sasl_initial(scram.mechanism, scram.start())
        if request.code in (read.AUTH_SASL_CONTINUE, read.AUTH_SASL_FINAL) and scram is not None:
            return await self._continue(scram, request.content)
        raise AuthFailed("the server wants a password, and no usable one is configured")

    @staticmethod
    async def _continue(scram: ScramClient, content: bytes) -> bytes:
        answer = scram.feed(content)
        work = scram.needs_work()
        if work is not None:
            answer = scram.resume(await asyncio.to_thread(work))
        return build.sasl_response(answer) if answer else b""


def facts(rows: Iterable[list[str | None]]) -> ServerFacts:
    """From the rows of the question."""
    databases: dict[str, int] = {}
    roles: dict[str, RoleFacts] = {}
    settings: list[str | None] = []
    for row in rows:
        if len(row) == 5:
            settings = row
        elif len(row) == 2:
            databases[row[0] or ""] = int(row[1] or -1)
        elif len(row) == 3:
            roles[row[0] or ""] = RoleFacts(int(row[1] or -1), row[2] == "t")
    if not settings:
        raise CannotAsk("the server did not answer the question")
    version, most, superuser, reserved, started = settings
    number = (version or "?").split()[0]
    return ServerFacts(number, int(most or 0), int(superuser or 0), int(reserved or 0), databases, roles, started or "")
