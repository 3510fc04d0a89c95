"""How a client must prove who it is, by auth_type or by the hba line that fits it; and proofs without a password."""

from __future__ import annotations

import pwd
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pgshoal.auth import certificate
from pgshoal.errors import refuse
from pgshoal.policy.hba import Approach, decide
from pgshoal.policy.ident import may_be

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgshoal.config.hba import HbaRule
    from pgshoal.config.ident import IdentLine
    from pgshoal.worker.client_login import ClientLogin

#: Others are asked who the user is, so its secret is not needed.
_WITHOUT_SECRET: Final = frozenset({"ldap", "pam", "reject", ""})


def choose(login: ClientLogin) -> str:
    """The method for this client, in auth_type's words; "" if no line of the hba file fits. Keeps the line."""
    method = login.worker.config.settings.auth_type
    if method != "hba":
        return method
    login.rule = _rule(login)
    if login.rule is None:
        return ""
    return "plain" if login.rule.method == "password" else login.rule.method


def is_known(login: ClientLogin) -> bool:
    """Whether the client may be told that its name is on no list: it exists, or any name may exist in a directory."""
    return login.user is not None or choose(login) in ("ldap", "pam")


def by_secret(login: ClientLogin) -> bool:
    """Whether the secret of the user may be needed. Who is rejected as it stands makes no work for a server."""
    return choose(login) not in _WITHOUT_SECRET


def _rule(login: ClientLogin) -> HbaRule | None:
    """By the facts of the connection, and the name that counts: what auth_query has found, once it has."""
    wish = login.wish
    if wish is None:
        return None
    user = wish.user if login.user is None else login.user.name
    address = "" if login.peer_host == "unix" else login.peer_host
    physical = wish.replication == "physical"
    client = Approach(wish.database, user, address, login.tls != "", physical)
    return decide(login.worker.config.hba, client)


def check_certificate(login: ClientLogin) -> None:
    """cert: one name in the verified certificate must be the user's, or stand for it in the map."""
    log, lead = login.worker.log, login.lead()
    if not login.tls:
        log.error(f"{lead}TLS connection required")
    elif login.certificate is None:
        log.error(f"{lead}TLS client certificate required")
    elif login.user is not None:
        found = certificate.names(login.certificate)
        if _allowed(login, found):
            login.authenticated()
            return
        name = None if login.rule is None else login.rule.map
        log.error(
            lead + ("TLS certificate name mismatch" if name is None else f"ident map: {name} does not have a match")
        )
    login.refuse(refuse("cert_failed"))


def check_peer(login: ClientLogin) -> None:
    """peer: the account at the other end of the Unix socket must have the user's name, or stand for it in the map."""
    if login.peer_host == "unix" and login.user is not None:
        if _allowed(login, _account(login)):
            login.authenticated()
            return
        if login.rule is not None and login.rule.map is not None:
            login.worker.log.error(f"{login.lead()}ident map {login.rule.map} cannot be matched")
    login.refuse(refuse("peer_failed"))


def _account(login: ClientLogin) -> Iterable[str]:
    with suppress(KeyError):
        return (pwd.getpwuid(login.worker.engine.credentials(login.conn)[1]).pw_name,)
    return ()


def _allowed(login: ClientLogin, names: Iterable[str]) -> bool:
    lines: tuple[IdentLine, ...] | None = None
    if login.rule is not None and login.rule.map is not None:
        lines = login.worker.config.ident.get(login.rule.map, ())
    user = login.user
    return user is not None and any(may_be(lines, name, user.name) for name in names)
