"""Possible server connections, as limits and users bound them, against what servers, databases and roles allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.config.load import load
from pgshoal.config.model import Config
from pgshoal.policy.foresight import RoleFacts, ServerFacts, assess, assumptions, missing, most, pools

HUNDRED = ServerFacts("15.6", 100, 3)
PLACE = ("db.example", 5432)


def config(
    tmp_path: Path, databases: str, main: str = "", users: str = "", auth: str = '"ann" "x"\n"bob" "y"'
) -> Config:
    """A configuration from the text of its sections."""
    (tmp_path / "users.txt").write_text(auth)
    path = tmp_path / "p.ini"
    path.write_text(
        f"[databases]\n{databases}\n[users]\n{users}\n[pgbouncer]\nauth_file = {tmp_path}/users.txt\n{main}\n"
    )
    return load(str(path))


@pytest.mark.parametrize(
    ("databases", "main", "users", "expected"),
    [
        ("a = host=h user=u", "", "", 20),
        ("a = host=h user=u", "default_pool_size = 7\nreserve_pool_size = 2", "", 9),
        ("a = host=h user=u pool_size=5 reserve_pool_size=1", "", "", 6),
        ("a = host=h", "", "", 40),
        ("a = host=h\nb = host=h user=u", "default_pool_size = 3", "", 9),
        ("a = host=h", "max_db_connections = 30", "", 30),
        ("a = host=h max_db_connections=12", "max_db_connections = 30", "", 12),
        ("a = host=h\nb = host=h", "max_user_connections = 15", "", 30),
        ("a = host=h", "", "ann = pool_size=1\nbob = max_user_connections=2", 3),
        ("a = host=h user=u pool_size=0", "", "", None),
        ("a = host=h user=u pool_size=0 max_db_connections=8", "", "", 8),
        ("a = host=h user=u pool_size=0\nb = host=h user=u", "max_user_connections = 9", "", 9),
        ("* = host=h max_db_connections=11", "", "", 11),
        ("a = host=h auth_user=look", "default_pool_size = 1", "", 3),
        ("a = host=h auth_user=look auth_dbname=b\nb = host=h user=u pool_size=4", "default_pool_size = 1", "", 10),
    ],
)
def test_what_is_possible(tmp_path: Path, databases: str, main: str, users: str, expected: int | None) -> None:
    """Sizes and reserves of all pools, under the limits of databases and users, whichever binds more."""
    made = config(tmp_path, databases, main, users)
    assert most(made, pools(made)) == expected


def test_thousands_of_users_are_counted_together(tmp_path: Path) -> None:
    """Users without settings of their own make one record for each entry, and the same numbers."""
    names = "".join(f'"user{number}" "x"\n' for number in range(2000))
    made = config(tmp_path, "a = host=h\nb = host=h\nc = host=h user=user7", "default_pool_size = 2", auth=names)
    found = pools(made)
    assert len(found) == 2 * 2 + 1
    assert most(made, found) == 2 * 2000 * 2 + 2
    limited = config(tmp_path, "a = host=h\nb = host=h", "max_user_connections = 3", auth=names)
    assert most(limited, pools(limited)) == 3 * 2000
    apart = pools(limited, apart={"user3", "stranger"})
    assert [(pool.user, pool.count) for pool in apart if pool.database == "a"] == [("user3", 1), ("", 1999)]
    assert most(limited, apart) == 3 * 2000


def test_a_server_that_fits_and_one_that_does_not(tmp_path: Path) -> None:
    """Each server is compared with the pools that lead to it; reserved connections are not for us."""
    made = config(tmp_path, "a = host=h pool_size=48\nb = host=g pool_size=49")
    small = ServerFacts("16.1", 100, 3, 2)
    fits, not_ = assess(made, {("h", 5432): HUNDRED, ("g", 5432): small})
    assert (fits.possible, fits.allowed, fits.fits) == (96, 97, True)
    assert (not_.possible, not_.allowed, not_.fits) == (98, 95, False)
    assert not_.line() == (
        "server g:5432: 98 server connections are possible, 95 fit (max_connections 100 - "
        "superuser_reserved_connections 3 - reserved_connections 2): lower pool_size or set max_db_connections for b, "
        "or raise max_connections"
    )


def test_two_addresses_of_one_server(tmp_path: Path) -> None:
    """Addresses behind which the same instance answers are added up; a pool that names both counts once."""
    made = config(tmp_path, "a = host=h user=u pool_size=50\nb = host=g,h user=u pool_size=40")
    same = ServerFacts("15.6", 100, 3, instance="now")
    (verdict,) = assess(made, {("h", 5432): same, ("g", 5432): same})
    assert verdict.possible == 90
    assert verdict.line().startswith("server h:5432 = g:5432: 90 server connections")


def test_several_hosts_may_each_have_to_take_all(tmp_path: Path) -> None:
    """A pool that is spread over two servers is counted whole for each of them."""
    made = config(tmp_path, "a = host=g,h user=u pool_size=50")
    facts = {("h", 5432): ServerFacts("15", 100, 3, instance="1"), ("g", 5432): ServerFacts("15", 40, 3, instance="2")}
    assert [(v.possible, v.fits) for v in assess(made, facts)] == [(50, True), (50, False)]


def test_limits_of_databases_and_roles(tmp_path: Path) -> None:
    """CONNECTION LIMIT of a database binds the pools of all entries that lead to it, that of a role all its pools."""
    made = config(tmp_path, "a = host=h user=u dbname=x\nb = host=h user=v dbname=x\nc = host=h user=v")
    facts = ServerFacts("15", 200, 3, databases={"x": 30, "c": -1}, roles={"v": RoleFacts(40), "u": RoleFacts(19)})
    found = {
        verdict.subject: (verdict.possible, verdict.allowed, verdict.fits)
        for verdict in assess(made, {("h", 5432): facts})
    }
    assert found == {
        "server": (60, 197, True),
        'database "x"': (40, 30, False),
        'role "u"': (20, 19, False),
        'role "v"': (40, 40, True),
    }


def test_superusers_are_bound_by_neither(tmp_path: Path) -> None:
    """A pool of a superuser does not count against CONNECTION LIMIT."""
    made = config(tmp_path, "a = host=h user=u")
    facts = ServerFacts("15", 200, 3, databases={"a": 1}, roles={"u": RoleFacts(1, superuser=True)})
    assert [(verdict.subject, verdict.fits) for verdict in assess(made, {("h", 5432): facts})] == [("server", True)]


def test_no_limit_never_fits(tmp_path: Path) -> None:
    """pool_size = 0 without any other limit is told as such."""
    made = config(tmp_path, "a = host=h user=u pool_size=0")
    (verdict,) = assess(made, {("h", 5432): HUNDRED})
    assert not verdict.fits
    assert "any number of server connections are possible, 97 fit" in verdict.line()


def test_databases_that_do_not_exist(tmp_path: Path) -> None:
    """An entry whose database the server does not have is named once."""
    made = config(tmp_path, "a = host=h\nb = host=h dbname=x\n* = host=h")
    facts = ServerFacts("15", 100, 3, databases={"a": -1})
    assert missing(made, {("h", 5432): facts}) == ['b: server h:5432 has no database "x"']


def test_what_was_assumed(tmp_path: Path) -> None:
    """Guesses are said: users of open entries, the template, several hosts, lookups."""
    assert assumptions(config(tmp_path, "a = host=h user=u")) == []
    said = assumptions(config(tmp_path, "a = host=g,h\n* = host=h auth_user=look"))
    assert said == [
        "entries without user=: one pool for each of the 2 users of auth_file and [users]",
        "users that auth_query finds are not counted: each adds a pool",
        "* is counted as one database: each further one adds as much",
        "entries with several hosts: each host may have to take all",
    ]
    assert assumptions(config(tmp_path, "a = host=h", "auth_type = trust", auth="")) == [
        "entries without user=: one pool for each of the 0 users of auth_file and [users]",
        "users that are in no file are not counted",
    ]
