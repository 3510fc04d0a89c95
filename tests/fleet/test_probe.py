"""What a server tells of its limits, for every kind of login, and why one may not be asked."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from pgshoal.config.model import Config, DatabaseConfig, Secret, Settings
from pgshoal.config.userlist import classify
from pgshoal.fleet.probe import CannotAsk, Unreachable, ask, facts, logins
from pgshoal.policy.foresight import Place, RoleFacts, ServerFacts
from tests.support import messages as m
from tests.support.fakeserver import FakeServer, ServerSide
from tests.support.postgres import PASSWORDS, Postgres

QUICK = Settings(server_connect_timeout=5, server_tls_sslmode="disable")


def config(place: Place, user: str, secret: Secret | None, settings: Settings = QUICK, dbname: str = "app") -> Config:
    """One entry with one forced user."""
    entry = DatabaseConfig("e", dbname=dbname, hosts=(place[0],), port=place[1], user=user, password=secret)
    return Config("", settings, {"e": entry})


def plain(user: str) -> Secret:
    """A test user's password."""
    return Secret("plain", PASSWORDS[user])


def told(made: Config) -> ServerFacts:
    """The answer of the only server."""
    entry = made.databases["e"]
    return asyncio.run(ask(made, (entry.hosts[0], entry.port)))


@pytest.mark.parametrize("user", ["alice", "plain_user", "md5_user", "scram_user"])
def test_every_kind_of_login(pg: Postgres, user: str) -> None:
    """Trust, cleartext, md5 and SCRAM lead to the same facts on old and new servers."""
    found = told(config((pg.host, pg.port), user, plain(user)))
    assert (found.max_connections, found.superuser_reserved, found.reserved) == (100, 3, 0)
    assert found.available == 97
    assert int(found.version.split(".")[0]) == pg.programs.major
    assert found.databases["app"] == -1
    assert found.roles["postgres"].superuser


def test_md5_secret_over_a_unix_socket_and_limits(pg15: Postgres) -> None:
    """The stored md5 secret is enough; limits of databases and roles are told, and both ways lead to one instance."""
    stored = pg15.query("select rolpassword from pg_authid where rolname = 'md5_user'")[0][0]
    pg15.query("alter database other connection limit 5; alter role bob connection limit 0")
    try:
        by_tcp = told(config((pg15.host, pg15.port), "md5_user", classify(stored)))
        by_unix = told(config((pg15.socket_dir, pg15.port), "md5_user", classify(stored)))
    finally:
        pg15.query("alter database other connection limit -1; alter role bob connection limit -1")
    assert by_tcp.databases["other"] == 5
    assert by_tcp.roles["bob"] == RoleFacts(0)
    assert by_tcp == by_unix


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-ca", "verify-full"])
def test_over_tls(pg15: Postgres, mode: str) -> None:
    """A role that may come in over TLS only is served, with channel binding, in every mode that has TLS."""
    assert pg15.tls is not None
    settings = replace(QUICK, server_tls_sslmode=mode, server_tls_ca_file=str(pg15.tls.ca_file))  # type: ignore[arg-type]
    assert told(config((pg15.host, pg15.port), "tls_user", plain("tls_user"), settings)).max_connections == 100


def test_tls_that_cannot_be_trusted(pg15: Postgres) -> None:
    """A certificate of an unknown authority, or a server without TLS, is refused before any password is sent."""
    strict = replace(QUICK, server_tls_sslmode="verify-full", server_tls_ca_file="")
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        told(config((pg15.host, pg15.port), "tls_user", plain("tls_user"), strict))

    def refuses(server: ServerSide) -> None:
        server.read_startup(b"N")

    with FakeServer(refuses) as server, pytest.raises(Unreachable, match="server refused SSL"):
        told(config((server.host, server.port), "u", None, replace(QUICK, server_tls_sslmode="require")))


def test_the_next_login_is_tried(pg15: Postgres) -> None:
    """A wrong password is not the end if the configuration knows another user; the last reason is told otherwise."""
    place = (pg15.host, pg15.port)
    bad = config(place, "scram_user", Secret("plain", "wrong"))
    with pytest.raises(CannotAsk, match='scram_user@app: password authentication failed for user "scram_user"'):
        told(bad)
    second = replace(bad.databases["e"], name="f", user="alice", password=None)
    assert told(replace(bad, databases={**bad.databases, "f": second})).max_connections == 100


def test_logins_in_order() -> None:
    """Plain passwords come first, then md5, then none, then SCRAM secrets; other servers' entries do not count."""
    place = ("h", 1)
    entries = {
        name: DatabaseConfig(name, hosts=(host,), port=1, user=user, password=secret)
        for name, host, user, secret in [
            ("a", "h", "sam", None),
            ("b", "h", "max", Secret("md5", "md5" + "0" * 32)),
            ("c", "h", "ann", Secret("plain", "x")),
            ("d", "g", "eve", Secret("plain", "x")),
            ("e", "h", "kim", None),
        ]
    }
    scram = Secret("scram", "SCRAM-SHA-256$1:YQ==$eA==:eA==")
    found = logins(Config("", databases=entries, secrets={"sam": scram}), place)
    assert [(login.user, login.dbname) for login in found] == [("ann", "c"), ("max", "b"), ("kim", "e"), ("sam", "a")]


def test_nobody_to_log_in_as() -> None:
    """Without a user in any file a server with an open entry cannot be asked, and is not called."""
    made = Config("", QUICK, {"e": DatabaseConfig("e", hosts=("127.0.0.1",), port=1)})
    with pytest.raises(CannotAsk, match="no user is known to log in as"):
        asyncio.run(ask(made, ("127.0.0.1", 1)))


def test_nobody_there() -> None:
    """A refused connection, a missing socket and a deaf host are told apart."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        deaf = listener.getsockname()
        with pytest.raises(Unreachable, match=r"no answer \(server_connect_timeout\)"):
            told(config(deaf, "u", None, replace(QUICK, server_connect_timeout=0.1)))
    with pytest.raises(Unreachable, match="Connection refused"):
        told(config(deaf, "u", None))
    with pytest.raises(Unreachable, match="No such file or directory"):
        told(config(("/nowhere", 5432), "u", None))


def garbage(server: ServerSide) -> None:
    """A length no message has."""
    server.read_startup()
    server.send(b"R\xff\xff\xff\xff")


def hangs_up(server: ServerSide) -> None:
    """Closes in the middle of a message."""
    server.read_startup()
    server.send(b"R\0\0\0\x08\0\0")


def skips_the_proof(server: ServerSide) -> None:
    """Pretends to know a SCRAM password."""
    server.read_startup()
    server.send(m.auth(10, m.text("SCRAM-SHA-256", "")))
    server.read()
    server.welcome()


def answers_nonsense(server: ServerSide) -> None:
    """Rows of another question."""
    server.log_in()
    server.read()
    server.answer_rows("1", "2")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (garbage, "bad pkt header"),
        (hangs_up, "the server closed the connection"),
        (skips_the_proof, "server did not prove itself"),
        (answers_nonsense, "the server did not answer the question"),
    ],
)
def test_hostile_servers(script: object, reason: str) -> None:
    """Whatever a server sends ends in CannotAsk, and the password in no text."""
    assert callable(script)
    with FakeServer(script) as server, pytest.raises(CannotAsk, match=reason) as caught:
        told(config((server.host, server.port), "u", Secret("plain", "hush-hush")))
    assert "hush" not in str(caught.value)


def test_reserved_connections_of_newer_servers() -> None:
    """PostgreSQL 16 has one more reserve; older ones answer NULL."""
    assert facts([["16.2 (Debian)", "50", "3", "4", "1.5"]]) == ServerFacts("16.2", 50, 3, 4, {}, {}, "1.5")
    assert facts([["15.2", "50", "3", None, "1.5"]]).available == 47


def test_tls_settings_of_the_entry(pg15: Postgres) -> None:
    """An entry's own TLS settings are used for its questions, too."""
    assert pg15.tls is not None
    made = config((pg15.host, pg15.port), "tls_user", plain("tls_user"))
    own = {"server_tls_sslmode": "verify-full", "server_tls_ca_file": str(pg15.tls.ca_file)}
    entry = replace(made.databases["e"], **own)  # type: ignore[arg-type]
    assert told(replace(made, databases={"e": entry})).max_connections == 100
