"""Tests of the reload difference: what is dirty, what merely changed, what waits for a restart."""

from __future__ import annotations

import pytest

from pgshoal.config.changes import difference, entry_change, keep_boot_settings
from tests.config.conftest import Load

MAIN = "[pgbouncer]\n"


def entry(text: str) -> str:
    """A file with one database entry."""
    return f"[databases]\na = {text}\n{MAIN}"


def test_the_same_file_changes_nothing(load_text: Load) -> None:
    """Loading a file again makes no difference, whatever its comments."""
    text = f"[databases]\na = host=h password=p\n* = port=3\n{MAIN}auth_type = trust\n[users]\nu = pool_size=2\n"
    changes = difference(load_text(text), load_text("; comment\n" + text))
    assert changes.nothing
    assert (changes.client_tls, changes.server_tls) == (False, False)


@pytest.mark.parametrize(
    "text",
    [
        "host=other",
        "host=h,other",
        "port=6000",
        "dbname=x",
        "user=u",
        "connect_query='select 1'",
        "auth_dbname=x",
        "auth_query='select 1'",
        "load_balance_hosts=disable",
        "target_session_attrs=primary",
    ],
)
def test_what_makes_servers_dirty(load_text: Load, text: str) -> None:
    """A change of where, as whom or with what set-up servers are connected marks them dirty, both ways."""
    plain, changed = load_text(entry("")), load_text(entry(text))
    assert difference(plain, changed).databases_dirty == ("a",)
    assert difference(changed, plain).databases_dirty == ("a",)
    assert difference(plain, changed).databases_changed == ()


@pytest.mark.parametrize(
    "text",
    [
        "password=p",
        "client_encoding=UTF8",
        "datestyle=ISO",
        "timezone=GMT",
        "application_name=x",
        "pool_size=3",
        "min_pool_size=3",
        "pool_mode=transaction",
        "max_db_connections=4",
        "server_lifetime=4",
        "auth_user=x",
    ],
)
def test_what_leaves_servers_alone(load_text: Load, text: str) -> None:
    """Sizes, limits, modes, encodings and passwords change an entry without closing its servers."""
    changes = difference(load_text(entry("")), load_text(entry(text)))
    assert (changes.databases_dirty, changes.databases_changed) == ((), ("a",))
    assert not changes.nothing


@pytest.mark.parametrize(
    "text", ["dbname=a", "port=5432", "host=/tmp", "load_balance_hosts=round-robin", "pool_size=-1"]
)
def test_writing_the_default_is_not_dirty(load_text: Load, text: str) -> None:
    """An entry that spells out what it had by default keeps its servers."""
    assert difference(load_text(entry("")), load_text(entry(text))).databases_dirty == ()


def test_added_and_removed_databases(load_text: Load) -> None:
    """Entries that appear or vanish are told apart from those that stay."""
    old = load_text(f"[databases]\na =\nb =\nz =\n{MAIN}")
    new = load_text(f"[databases]\nd =\na =\nc =\n{MAIN}")
    changes = difference(old, new)
    assert (changes.databases_added, changes.databases_removed) == (("c", "d"), ("b", "z"))
    assert changes.databases_dirty == ()


@pytest.mark.parametrize(
    ("new", "change"),
    [("* = host=h", "same"), ("* = host=x", "dirty"), ("* = host=h pool_size=1", "changed"), ("", "removed")],
)
def test_the_template(load_text: Load, new: str, change: str) -> None:
    """The * entry is compared like any other, and its removal shows at once."""
    old = load_text(f"[databases]\n* = host=h\n{MAIN}")
    assert difference(old, load_text(f"[databases]\n{new}\n{MAIN}")).autodb == change


def test_a_listed_entry_can_take_over_an_automatic_one(load_text: Load) -> None:
    """An entry written for a name that * served keeps the servers if they lead to the same place."""
    old = load_text(f"[databases]\n* = host=h\n{MAIN}")
    auto = old.database("a")
    assert auto is not None
    same = load_text(f"[databases]\na = host=h\n{MAIN}")
    other = load_text(f"[databases]\na = host=x\n{MAIN}")
    assert entry_change(old, auto, same.database("a")) == "same"
    assert entry_change(old, auto, other.database("a")) == "dirty"
    assert entry_change(old, auto, load_text(MAIN).database("a")) == "removed"


def test_removed_lines_reset(load_text: Load) -> None:
    """A line taken out of the file is a change back to the default, also where the default is unset."""
    old = load_text(f"{MAIN}auth_user = joe\nverbose = 2\nmin_pool_size = 3\n[users]\nu = pool_size=1\n")
    new = load_text(MAIN)
    changes = difference(old, new)
    assert changes.settings == ("auth_user", "min_pool_size", "verbose")
    assert changes.users == ("u",)
    assert keep_boot_settings(old, new).settings.auth_user is None


def test_boot_settings_wait_for_a_restart(load_text: Load) -> None:
    """A changed boot setting is reported, and the running process keeps its old value and place."""
    old = load_text(f"{MAIN}listen_port = 1000\nmin_pool_size = 1\n")
    new = load_text(f"{MAIN}\n\nlisten_port = 2000\nmin_pool_size = 2\npidfile = x\n")
    changes = difference(old, new)
    assert changes.needs_restart == ("listen_port", "pidfile")
    assert changes.settings == ("min_pool_size",)
    kept = keep_boot_settings(old, new)
    assert (kept.settings.listen_port, kept.settings.pidfile, kept.settings.min_pool_size) == (1000, "", 2)
    assert kept.origins["pgbouncer", "listen_port"].line == 2
    assert ("pgbouncer", "pidfile") not in kept.origins


@pytest.mark.parametrize(
    ("line", "client", "server"),
    [
        ("client_tls_protocols = all", True, False),
        ("client_tls_ca_file = x", True, False),
        ("server_tls_sslmode = disable", False, True),
        ("server_tls_key_file = x", False, True),
        ("server_tls_protocols = tlsv1.2,tlsv1.3", False, False),
        ("min_pool_size = 3", False, False),
    ],
)
def test_tls_changes(load_text: Load, line: str, client: bool, server: bool) -> None:
    """Each side's TLS is set up again only when a setting of that side has another meaning."""
    changes = difference(load_text(MAIN), load_text(MAIN + line))
    assert (changes.client_tls, changes.server_tls) == (client, server)


def test_users_peers_and_secrets(load_text: Load, write: object) -> None:
    """Users, peers and secrets that were added, removed or changed are named."""
    write('"same" "1"\n"gone" "2"\n"new pw" "3"', "u.txt")  # type: ignore[operator]
    text = f"{MAIN}auth_file = u.txt\n[users]\na = pool_size=1\nb = pool_size=1\n[peers]\n1 = host=h\n2 = host=h\n"
    old = load_text(text)
    write('"same" "1"\n"new pw" "4"\n"added" "5"', "u.txt")  # type: ignore[operator]
    new = load_text(text.replace("a = pool_size=1", "a = pool_size=2").replace("2 = host=h", "3 = host=h"))
    changes = difference(old, new)
    assert changes.users == ("a",)
    assert changes.peers == (2, 3)
    assert changes.secrets == ("added", "gone", "new pw")


@pytest.mark.parametrize(
    ("written", "dirty"),
    [
        ("server_tls_sslmode=require", True),
        ("server_tls_ca_file=x", True),
        ("server_tls_protocols='tlsv1.2,tlsv1.3'", False),
        ("server_tls_sslmode=prefer", False),
    ],
)
def test_server_tls_of_one_entry(load_text: Load, written: str, dirty: bool) -> None:
    """Only that entry is dirty, and only if what it says differs from what held before."""
    both = "[databases]\na = host=x\nb = host=x\n"
    changes = difference(load_text(MAIN + both), load_text(MAIN + both.replace("a = host=x", f"a = host=x {written}")))
    assert changes.databases_dirty == (("a",) if dirty else ())
    assert changes.databases_changed == (() if dirty else ("a",))
    assert not changes.server_tls
