"""Clients whose certificate says who they are."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psycopg

from tests.e2e.conftest import MakePooler, until
from tests.e2e.test_hba import hba, logged, put
from tests.support.certs import Authority, Certificate
from tests.support.pooler import Pooler, tls_client_side
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

__all__ = ["hba"]
FAILED = "certificate authentication failed"


def settings(authority: Authority, mode: str = "verify-full") -> dict[str, object]:
    """TLS for clients, with our authority for their certificates."""
    return tls_client_side(authority.server, mode) | {"client_tls_ca_file": authority.ca_file}


def enter(pooler: Pooler, authority: Authority, pair: Certificate | None, user: str = "alice", **more: Any) -> str:
    """What a client with this certificate is: the user it runs as, or the refusal it gets."""
    how = {"sslmode": "verify-full", "sslrootcert": str(authority.ca_file), "host": "localhost", **more}
    if pair is not None:
        how |= {"sslcert": str(pair.cert), "sslkey": str(pair.key)}
    else:
        how |= {"sslcert": "/nonexistent", "sslkey": "/nonexistent"}
    try:
        return str(pooler.query("select current_user::text", user=user, **how)[0][0])
    except psycopg.OperationalError as error:
        return str(error).strip().rpartition("FATAL:")[2].strip()


def client_key(pair: Certificate) -> Certificate:
    """libpq wants its key for itself."""
    pair.key.chmod(0o600)
    return pair


def test_the_name_in_the_certificate_is_the_user(make: MakePooler, authority: Authority) -> None:
    """Its common name or a DNS name must be the user's, whole; other users and unknown ones are refused alike."""
    pooler = make(auth_type="cert", **settings(authority))
    alice = client_key(authority.issue("cn", common_name="alice"))
    assert enter(pooler, authority, alice) == "alice"
    assert enter(pooler, authority, alice, "bob") == FAILED
    assert enter(pooler, authority, alice, "Alice") == FAILED
    logged(pooler, "TLS certificate name mismatch")
    other = client_key(authority.issue("san", "bob", common_name="somebody"))
    assert enter(pooler, authority, other, "bob") == "bob"
    assert enter(pooler, authority, other, "somebody") == FAILED  # a name the pooler does not know
    assert enter(pooler, authority, other) == FAILED
    ghost = client_key(authority.issue("ghost", common_name="ghost"))
    assert enter(pooler, authority, ghost, "ghost") == FAILED


def test_a_wildcard_is_a_name_like_any_other(make: MakePooler, authority: Authority) -> None:
    """A certificate for all hosts of a domain is not one for all users."""
    pooler = make(auth_type="cert", userlist={"a.example.org": "x"}, **settings(authority))
    star = client_key(authority.issue("star", "*.example.org", common_name="x"))
    assert enter(pooler, authority, star, "a.example.org") == FAILED


def test_certificates_of_others_are_worth_nothing(make: MakePooler, authority: Authority) -> None:
    """A certificate of another authority, or none at all, does not survive the handshake."""
    pooler = make(auth_type="cert", **settings(authority))
    assert "alice" not in enter(pooler, authority, client_key(Authority().issue("alice", common_name="alice")))
    assert "alice" not in enter(pooler, authority, None)
    logged(pooler, "TLS handshake error")


def test_a_unix_socket_has_no_certificate(make: MakePooler, authority: Authority) -> None:
    """There the method fails, and the log says why."""
    pooler = make(auth_type="cert", **settings(authority))
    assert enter(pooler, authority, None, host=pooler.socket_dir, sslmode="disable") == FAILED
    logged(pooler, "TLS connection required")


def test_lines_with_cert(hba: MakePooler, authority: Authority) -> None:
    """Some clients come with certificates, others with passwords; a map makes users of other names."""
    pooler = hba(
        "hostssl all alice all cert\nhostssl all bob all cert map=m\nhostssl all all all scram-sha-256\n",
        r"m /^(.*)@example\.org$ \1" + "\n",
        **settings(authority, "prefer"),
    )
    alice = client_key(authority.issue("a", common_name="alice"))
    bob = client_key(authority.issue("b", common_name="bob@example.org"))
    assert enter(pooler, authority, alice) == "alice"
    assert enter(pooler, authority, alice, "bob") == FAILED
    logged(pooler, "ident map: m does not have a match")
    assert enter(pooler, authority, bob, "bob") == "bob"
    assert enter(pooler, authority, bob) == FAILED
    assert enter(pooler, authority, None) == FAILED
    logged(pooler, "TLS client certificate required")
    assert enter(pooler, authority, None, "plain_user", password="plain-secret") == "plain_user"


def test_users_of_auth_query(make: MakePooler, authority: Authority, pg15: Postgres) -> None:
    """A user who is in no file gets in by certificate if the server knows the name."""
    pooler = make(auth_type="cert", auth_user=pg15.superuser, userlist={pg15.superuser: ""}, **settings(authority))
    alice = client_key(authority.issue("q", common_name="alice"))
    assert enter(pooler, authority, alice) == "alice"
    assert enter(pooler, authority, alice, "bob") == FAILED
    assert enter(pooler, authority, alice, "ghost") == "no such user"


def test_a_reload_with_another_map(hba: MakePooler, authority: Authority) -> None:
    """The ident file is read with the rest."""
    pooler = hba("hostssl all all all cert map=m\n", "m x alice\n", **settings(authority))
    pair = client_key(authority.issue("x", common_name="x"))
    assert enter(pooler, authority, pair) == "alice"
    put(Path(str(pooler.settings["auth_ident_file"])), "m x bob\n")
    pooler.signal(signal.SIGHUP)
    until(lambda: enter(pooler, authority, pair, "bob") == "bob", "the new map")
    assert enter(pooler, authority, pair) == FAILED
