"""Clients whose password a directory judges."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.e2e.conftest import MakePooler, until
from tests.e2e.test_hba import IN, hba, logged, sent_password, told
from tests.support.certs import Authority
from tests.support.directory import BASE, PASSWORDS, PEOPLE, Directory
from tests.support.postgres import Postgres

#: Each test on one engine: see tests/conftest.py.
SPREAD = True

__all__ = ["hba"]
FAILED = "LDAP authentication failed"


@pytest.fixture(scope="module")
def directory(authority: Authority) -> Iterator[Directory]:
    """slapd with some people."""
    with Directory(authority) as made:
        yield made


@pytest.fixture(autouse=True)
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our authority is the one ldap.conf would name."""
    monkeypatch.setenv("LDAPTLS_CACERT", str(authority.ca_file))


def simple(directory: Directory) -> str:
    """The parameters of a simple bind."""
    return f'ldapserver=127.0.0.1 ldapport={directory.port} ldapprefix="uid=" ldapsuffix=",{PEOPLE}"'


def searching(directory: Directory) -> str:
    """The parameters of a search, with StartTLS."""
    return f'ldapserver=localhost ldapport={directory.port} ldapbasedn="{BASE}" ldaptls=1'


@pytest.mark.parametrize("way", [simple, searching])
def test_users_need_no_line_in_a_file(make: MakePooler, directory: Directory, way: Any) -> None:
    """Whom the directory knows gets in, and the typed password logs in to the server."""
    pooler = make(auth_type="ldap", auth_ldap_options=way(directory), userlist={})
    secret = PASSWORDS["plain_user"]
    assert pooler.query("select current_user::text", user="plain_user", password=secret) == [("plain_user",)]
    assert told(pooler, "carol", password=PASSWORDS["carol"]) == IN
    assert told(pooler, "carol", password="wrong") == FAILED
    assert told(pooler, "nobody", password=PASSWORDS["carol"]) == FAILED
    assert told(pooler, "carol", password="") == "empty password returned by client"
    logged(pooler, "Invalid credentials")
    assert not any(password in pooler.log_text() for password in PASSWORDS.values())


def test_the_typed_password_wins_over_the_file(make: MakePooler, directory: Directory) -> None:
    """It is the one that was right; the file may hold an old one, or none."""
    for kept in ("old", ""):
        pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={"plain_user": kept})
        assert pooler.query("select 1", user="plain_user", password=PASSWORDS["plain_user"]) == [(1,)]


def test_a_server_that_restarts_is_logged_in_to_again(make: MakePooler, directory: Directory, pg15: Postgres) -> None:
    """The password is kept for new connections to the server."""
    pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={}, admin_users="alice")
    with pooler.connect(user="plain_user", password=PASSWORDS["plain_user"]) as conn:
        conn.execute("select 1")
        pg15.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'plain_user'")
        until(lambda: not pooler.admin("SHOW SERVERS", user="alice", password=PASSWORDS["alice"]), "the server's end")
        assert conn.execute("select 1").fetchall() == [(1,)]


def test_a_fleet(make: MakePooler, directory: Directory) -> None:
    """Every worker logs in with what its clients have typed, and a client that moves takes it along."""
    more = {"user": "plain_user", "password": PASSWORDS["plain_user"]}
    admin = {"user": "alice", "password": PASSWORDS["alice"]}
    users = {"userlist": {"plain_user": "old"}, "admin_users": "alice"}
    pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), workers=2, **users)
    with ExitStack() as stack:
        clients = [stack.enter_context(pooler.connect(**more)) for _ in range(8)]
        for client in clients:
            assert client.execute("select current_user::text").fetchall() == [("plain_user",)]
        pooler.admin("RESTART", **admin)
        for client in clients:
            assert client.execute("select current_user::text").fetchall() == [("plain_user",)]


def test_names_that_mean_something_to_a_directory(make: MakePooler, directory: Directory) -> None:
    """They lead to nobody else's entry."""
    pooler = make(auth_type="ldap", auth_ldap_options=searching(directory), userlist={})
    for name in ("*", "car*", "carol)(uid=*", f"carol,{PEOPLE}", "*)(uid=carol"):
        assert told(pooler, name, password=PASSWORDS["carol"]) == FAILED
    pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={})
    for name in (f"carol,{PEOPLE}", "alice,uid=carol", "carol+uid=carol"):
        assert told(pooler, name, password=PASSWORDS["carol"]) == FAILED


def test_the_console(make: MakePooler, directory: Directory) -> None:
    """Its lists decide first, then the directory."""
    pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={}, admin_users="alice")
    assert pooler.admin("SHOW VERSION", user="alice", password=PASSWORDS["alice"])
    assert told(pooler, "carol", "pgbouncer", password=PASSWORDS["carol"]) == "not allowed"
    assert told(pooler, "alice", "pgbouncer", password="wrong") == FAILED
    rows = pooler.admin("SHOW CONFIG", user="alice", password=PASSWORDS["alice"])
    assert next(row["value"] for row in rows if row["key"] == "auth_ldap_options") == "<hidden>"


def test_limits_count_these_users_too(make: MakePooler, directory: Directory) -> None:
    """max_user_client_connections holds for users whom only the directory knows."""
    pooler = make(
        auth_type="ldap", auth_ldap_options=simple(directory), userlist={}, max_user_client_connections=1
    )  # fmt: skip
    more = {"user": "plain_user", "password": PASSWORDS["plain_user"]}
    with pooler.connect(**more), pytest.raises(psycopg.OperationalError, match="max_user_client_connections"):
        pooler.connect(**more)
    assert pooler.query("select 1", **more) == [(1,)]


def test_without_options(make: MakePooler) -> None:
    """The method has nothing to ask."""
    pooler = make(auth_type="ldap")
    assert told(pooler, "alice", password="x") == "auth_ldap_options is null"


def test_a_directory_that_is_down(make: MakePooler, authority: Authority) -> None:
    """Logins fail, the log says why, and they work again when it is back."""
    with Directory(authority) as directory:
        pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={})
        directory.stop()
        assert told(pooler, "carol", password=PASSWORDS["carol"]) == FAILED
        logged(pooler, "on server 127.0.0.1: Can't contact LDAP server")
        directory.start()
        assert told(pooler, "carol", password=PASSWORDS["carol"]) == IN


def test_a_directory_that_does_not_answer(hba: MakePooler) -> None:
    """Its clients wait no longer than client_login_timeout; others log in meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        pooler = hba(
            f"host all carol all ldap ldapserver=127.0.0.1 ldapport={port} ldapprefix=x\n"
            "host all all all scram-sha-256\n",
            client_login_timeout=2,
        )
        hanging = [sent_password(pooler, "carol", "secret") for _ in range(12)]
        assert pooler.query("select 1", password="alice-secret") == [(1,)]
        for client in hanging:
            with client:
                heard = client.recv(1000)
                assert b"client_login_timeout" in heard or FAILED.encode() in heard
        pooler.signal(signal.SIGTERM)
        assert pooler.wait() == 0


def test_lines_of_the_hba_file(hba: MakePooler, directory: Directory) -> None:
    """Some come by the directory, others by their secrets; a line with bad options lets nobody in."""
    pooler = hba(
        f"host all carol,plain_user all ldap {searching(directory)}\n"
        "host all bob all ldap ldapprefx=x\n"
        "host all all all scram-sha-256\n"
    )
    assert told(pooler, "carol", password=PASSWORDS["carol"]) == IN
    assert told(pooler, "carol", password="wrong") == FAILED
    assert pooler.query("select 1", password="alice-secret") == [(1,)]
    assert told(pooler, "bob", password="bob-secret") == FAILED
    logged(pooler, "hba.conf:2: ldapprefx: invalid LDAP option")


def test_bad_options_change_nothing(make: MakePooler, directory: Directory) -> None:
    """A RELOAD with options that cannot be used is refused, and names no value."""
    pooler = make(auth_type="ldap", auth_ldap_options=simple(directory), userlist={})
    pooler.settings["auth_ldap_options"] = "ldapbindpasswd=geheim"
    pooler.write_config()
    pooler.signal(signal.SIGHUP)
    until(lambda: "auth_ldap_options: ldap options: one of ldapbasedn" in pooler.log_text(), "the error")
    assert "geheim" not in pooler.log_text()
    assert told(pooler, "carol", password=PASSWORDS["carol"]) == IN
