"""Which line of the hba file decides."""

from __future__ import annotations

import pytest

from pgshoal.config.hba import parse_hba
from pgshoal.policy.hba import Approach, decide


def line(text: str, client: Approach) -> int:
    """The number of the line that decides; 0 if none does."""
    rule = decide(parse_hba(text, "hba.conf").rules, client)
    return 0 if rule is None else rule.line


def over_tcp(database: str = "app", user: str = "alice", address: str = "10.0.0.1", tls: bool = False) -> Approach:
    """A client over TCP."""
    return Approach(database, user, address, tls)


def test_the_first_line_that_fits_decides() -> None:
    """Later lines do not matter, and no line means no."""
    text = "host app bob all trust\nhost app alice all reject\nhost all all all trust\n"
    assert line(text, over_tcp()) == 2
    assert line(text, over_tcp(user="bob")) == 1
    assert line(text, over_tcp("other")) == 3
    assert line("host app bob all trust", over_tcp()) == 0
    assert line("", over_tcp()) == 0


@pytest.mark.parametrize(
    ("kind", "plain", "tls", "unix"),
    [("local", 0, 0, 1), ("host", 1, 1, 0), ("hostssl", 0, 1, 0), ("hostnossl", 1, 0, 0)],
)
def test_kinds_of_connection(kind: str, plain: int, tls: int, unix: int) -> None:
    """Lines for Unix sockets, TCP, TCP with TLS and TCP without."""
    text = f"{kind} all all {'' if kind == 'local' else 'all'} trust"
    assert line(text, over_tcp()) == plain
    assert line(text, over_tcp(tls=True)) == tls
    assert line(text, Approach("app", "alice", "")) == unix


@pytest.mark.parametrize(
    ("network", "address", "fits"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0 255.0.0.255", "10.9.9.0", True),
        ("10.0.0.0 255.0.0.255", "10.9.9.1", False),
        ("0.0.0.0/0", "255.255.255.255", True),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "::1", True),
        ("::/0", "10.0.0.1", False),
        ("::1/128", "::2", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("all", "10.0.0.1", True),
        ("all", "::1", True),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("::/0", "::ffff:10.0.0.1", True),
        ("0.0.0.0/0", "somewhere", False),
    ],
)
def test_addresses(network: str, address: str, fits: bool) -> None:
    """Both versions of IP; an IPv4 client on an IPv6 socket is both; what is no address is in no network."""
    assert line(f"host all all {network} trust", over_tcp(address=address)) == int(fits)


@pytest.mark.parametrize(
    ("names", "database", "user", "fits"),
    [
        ("all", "app", "alice", True),
        ("app", "app", "alice", True),
        ("app", "App", "alice", False),
        ("other,app", "app", "alice", True),
        ("sameuser", "alice", "alice", True),
        ("sameuser", "app", "alice", False),
        ('"all"', "app", "alice", False),
        ('"all"', "all", "alice", True),
        ("replication", "app", "alice", False),
        ("replication", "replication", "alice", False),
        ('"replication"', "replication", "alice", True),
    ],
)
def test_databases(names: str, database: str, user: str, fits: bool) -> None:
    """Names are exact, and keywords in quotes are names."""
    assert line(f"host {names} all all trust", over_tcp(database, user)) == int(fits)


@pytest.mark.parametrize(
    ("names", "user", "fits"),
    [
        ("all", "alice", True),
        ("alice,bob", "bob", True),
        ('"all"', "alice", False),
        ('"all"', "all", True),
        ("Alice", "alice", False),
        ("replication", "replication", False),
        ('"replication"', "replication", True),
        ("sameuser", "app", True),
        ("sameuser", "sameuser", False),
    ],
)
def test_users(names: str, user: str, fits: bool) -> None:
    """The same list as that of databases, keywords included."""
    assert line(f"host app {names} all trust", over_tcp(user=user)) == int(fits)


@pytest.mark.parametrize(
    ("names", "fits"), [("all", False), ("app", False), ("sameuser", False), ("replication", True)]
)
def test_physical_replication_needs_its_word(names: str, fits: bool) -> None:
    """Neither `all` nor the name of a database covers it."""
    client = Approach("app", "app", "10.0.0.1", physical=True)
    assert line(f"host {names} all all trust", client) == int(fits)
