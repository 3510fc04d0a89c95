"""Asking a real LDAP directory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from pgshoal.auth import ldap
from pgshoal.auth.outside import Answer
from pgshoal.config.ldap import parse_ldap_options
from tests.support.certs import Authority
from tests.support.directory import BASE, MANAGER, MANAGER_PASSWORD, PASSWORDS, PEOPLE, Directory

WAY = ("simple", "search", "manager", "filter", "url")


@pytest.fixture(scope="module")
def directory(authority: Authority) -> Iterator[Directory]:
    """slapd with some people."""
    with Directory(authority) as made:
        yield made


@pytest.fixture(autouse=True)
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our authority is the one ldap.conf would name."""
    monkeypatch.setenv("LDAPTLS_CACERT", str(authority.ca_file))


def options(directory: Directory, way: str) -> str:
    """The parameters of one way to ask."""
    server = f"ldapserver=127.0.0.1 ldapport={directory.port}"
    return {
        "simple": f'{server} ldapprefix="uid=" ldapsuffix=",{PEOPLE}"',
        "search": f'{server} ldapbasedn="{BASE}"',
        "manager": f'{server} ldapbasedn="{PEOPLE}" ldapbinddn="{MANAGER}" ldapbindpasswd="{MANAGER_PASSWORD}"',
        "filter": f'{server} ldapbasedn="{BASE}" ldapsearchfilter="(&(objectClass=person)(uid=$username))"',
        "url": f'ldapurl="ldap://127.0.0.1:{directory.port}/{PEOPLE}?uid?one"',
    }[way]


def ask(text: str, user: str, password: str, limit_s: float = 10.0) -> Answer:
    """One question; nothing of the password comes back."""
    found = ldap.authenticate(parse_ldap_options(text), user, password.encode(), limit_s)
    assert not password or password not in found.why
    assert MANAGER_PASSWORD not in found.why
    return found


@pytest.mark.parametrize("way", WAY)
def test_right_and_wrong(directory: Directory, way: str) -> None:
    """A right password fits; a wrong one, one of somebody else and an unknown user do not."""
    text = options(directory, way)
    assert ask(text, "alice", PASSWORDS["alice"]) == Answer(True)
    assert "Invalid credentials" in ask(text, "alice", "wrong-guess").why
    assert not ask(text, "alice", PASSWORDS["carol"]).fits
    assert not ask(text, "nobody", PASSWORDS["alice"]).fits


@pytest.mark.parametrize("way", WAY)
@pytest.mark.parametrize("password", ["", "\0", "alice-ldap\0"])
def test_a_bind_without_a_password_is_never_made(directory: Directory, way: str, password: str) -> None:
    """A directory would let it in, as nobody."""
    assert ask(options(directory, way), "alice", password) == Answer(False, "empty password")


@pytest.mark.parametrize("way", WAY)
@pytest.mark.parametrize(
    "name",
    [
        "*",
        "a*",
        "alice)(uid=*",
        "alice)(|(uid=*",
        "*)(uid=carol",
        "alice\\",
        "\\2a",
        f"alice,{PEOPLE}",
        "alice+cn=alice",
        "carol,uid=alice",
        "(uid=alice)",
        "#alice",
        "",
    ],
)
def test_names_are_names(directory: Directory, way: str, name: str) -> None:
    """What means something in filters or DNs does not lead to somebody else's entry."""
    assert not ask(options(directory, way), name, PASSWORDS["alice"]).fits


def test_names_with_special_characters_can_log_in(directory: Directory) -> None:
    """In a DN they are escaped; in a search PostgreSQL allows fewer, and so do we."""
    assert ask(options(directory, "simple"), "comma, =x", PASSWORDS["comma, =x"]).fits
    assert ask(options(directory, "search"), "comma, =x", PASSWORDS["comma, =x"]).fits
    assert ask(options(directory, "simple"), "star*(x)", PASSWORDS["star*(x)"]).fits
    found = ask(options(directory, "search"), "star*(x)", PASSWORDS["star*(x)"])
    assert found.why == "invalid character in user name for LDAP authentication"


def test_a_search_must_find_one_entry(directory: Directory) -> None:
    """With several it is not clear who that is."""
    text = f'ldapserver=127.0.0.1 ldapport={directory.port} ldapbasedn="{BASE}" ldapsearchfilter="(objectClass=person)"'
    assert "more than one entry" in ask(text, "alice", PASSWORDS["alice"]).why
    text = f'ldapserver=127.0.0.1 ldapport={directory.port} ldapbasedn="dc=nowhere"'
    assert "no entry" in ask(text, "alice", PASSWORDS["alice"]).why


def test_an_attribute_of_ones_own(directory: Directory) -> None:
    """Users may be known by another attribute than uid."""
    text = f'ldapserver=127.0.0.1 ldapport={directory.port} ldapbasedn="{BASE}" ldapsearchattribute=mail'
    assert ask(text, "0@example.org", PASSWORDS["alice"]).fits
    assert not ask(text, "alice", PASSWORDS["alice"]).fits


def test_the_search_needs_its_own_password(directory: Directory) -> None:
    """A wrong ldapbindpasswd is told with the name it belongs to."""
    text = (
        f'ldapserver=127.0.0.1 ldapport={directory.port} ldapbasedn="{BASE}" ldapbinddn="{MANAGER}" ldapbindpasswd=x1x'
    )
    found = ask(text, "alice", PASSWORDS["alice"])
    assert MANAGER in found.why
    assert "x1x" not in found.why


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("way", ["simple", "search"])
@pytest.mark.parametrize("tls", ["starttls", "ldaps"])
def test_tls(directory: Directory, host: str, way: str, tls: str) -> None:
    """StartTLS and TLS from the start, with a certificate for the server's name."""
    text = options(directory, way).replace("ldapserver=127.0.0.1", f"ldapserver={host}")
    if tls == "ldaps":
        text = text.replace(f"ldapport={directory.port}", f"ldapport={directory.tls_port} ldapscheme=ldaps")
    else:
        text += " ldaptls=1"
    assert ask(text, "alice", PASSWORDS["alice"]) == Answer(True)
    assert not ask(text, "alice", "wrong-guess").fits


@pytest.mark.parametrize("tls", ["starttls", "ldaps"])
@pytest.mark.parametrize("fault", ["authority", "name"])
def test_a_server_that_cannot_prove_itself_gets_no_password(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, tls: str, fault: str
) -> None:
    """Its certificate must come from an authority we trust and be made for its name; ldap.conf can switch that off."""
    host = "127.0.0.2" if fault == "name" else "127.0.0.1"
    text = options(directory, "simple").replace("ldapserver=127.0.0.1", f"ldapserver={host}")
    if tls == "ldaps":
        text = text.replace(f"ldapport={directory.port}", f"ldapport={directory.tls_port} ldapscheme=ldaps")
    else:
        text += " ldaptls=1"
    if fault == "authority":
        monkeypatch.setenv("LDAPTLS_CACERT", str(Authority().ca_file))
    found = ask(text, "alice", PASSWORDS["alice"])
    assert not found.fits
    assert "could not start LDAP TLS session" in found.why
    monkeypatch.setenv("LDAPTLS_REQCERT", "never")
    assert ask(text, "alice", PASSWORDS["alice"]).fits


def test_the_next_server_is_asked_if_one_is_down(directory: Directory) -> None:
    """But a wrong password is not tried elsewhere."""
    text = options(directory, "simple").replace("ldapserver=127.0.0.1", 'ldapserver="127.0.0.3 127.0.0.1"')
    assert ask(text, "alice", PASSWORDS["alice"]).fits
    assert "on server 127.0.0.1: Invalid credentials" in ask(text, "alice", "wrong-guess").why


def test_nobody_is_there(directory: Directory) -> None:
    """The log learns which server could not be reached."""
    text = options(directory, "simple").replace("ldapserver=127.0.0.1", "ldapserver=127.0.0.3")
    found = ask(text, "alice", PASSWORDS["alice"])
    assert "on server 127.0.0.3: Can't contact LDAP server" in found.why


@pytest.mark.parametrize(
    "said", [b"", b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01", b"HTTP/1.0 400 no\r\n\r\n", b"\x30\x84\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("way", ["simple", "search"])
def test_servers_that_say_nothing_or_nonsense(said: bytes, way: str) -> None:
    """The question ends within its limit, with a no."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    conn = server.accept()[0]
                except OSError:
                    return
                held.append(conn)
                conn.sendall(said)

        threading.Thread(target=serve, daemon=True).start()
        where = "ldapprefix=x" if way == "simple" else "ldapbasedn=dc=x"
        assert not ask(f"ldapserver=127.0.0.1 ldapport={port} {where}", "alice", "alice-ldap", limit_s=1.0).fits
        server.shutdown(socket.SHUT_RDWR)
        for conn in held:
            conn.close()
