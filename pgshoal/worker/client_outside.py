"""Clients whose password is judged by somebody outside: an LDAP directory or PAM."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.auth import ldap, pam
from pgshoal.auth.outside import Answer
from pgshoal.config.model import Secret
from pgshoal.errors import Refused, refuse
from pgshoal.worker.records import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgshoal.config.ldap import LdapOptions
    from pgshoal.worker.client_login import ClientLogin

#: A directory that takes longer does not answer; a client's own patience (client_login_timeout) may end before.
LIMIT_S: Final = 30.0


def _options(login: ClientLogin) -> LdapOptions | None:
    return login.worker.config.ldap if login.rule is None else login.rule.ldap


def obstacle(login: ClientLogin, method: str) -> Refused | None:
    """Why there is no use in asking for a password."""
    if method == "pam":
        return None if pam.is_available() else refuse("pam_failed")
    if not ldap.is_available():
        return refuse("ldap_unsupported")
    return refuse("ldap_options_missing") if login.rule is None and _options(login) is None else None


def check(login: ClientLogin, method: str, password: bytes) -> None:
    """Ask outside; `login.authenticated` or `login.refuse` follows."""
    worker = login.worker
    failed = refuse(f"{method}_failed")
    question = _pam(login, password) if method == "pam" else _ldap(login, password)
    if question is None:
        # The line is a bad one, or a reload has taken the directory away since the password was asked for.
        login.refuse(failed)
    elif not worker.ask_outside(
        _guarded(question), lambda answer: _judge(login, failed, password, answer), lambda: _waits(login)
    ):
        worker.log.warning(f"{login.lead()}too many logins wait for {method.upper()}")
        login.refuse(failed)


def _guarded(question: Callable[[], Answer]) -> Callable[[], Answer]:
    """A question that cannot be asked is answered with no; the error's own text might quote what was asked."""

    def ask() -> Answer:
        try:
            return question()
        except Exception as error:
            return Answer(False, f"internal error: {type(error).__name__}")

    return ask


def _pam(login: ClientLogin, password: bytes) -> Callable[[], Answer]:
    user, host = _user(login), "[local]" if login.peer_host == "unix" else login.peer_host
    return lambda: pam.authenticate(user, password, host)


def _ldap(login: ClientLogin, password: bytes) -> Callable[[], Answer] | None:
    user, options = _user(login), _options(login)
    if options is None:
        return None
    own = login.worker.config.settings.client_login_timeout
    limit_s = min(own, LIMIT_S) if own > 0 else LIMIT_S
    return lambda: ldap.authenticate(options, user, password, limit_s)


def _user(login: ClientLogin) -> str:
    """The name the client came with; nothing can change it."""
    return "" if login.wish is None else login.wish.user


def _waits(login: ClientLogin) -> bool:
    """Whether the client is still there; a thread asks this."""
    return login.conn in login.worker.front.logins


def _judge(login: ClientLogin, failed: Refused, password: bytes, answer: Answer) -> None:
    if not _waits(login):
        return
    # From here on the client may be dead without our having read its CLOSED.
    with suppress(KeyError):
        if not answer.fits:
            login.worker.log.warning(login.lead() + answer.why)
            login.refuse(failed)
        elif _enter(login, password):
            login.authenticated()


def _enter(login: ClientLogin, password: bytes) -> bool:
    """The client is who it says: it gets its record, and its password is kept for the servers of its database."""
    wish, worker = login.wish, login.worker
    if wish is None:
        return False
    user = login.user or worker.pools.record(wish.user)
    secret = Secret("plain", password.decode(errors="surrogateescape"))
    found = user.found.get(wish.database)
    if found is None or found.secret != secret or not found.typed:
        found = user.found[wish.database] = Found(secret, typed=True)
    return login.admit_as(user, found)
