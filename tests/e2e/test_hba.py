"""Access by the hba file, as an operator writes it and clients meet it."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgshoal.demo.pooler import Pooler as AnyPooler
from tests.e2e.conftest import MakePooler, until
from tests.support import messages as m
from tests.support.certs import Authority
from tests.support.fakeclient import FakeClient, LoginRefused
from tests.support.pooler import Pooler, tls_client_side
from tests.support.postgres import PASSWORDS, Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

IN = "no such database: nowhere"
NO_LINE = "no authentication method is found"


@pytest.fixture
def hba(make: MakePooler) -> Iterator[MakePooler]:
    """Starts a pooler with this hba file; `ident` is the text of an ident file."""
    # Not pytest's own folder, which other accounts cannot read.
    folder = Path(tempfile.mkdtemp(prefix="pgshoal-hba-"))
    folder.chmod(0o755)

    def start(text: str, ident: str | None = None, **settings: object) -> Pooler:
        more: dict[str, object] = {"auth_type": "hba", "auth_hba_file": put(folder / "hba.conf", text), **settings}
        if ident is not None:
            more["auth_ident_file"] = put(folder / "ident.conf", ident)
        return make(**more)

    yield start
    shutil.rmtree(folder, ignore_errors=True)


def put(path: Path, text: str) -> Path:
    """Write a file that the pooler's account can read."""
    path.write_text(text)
    path.chmod(0o644)
    return path


def told(pooler: AnyPooler, user: str, database: str = "nowhere", unix: bool = False, password: str = "") -> str:
    """What a client hears, by default of a database that does not exist: told only to who has proved itself."""
    address = f"{pooler.socket_dir}/.s.PGSQL.{pooler.port}" if unix else (pooler.host, pooler.port)
    with FakeClient(address) as c:
        try:
            c.login(user, database, password)
        except LoginRefused as refused:
            return refused.fields["M"]
    return ""


def logged(pooler: AnyPooler, text: str) -> None:
    """Wait for a line in the log, which is written after clients have heard."""
    until(lambda: text in pooler.log_text(), text)


def sent_password(pooler: Pooler, user: str, password: str) -> socket.socket:
    """A client that was asked for its password, has sent it and waits."""
    client = socket.create_connection((pooler.host, pooler.port), 15)
    client.sendall(m.startup({"user": user, "database": "nowhere"}))
    assert client.recv(9) == b"R\0\0\0\x08\0\0\0\x03"
    client.sendall(m.message(b"p", m.text(password)))
    return client


def test_lines_in_order(hba: MakePooler) -> None:
    """Each user finds the first line that fits; whom no line fits stays out."""
    pooler = hba(
        "host  all     alice  127.0.0.1/32              trust\n"
        "host  all     bob    10.0.0.0/8                trust\n"
        "host  other   bob    127.0.0.0  255.0.0.0      trust\n"
        "host  all     plain_user all                   reject\n"
        "host  all     ghost,admin  all                 trust\n"
        "local sameuser all                             trust\n"
    )
    assert pooler.query("select current_user::text", user="alice") == [("alice",)]
    assert told(pooler, "bob") == NO_LINE
    assert told(pooler, "bob", "other") == "no such database: other"
    assert told(pooler, "plain_user") == "login rejected"
    assert told(pooler, "ghost") == '"trust" authentication failed'
    assert told(pooler, "alice", unix=True) == NO_LINE
    assert told(pooler, "alice", "alice", unix=True) == "no such database: alice"


@pytest.mark.parametrize("method", ["password", "md5", "scram-sha-256"])
def test_passwords(hba: MakePooler, method: str) -> None:
    """Each of the password methods, for users who exist and for one who does not."""
    pooler = hba(f"host all all all {method}\n")
    assert pooler.query("select 1", password=PASSWORDS["alice"]) == [(1,)]
    wrong = told(pooler, "alice", password="wrong")
    assert wrong in ("password authentication failed", "SASL authentication failed")
    assert told(pooler, "ghost", password="wrong") == wrong


def test_tls_lines(hba: MakePooler, authority: Authority) -> None:
    """hostssl is for TLS only, hostnossl for the rest."""
    pooler = hba(
        "hostssl all alice all trust\nhostnossl all alice all reject\nhostnossl all bob all trust\n",
        **tls_client_side(authority.server, "allow"),
    )
    tls = {"sslmode": "verify-full", "sslrootcert": str(authority.ca_file), "host": "localhost"}
    assert pooler.query("select 1", **tls) == [(1,)]
    assert told(pooler, "alice") == "login rejected"
    assert told(pooler, "bob") == IN
    with pytest.raises(psycopg.OperationalError, match=NO_LINE):
        pooler.query("select 1", user="bob", **tls)


def test_the_console_goes_through_the_file_too(hba: MakePooler) -> None:
    """Its database is pgbouncer; rights are looked at first, as without a file."""
    pooler = hba("host pgbouncer stats all reject\nhost pgbouncer all all trust\n")
    assert pooler.admin("SHOW VERSION")
    assert told(pooler, "stats", "pgbouncer") == "login rejected"
    assert told(pooler, "alice", "pgbouncer") == "not allowed"
    assert told(pooler, "ghost", "pgbouncer") == '"trust" authentication failed'


def test_lines_that_cannot_be_used(hba: MakePooler) -> None:
    """They are logged with file, line and field, and passed over."""
    pooler = hba("host all all samenet trust\nhost all alice all trust map=none\nhost all bob all trust\n")
    assert told(pooler, "alice") == NO_LINE
    assert told(pooler, "bob") == IN
    folder = pooler.settings["auth_hba_file"]
    logged(pooler, f"{folder}:1: address = samenet: could not parse hba config line 1: ")
    logged(pooler, f"{folder}:2: map = none: could not parse hba config line 2: a map of auth_ident_file")


def test_without_a_file_nobody_gets_in(make: MakePooler) -> None:
    """The log names the file that is missing, and the owner of the process still has the console."""
    pooler = make(auth_type="hba", auth_hba_file="/nowhere/hba.conf")
    assert told(pooler, "alice") == NO_LINE
    assert told(pooler, "admin", "pgbouncer") == NO_LINE
    logged(pooler, "could not open hba config file /nowhere/hba.conf: No such file or directory")


def test_reload(hba: MakePooler, make: MakePooler) -> None:
    """RELOAD reads the file anew for logins to come; a line that rejects and cannot be read changes nothing."""
    pooler = hba("host all alice,admin all trust\n")
    path = Path(str(pooler.settings["auth_hba_file"]))
    with pooler.connect() as before:
        put(path, "host pgbouncer admin all trust\nhost all bob all trust\n")
        pooler.admin("RELOAD")
        assert told(pooler, "alice") == NO_LINE
        assert told(pooler, "bob") == IN
        assert before.execute("select 1").fetchall() == [(1,)]
    put(path, "host all alice all trust\nhost all bob samenet reject\nhost all all all trust\n")
    with pytest.raises(psycopg.Error, match="RELOAD failed"):
        pooler.admin("RELOAD")
    assert told(pooler, "alice") == NO_LINE
    until(lambda: f"{path}:2: address = samenet: could not parse hba config line 2" in pooler.log_text(), "the reason")


def test_users_of_auth_query(hba: MakePooler, pg15: Postgres) -> None:
    """A line decides about users who are in no file too, and nobody is looked up who is rejected as he stands."""
    text = "host all md5_user all reject\nhost all all all scram-sha-256\n"
    pooler = hba(text, auth_user=pg15.superuser, userlist={pg15.superuser: "", "admin": ""})
    secret = PASSWORDS["scram_user"]
    assert told(pooler, "md5_user", "app") == "login rejected"
    assert "new connection to server" not in pooler.log_text()
    assert pooler.query("select current_user::text", user="scram_user", password=secret) == [("scram_user",)]
    assert told(pooler, "scram_user", "app", password="wrong") == "SASL authentication failed"
    assert told(pooler, "ghost", "app") == "no such user"


def test_a_name_that_auth_query_changes_is_judged_again(hba: MakePooler, pg15: Postgres) -> None:
    """A query that folds case does not lead around a line that rejects the real name."""
    query = "select rolname, rolpassword from pg_authid where rolname = lower($1)"
    pooler = hba(
        "host all scram_user all reject\nhost all all all scram-sha-256\n",
        auth_user=pg15.superuser, userlist={pg15.superuser: ""}, auth_query=query,
    )  # fmt: skip
    assert told(pooler, "SCRAM_USER", "app", password=PASSWORDS["scram_user"]) == "login rejected"
    assert told(pooler, "BOB", "app", password=PASSWORDS["bob"]) == ""


def test_replication(hba: MakePooler) -> None:
    """A physical replication connection is not let in by `all`."""
    pooler = hba("host all alice all trust\n")
    with FakeClient((pooler.host, pooler.port)) as c, pytest.raises(LoginRefused) as refused:
        c.login("alice", "app", replication="true")
    assert refused.value.fields["M"] == NO_LINE
