"""The authentication exchange with a client, by auth_type; users that do not exist get the same exchange and fail."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from pgshoal.auth.failed import AuthFailed, BadMechanism
from pgshoal.auth.md5 import check_md5, new_salt
from pgshoal.auth.scram import ScramServer, offered
from pgshoal.auth.secret import Verifier, mock_verifier
from pgshoal.auth.verify import check_password, is_heavy
from pgshoal.errors import refuse
from pgshoal.wire import read
from pgshoal.wire.build import AUTH_CLEARTEXT, auth_md5, auth_sasl, sasl_continue, sasl_final
from pgshoal.wire.catalogue import PASSWORD_LIMIT
from pgshoal.wire.errors import WireError
from pgshoal.worker import client_access, client_outside

if TYPE_CHECKING:
    from pgshoal.worker.client_login import ClientLogin

_PASSWORD: Final = ord("p")
_AUTH_SCRAM: Final = auth_sasl(offered(None))
_AUTH_SCRAM_BOUND: Final = auth_sasl(offered(b""))
#: Type, length, password, terminator.
_PASSWORD_PACKET_MAX: Final = 5 + PASSWORD_LIMIT + 1
#: Longer than any md5 answer or SCRAM message, and shorter than what a second startup packet looks like.
_SHORT_PACKET_MAX: Final = 2048


class Stage(Enum):
    """What is expected next."""

    STARTUP = "startup packet"
    HANDSHAKE = "TLS handshake"
    PASSWORD = "cleartext password"
    LDAP = "cleartext password for the directory"
    PAM = "cleartext password for PAM"
    MD5 = "md5 answer"
    SASL_FIRST = "SASL initial response"
    SASL_NEXT = "SASL response"
    WORK = "derivation of keys"
    DONE = "nothing"


def begin(login: ClientLogin) -> None:
    """Ask the client for its proof, or let it in, or not."""
    method = client_access.choose(login)
    if method in ("any", "trust"):
        if login.user is None:
            login.refuse(refuse("trust_failed"))
        else:
            login.authenticated()
        return
    secret = login.secret()
    if method == "scram-sha-256" or (method == "md5" and secret is not None and secret.kind == "scram"):
        _begin_scram(login)
    elif method == "md5":
        login.salt = new_salt()
        _ask(login, Stage.MD5, auth_md5(login.salt), _SHORT_PACKET_MAX)
    elif method == "plain":
        _ask(login, Stage.PASSWORD, AUTH_CLEARTEXT, _PASSWORD_PACKET_MAX)
    elif method == "cert":
        client_access.check_certificate(login)
    elif method == "peer":
        client_access.check_peer(login)
    elif method in ("", "reject"):
        login.refuse(refuse("login_rejected" if method else "no_auth_method"))
    elif (obstacle := client_outside.obstacle(login, method)) is not None:
        login.refuse(obstacle)
    else:
        _ask(login, Stage.LDAP if method == "ldap" else Stage.PAM, AUTH_CLEARTEXT, _PASSWORD_PACKET_MAX)


def _ask(login: ClientLogin, stage: Stage, request: bytes, limit: int) -> None:
    login.stage = stage
    login.worker.engine.proceed(login.conn, limit, request)


def message(login: ClientLogin, kind: int, payload: bytes) -> None:
    """Judge an authentication message."""
    if kind != _PASSWORD:
        _unexpected(login, kind)
        return
    stage = login.stage
    try:
        if stage is Stage.SASL_NEXT:
            _sasl_feed(login, payload)
        elif stage is Stage.SASL_FIRST:
            _sasl_first(login, payload)
        elif stage is Stage.MD5:
            _check_md5(login, read.password_message(payload))
        elif stage is Stage.PASSWORD:
            _check_password(login, read.password_message(payload))
        elif stage in (Stage.LDAP, Stage.PAM):
            _check_outside(login, "ldap" if stage is Stage.LDAP else "pam", read.password_message(payload))
        else:
            login.refuse(refuse("bad_packet"))
    except WireError:
        sasl = login.stage in (Stage.SASL_FIRST, Stage.SASL_NEXT)
        login.refuse(refuse("sasl_failed" if sasl else "password_failed"))
    except BadMechanism:
        login.refuse(refuse("sasl_bad_mechanism"))
    except AuthFailed as failed:
        login.worker.log.error(login.lead() + failed.reason)
        login.refuse(refuse("sasl_failed"))


def is_long_sasl(stage: Stage, header: bytes) -> bool:
    """Whether a message over its limit is a SCRAM message with far too much in it, and not just any bytes."""
    length = int.from_bytes(header[1:5])
    return (
        stage in (Stage.SASL_FIRST, Stage.SASL_NEXT) and header[0] == _PASSWORD and 4 <= length < _PASSWORD_PACKET_MAX
    )


def _unexpected(login: ClientLogin, kind: int) -> None:
    if kind == 0:
        login.refuse(refuse("resent_startup"))
        return
    login.refuse(refuse("bad_packet"))


def _check_md5(login: ClientLogin, answer: bytes) -> None:
    secret = login.secret()
    name = "" if login.user is None else login.user.name
    if check_md5(answer, None if secret is None else secret.text, name, login.salt):
        login.authenticated()
    else:
        login.refuse(refuse("password_failed"))


def _check_outside(login: ClientLogin, method: str, password: bytes) -> None:
    if not password:
        # A directory takes a bind without a password for a visit by nobody, and lets it in.
        login.refuse(refuse("empty_password"))
        return
    login.stage = Stage.WORK
    client_outside.check(login, method, password)


def _check_password(login: ClientLogin, password: bytes) -> None:
    if not password:
        login.refuse(refuse("empty_password"))
        return
    user, known = login.user, login.secret()
    secret, name, cache = login.worker.front.mock_secret, "", login.worker.key_cache
    if user is not None and known is not None and known.kind != "empty":
        secret, name = known.text, user.name
    if not is_heavy(secret):
        _judge(login, check_password(password, secret, name, cache))
        return
    login.stage = Stage.WORK
    login.worker.offload(
        lambda: check_password(password, secret, name, cache), lambda fits: _password_judged(login, fits)
    )


def _password_judged(login: ClientLogin, fits: bool) -> None:
    if login.stage is Stage.DONE:
        return
    # From here on the client may be dead without our having read its CLOSED.
    with suppress(KeyError):
        _judge(login, fits)


def _judge(login: ClientLogin, fits: bool) -> None:
    if fits:
        login.authenticated()
    else:
        login.refuse(refuse("password_failed"))


def _begin_scram(login: ClientLogin) -> None:
    """Find what to verify against; a plain secret is derived in a thread the first time it is used."""
    worker, secret = login.worker, login.secret()
    iterations = worker.config.settings.scram_iterations
    if secret is None or secret.kind == "empty":
        _offer_scram(login, None)
    elif secret.kind == "md5":
        worker.log.error(f"{login.lead()}SCRAM authentication failed: user has MD5 secret")
        _offer_scram(login, None)
    elif secret.kind == "scram":
        _offer_scram(login, worker.key_cache.stored(secret.text))
    elif (known := worker.key_cache.adhoc(secret.text, iterations)) is not None:
        _offer_scram(login, known)
    else:
        login.stage = Stage.WORK
        text, cache = secret.text, worker.key_cache
        worker.offload(lambda: cache.derive_adhoc(text, iterations), lambda found: _derived(login, found))


def _derived(login: ClientLogin, verifier: Verifier) -> None:
    if login.stage is not Stage.DONE:
        with suppress(KeyError):  # it may be dead without our having read its CLOSED
            _offer_scram(login, verifier)


def _offer_scram(login: ClientLogin, verifier: Verifier | None) -> None:
    """Without a verifier the exchange is the same, and cannot succeed."""
    if verifier is None and login.wish is not None:
        front = login.worker.front
        verifier = mock_verifier(login.wish.user, front.mock_key, front.mock_iterations)
    login.verifier = verifier
    offer = _AUTH_SCRAM if login.binding is None else _AUTH_SCRAM_BOUND
    _ask(login, Stage.SASL_FIRST, offer, _SHORT_PACKET_MAX)


def _sasl_first(login: ClientLogin, payload: bytes) -> None:
    mechanism, data = read.sasl_initial(payload)
    if login.verifier is None:
        raise AuthFailed("no verifier")
    login.scram = ScramServer(login.verifier, mechanism, login.binding)
    _sasl_feed(login, data)


def _sasl_feed(login: ClientLogin, data: bytes | None) -> None:
    scram = login.scram
    if scram is None:
        raise AuthFailed("no SASL exchange is under way")
    answer = scram.feed(data)
    if not scram.done:
        _ask(login, Stage.SASL_NEXT, sasl_continue(answer), _SHORT_PACKET_MAX)
        return
    login.worker.engine.send(login.conn, sasl_final(answer))
    holder = login.found or login.user
    if scram.keys is not None and holder is not None:
        holder.scram_keys = scram.keys
    login.authenticated()
