"""Which method a client meets, and proofs without a password."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from pgshoal.config.hba import parse_hba
from pgshoal.config.ident import parse_ident
from pgshoal.config.model import Secret
from tests.auth.test_certificate import made
from tests.support import messages as m
from tests.worker.stub import Bench, Talk

ME = pwd.getpwuid(os.geteuid()).pw_name
UNIX = (4711, os.geteuid(), os.getegid())
SECRETS = {name: Secret("plain", f"{name}-secret") for name in ("alice", "bob", "admin", ME)}


class Guarded(Bench):
    """A worker with these lines in its hba file, and these in its ident file."""

    def __init__(self, hba: str, ident: str = "", **settings: Any) -> None:
        super().__init__(SECRETS, auth_type="hba", **settings)
        maps = parse_ident(ident, "ident.conf").maps
        object.__setattr__(self.worker.config, "ident", maps)
        object.__setattr__(self.worker.config, "hba", parse_hba(hba, "hba.conf", maps).rules)

    def over_tls(self, user: str, certificate: bytes | None) -> Talk:
        """A client that has shown this certificate."""
        talk = self.accept()
        self.event(8, talk.conn, "TLSv1.3", "TLS_AES_256_GCM_SHA384", "postgresql", "", certificate)
        talk.startup(user)
        return talk

    def over_unix(self, user: str, uid: int = UNIX[1]) -> Talk:
        """A client on the Unix socket."""
        talk = self.accept((UNIX[0], uid, UNIX[2]))
        talk.startup(user)
        return talk


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("host all all all password", 3),
        ("host all all all md5", 5),
        ("host all all all scram-sha-256", 10),
    ],
)
def test_methods_ask_for_their_proof(line: str, asked: int) -> None:
    """Each method sends its own request, also to users who do not exist."""
    with Guarded(line) as b:
        for user in ("alice", "ghost"):
            (request,) = b.login(user).messages()
            assert int.from_bytes(request.payload[:4]) == asked


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("host all all all reject", "login rejected"),
        ("host app bob all trust", "no authentication method is found"),
        ("local all all trust", "no authentication method is found"),
        ("", "no authentication method is found"),
        ("host all all all cert", "certificate authentication failed"),
        ("host all all all peer", "unix socket login rejected"),
    ],
)
def test_refusals_are_the_same_for_users_who_do_not_exist(line: str, text: str) -> None:
    """Nothing tells whether a user exists."""
    with Guarded(line) as b:
        assert b.login("alice").refused() == b.login("ghost").refused() == text
        assert b.worker.front.logins == {}


def test_trust_lets_in_who_exists() -> None:
    """And nobody else."""
    with Guarded("host all all 127.0.0.1/32 trust") as b:
        assert b.login("alice").client is not None
        assert b.login("ghost").refused() == '"trust" authentication failed'


def test_the_console_is_a_database_of_the_file() -> None:
    """A line for other databases does not cover it, and no line gives rights."""
    with Guarded("host app all all trust\nhost pgbouncer admin,alice all reject", admin_users=("admin",)) as b:
        assert b.login("admin", "pgbouncer").refused() == "login rejected"
        assert b.login("alice", "pgbouncer").refused() == "not allowed"


def test_the_owner_of_the_process_needs_no_line() -> None:
    """On the Unix socket the console is open to it whatever the file says."""
    with Guarded("") as b:
        talk = b.accept(UNIX)
        talk.startup("pgbouncer", "pgbouncer")
        assert "pgbouncer access from unix socket" in b.log.texts()


@pytest.mark.parametrize(
    ("names", "user", "enters"),
    [
        (["alice"], "alice", True),
        (["alice"], "bob", False),
        (["ALICE"], "alice", False),
        (["ghost"], "ghost", False),
        ([], "alice", False),
    ],
)
def test_certificates(names: list[str], user: str, enters: bool) -> None:
    """A verified name that is the user's lets in who exists."""
    with Guarded("hostssl all all all cert") as b:
        talk = b.over_tls(user, made(names))
        assert (talk.client is not None) is enters
        if not enters:
            assert talk.refused() == "certificate authentication failed"


def test_the_log_says_why_a_certificate_is_not_enough() -> None:
    """No TLS, no certificate, a wrong name, a map that does not match."""
    with Guarded("host all alice all cert\nhost all all all cert map=m", "m x y") as b:
        b.login("alice")
        assert "TLS connection required" in b.log.texts()
        b.over_tls("alice", None)
        assert "TLS client certificate required" in b.log.texts()
        b.over_tls("alice", made(["bob"]))
        assert "TLS certificate name mismatch" in b.log.texts()
        b.over_tls("bob", made(["bob"]))
        assert "ident map: m does not have a match" in b.log.texts()


def test_a_certificate_that_cannot_be_read_has_no_names() -> None:
    """It is a failure like any other."""
    with Guarded("hostssl all all all cert") as b:
        assert b.over_tls("alice", b"\x30\x03abc").refused() == "certificate authentication failed"


def test_maps_of_certificates() -> None:
    """The map stands for the name; the user's own name is not enough then."""
    with Guarded("hostssl all all all cert map=m", r"m /^(\w+)@x$ \1") as b:
        assert b.over_tls("alice", made(["alice@x"])).client is not None
        assert b.over_tls("alice", made(["alice"])).refused() == "certificate authentication failed"


def test_peer() -> None:
    """The account's own name lets in, others do not; an account without a name is nobody."""
    with Guarded("local all all peer", unix_socket_dir="/tmp") as b:
        assert b.over_unix(ME).client is not None
        assert b.over_unix("alice").refused() == "unix socket login rejected"
        assert b.over_unix("alice", uid=2_000_000_001).refused() == "unix socket login rejected"


def test_maps_of_accounts() -> None:
    """The map says whom the account may be."""
    with Guarded("local all all peer map=m", f"m {ME} alice") as b:
        assert b.over_unix("alice").client is not None
        assert b.over_unix("bob").refused() == "unix socket login rejected"
        assert b.over_unix(ME).refused() == "unix socket login rejected"
        assert "ident map m cannot be matched" in b.log.texts()


def test_a_second_startup_packet_cannot_change_who_was_judged() -> None:
    """The line was chosen for the first name, and only that name can finish."""
    with Guarded("host all alice all password\nhost all bob all reject") as b:
        talk = b.login("alice")
        talk.message(b"\0" + m.startup({"user": "bob", "database": "app"})[4:])
        assert talk.refused() == "client re-sent startup pkt"
