"""Asks an LDAP directory whether a password fits a user, by a bind as its entry; blocks, so belongs in a thread."""

from __future__ import annotations

import importlib.util
import secrets
import ssl
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pgshoal.auth.ldapconf import read_ldapconf
from pgshoal.auth.outside import Answer

if TYPE_CHECKING:
    from pgshoal.config.ldap import LdapOptions

#: Characters that mean something in filters; PostgreSQL refuses such names too.
_FORBIDDEN: Final = frozenset("*()\\/\0")
_SCOPES: Final = {"base": "BASE", "one": "LEVEL", "sub": "SUBTREE"}
_SUCCESS: Final = 0
_OFFLINE: Final = "Can't contact LDAP server"


class _Unreachable(Exception):
    """This server does not answer; another one may."""


class _Refused(Exception):
    """The answer is no, and why."""


class _NoEntry(_Refused):
    """The search found none, or more than one."""


@dataclass(slots=True)
class _Attempt:
    """One question to one server."""

    options: LdapOptions
    host: str
    deadline: float

    def left_s(self) -> int:
        """Whole seconds, as sockets are told."""
        left = int(self.deadline - time.monotonic())
        if left < 1:
            raise _Unreachable("timeout")
        return left


def is_available() -> bool:
    """Whether the library is installed (the extra `ldap`)."""
    return importlib.util.find_spec("ldap3") is not None


def authenticate(options: LdapOptions, user: str, password: bytes, limit_s: float) -> Answer:
    """Ask the servers in turn, until one answers; never raises."""
    if not password or b"\0" in password:
        # A bind without a password succeeds as nobody.
        return Answer(False, "empty password")
    if options.basedn is not None and _FORBIDDEN & set(user):
        return Answer(False, "invalid character in user name for LDAP authentication")
    why = _OFFLINE
    deadline = time.monotonic() + max(limit_s, 1.0) + 0.9
    for host in options.servers:
        attempt = _Attempt(options, host, deadline)
        try:
            _ask(attempt, user, password)
        except _Unreachable as error:
            why = f"LDAP login failed for user {user} on server {host}: {_OFFLINE} ({error})"
        except _Refused as error:
            return Answer(False, str(error))
        except Exception as error:
            # The texts of unexpected exceptions may quote what was sent.
            return Answer(False, f"LDAP login failed for user {user} on server {host}: {type(error).__name__}")
        else:
            return Answer(True)
    return Answer(False, why)


@cache
def _library() -> Any:
    with warnings.catch_warnings():
        # It uses old names of the library below it.
        warnings.simplefilter("ignore", DeprecationWarning)
        import ldap3
        import ldap3.utils.conv
        import ldap3.utils.dn
    return ldap3


def _ask(attempt: _Attempt, user: str, password: bytes) -> None:
    options, library = attempt.options, _library()
    if options.basedn is None:
        # Where the name becomes a part of a DN, nothing in it may end that part.
        name = library.utils.dn.escape_rdn(user) if options.prefix.endswith("=") else user
        found = f"{options.prefix}{name}{options.suffix}"
    else:
        found = _found(attempt, user, password)
    if not found:
        raise _Refused(f"LDAP login failed for user {user} on server {attempt.host}: no name to bind as")
    _close(_open(attempt, found, password))


def _found(attempt: _Attempt, user: str, password: bytes) -> str:
    """As `_search`; a name without an entry is refused only after a bind, as one with a wrong password is."""
    try:
        return _search(attempt, user)
    except _NoEntry as error:
        refused = _Refused(str(error))
    with suppress(_Refused):
        _close(_open(attempt, f"cn={secrets.token_hex(8)},{attempt.options.basedn}", password))
    raise refused


def _search(attempt: _Attempt, user: str) -> str:
    """The DN of the user's entry, of which there must be one."""
    options, library = attempt.options, _library()
    value = library.utils.conv.escape_filter_chars(user)
    condition = options.searchfilter.replace("$username", value) or f"({options.searchattribute}={value})"
    if not condition.startswith("("):
        condition = f"({condition})"
    connection = _open(attempt, options.binddn, options.bindpasswd.encode(errors="surrogateescape"))
    try:
        _, result, response, _ = _verb(
            lambda: connection.search(
                options.basedn, condition, _SCOPES[options.scope], attributes=[library.NO_ATTRIBUTES], size_limit=2
            )
        )
    finally:
        _close(connection)
    entries = [each["dn"] for each in response or () if each.get("type") == "searchResEntry"]
    where = f'filter "{condition}" on server {attempt.host}'
    # 4: there were more than we asked for; 32: the base does not exist.
    if result["result"] not in (_SUCCESS, 4, 32):
        raise _Refused(f"could not search LDAP for {where}: {result['description']}")
    if len(entries) != 1:
        count = "no entry" if not entries else "more than one entry"
        raise _NoEntry(f'LDAP user "{user}" is not unique or does not exist: {count} for {where}')
    return str(entries[0])


def _open(attempt: _Attempt, name: str, password: bytes) -> Any:
    """A connection bound as `name`; anonymous if there is none."""
    options, library, host = attempt.options, _library(), attempt.host.strip("[]")
    secure = options.starttls or options.scheme == "ldaps"
    server = library.Server(
        host,
        port=options.port,
        use_ssl=options.scheme == "ldaps",
        tls=_tls(host) if secure else None,
        get_info=library.NONE,
        connect_timeout=attempt.left_s(),
    )
    named = bool(name and password)
    connection = library.Connection(
        server,
        user=name if named else None,
        # Bytes go out as they are.
        password=password if named else None,
        authentication=library.SIMPLE if named else library.ANONYMOUS,
        client_strategy=library.SAFE_SYNC,
        auto_referrals=False,
        check_names=False,
        read_only=True,
        receive_timeout=attempt.left_s(),
    )
    try:
        _verb(connection.open)
        if options.starttls and not _verb(connection.start_tls):
            raise _Refused(f"could not start LDAP TLS session with server {attempt.host}")
        _, result, _, _ = _verb(connection.bind)
        if result["result"] != _SUCCESS:
            reason = _sentence(str(result["description"]))
            raise _Refused(f"LDAP login failed for user {name} on server {attempt.host}: {reason}")
    except BaseException:
        _close(connection)
        raise
    return connection


def _verb(call: Any) -> Any:
    exceptions = _library().core.exceptions
    try:
        return call()
    except (exceptions.LDAPStartTLSError, exceptions.LDAPSSLConfigurationError, ssl.SSLError) as error:
        raise _Refused(f"could not start LDAP TLS session: {error}") from None
    except (exceptions.LDAPCommunicationError, OSError) as error:
        if "certificate" in str(error):
            raise _Refused(f"could not start LDAP TLS session: {error}") from None
        raise _Unreachable(type(error).__name__) from None


def _tls(host: str) -> Any:
    """As the system's libldap is told to: its file names the authority, and may switch the check off."""
    conf = read_ldapconf()
    context = ssl.create_default_context(cafile=conf.ca_file or None, capath=conf.ca_folder or None)
    context.check_hostname = conf.verify
    context.verify_mode = ssl.CERT_REQUIRED if conf.verify else ssl.CERT_NONE

    class Tls(_library().Tls):  # type: ignore[misc]
        """The library's own check of names uses what newer Pythons do not have."""

        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            # Whatever happens, nothing goes through the plain socket from here on.
            plain, connection.socket = connection.socket, None
            try:
                connection.socket = context.wrap_socket(plain, server_hostname=host)
            except BaseException:
                plain.close()
                raise

    return Tls(validate=context.verify_mode)


def _close(connection: Any) -> None:
    with suppress(Exception):
        connection.unbind()
    with suppress(Exception):
        # Where the greeting failed, the library leaves it open.
        connection.socket.close()


def _sentence(description: str) -> str:
    """invalidCredentials -> Invalid credentials."""
    text = "".join(f" {char.lower()}" if char.isupper() else char for char in description)
    return text[:1].upper() + text[1:]
