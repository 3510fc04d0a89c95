"""The same files of access on PgBouncer and on pgshoal: every client hears the same."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pgshoal.bench.targets import pgbouncer
from pgshoal.demo.pooler import Pooler as AnyPooler
from tests.conftest import wanted_engines
from tests.e2e.test_hba import told
from tests.support.certs import Authority
from tests.support.directory import BASE, PASSWORDS, PEOPLE, Directory
from tests.support.pooler import PgBouncer, Pooler

ME = pwd.getpwuid(os.geteuid()).pw_name
USERS = ("alice", "bob", "replication", "sameuser", "all", "ghost", ME)
USERLIST = {name: f"{name}-secret" for name in USERS if name != "ghost"}


@pytest.fixture(scope="module", autouse=True)
def original() -> None:
    """PgBouncer must be there."""
    try:
        pgbouncer.find()
    except pgbouncer.NoPgBouncer as missing:
        pytest.skip(f"nothing to compare with: {missing}")


@dataclass(frozen=True)
class Case:
    """An hba file, an ident file, and databases to ask for."""

    hba: str
    ident: str = ""
    databases: tuple[str, ...] = ("nowhere",)


CASES = {
    "keywords": Case(
        'host nowhere replication all trust\nhost nowhere sameuser all trust\nhost "all" "all" all trust\n'
        "host sameuser bob all trust\nlocal all alice,bob trust\n",
        databases=("nowhere", "all", "bob", "sameuser", "replication"),
    ),
    "lists": Case(
        'host nowhere,"a b" alice, bob 127.0.0.1/32 trust\nhost all all 10.0.0.0/8 trust\nhost all all ::1/128 trust\n'
        "host all all 127.0.0.0 255.0.0.0 reject\n",
        databases=("nowhere", "a b", "other"),
    ),
    "methods": Case(
        "host all alice all password\nhost all bob all md5\nhost all all all scram-sha-256\nlocal all all md5\n"
    ),
    "bad lines": Case(
        "host all alice localhost trust\nhost all alice samehost trust\nhost all alice 127.0.0.1 trust\n"
        "host all alice 127.0.0.1/8 trust\nhost all +bob all trust\nhostgssenc all all all trust\n"
        "host samerole alice all trust\nhost all alice all pam\nhost all alice all plain\nHOST all all all trust\n"
        "host all alice all trust extra\nhost all alice all trust map=none\nlocal all alice 127.0.0.1/32 trust\n"
        'host all @/nowhere/names all trust\nhost all "alice all trust\nhost all bob all reject # why\n'
        "host all all all TRUST\nhost all all all\nhost\nhost all replication all trust#c\nhost all all all trust\n"
    ),
    "peer": Case("local all all peer\nhost all all all peer\n"),
    "map": Case("local all all peer map=m\n", f'# who\nm {ME} alice\nm "{ME}" bob # why\nm nobody all\n'),
    "map of all": Case("local all all peer map=m\n", f"m {ME} all\n"),
    "bad maps": Case(
        "local all alice peer map=gone\nlocal all all peer map=m\n", f"gone {ME}\nm {ME} bob extra\nm {ME} alice\n"
    ),
    "no file": Case(""),
    "cert without TLS": Case("host all all all cert\nlocal all all cert\n"),
    "console": Case("host pgbouncer bob all reject\nhost all all all trust\n", databases=("pgbouncer",)),
}


def heard(pooler: AnyPooler, case: Case) -> dict[str, str]:
    """What each user hears of each database, by TCP and by the Unix socket, with the right password and a wrong one."""
    found = {}
    for user in USERS:
        for database in case.databases:
            for way in ("tcp", "unix"):
                found[f"{user}@{database} {way}"] = told(
                    pooler, user, database, unix=way == "unix", password=USERLIST.get(user, "x")
                )
        found[f"{user} wrong"] = told(pooler, user, case.databases[0], password="wrong")
    return found


def run(made: AnyPooler, case: Case) -> dict[str, str]:
    """The same on one program."""
    made.settings["auth_hba_file"] = made.write("hba.conf", case.hba)
    if case.ident:
        made.settings["auth_ident_file"] = made.write("ident.conf", case.ident)
    with made:
        return heard(made, case)


@pytest.mark.parametrize("name", CASES)
def test_everybody_hears_the_same(name: str) -> None:
    """Whoever comes by whatever way, both programs give the same answer."""
    settings: dict[str, object] = {"auth_type": "hba", "admin_users": "alice", "stats_users": "alice"}
    databases = {"unused": "host=127.0.0.1 port=1"}
    theirs = run(PgBouncer(databases, userlist=USERLIST, **settings), CASES[name])
    ours = run(Pooler(databases, userlist=USERLIST, engine=wanted_engines()[0], **settings), CASES[name])
    assert ours == theirs
    assert len(set(theirs.values())) > 1 or name in ("no file", "cert without TLS")


@pytest.fixture(scope="module")
def directory(authority: Authority) -> Iterator[Directory]:
    """slapd with some people."""
    with Directory(authority) as made:
        yield made


@pytest.mark.parametrize("way", ["simple", "search", "line", "broken line"])
def test_directories(directory: Directory, way: str) -> None:
    """The same for users whom a directory knows, some of them with a secret on file."""
    where = f"ldapserver=127.0.0.1 ldapport={directory.port}"
    simple = f'{where} ldapprefix="uid=" ldapsuffix=",{PEOPLE}"'
    settings: dict[str, object] = {"admin_users": "alice", "stats_users": "alice"}
    hba = ""
    if way in ("simple", "search"):
        settings |= {
            "auth_type": "ldap",
            "auth_ldap_options": simple if way == "simple" else f'{where} ldapbasedn="{BASE}"',
        }
    else:
        settings["auth_type"] = "hba"
        hba = f"host all all all ldap {simple if way == 'line' else where}\nhost all all all trust\n"

    def hear(made: AnyPooler) -> dict[str, str]:
        if hba:
            made.settings["auth_hba_file"] = made.write("hba.conf", hba)
        with made:
            found = {}
            for user in ("alice", "carol", "ghost", "*", "a)(uid=*"):
                for password in (PASSWORDS.get(user, "x"), "wrong", ""):
                    for database in ("nowhere", "pgbouncer"):
                        found[f"{user} {password} {database}"] = told(made, user, database, password=password)
            return found

    databases, users = {"unused": "host=127.0.0.1 port=1"}, {"alice": "on-file"}
    theirs = hear(PgBouncer(databases, userlist=users, **settings))
    ours = hear(Pooler(databases, userlist=users, engine=wanted_engines()[0], **settings))
    assert ours == theirs
