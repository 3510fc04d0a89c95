"""Reads LDAP parameters, from auth_ldap_options or from a line of an auth_hba_file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

BYTES_MAX: Final = 1024
_PAIR: Final = re.compile(r'[\s,]*(?:("?)([A-Za-z]+)=(?:(?<!")"((?:[^"]++|"")*+)"|([^\s,"]*))("?)(?=[\s,]|\Z))')
_PLAIN_PORT, _TLS_PORT = 389, 636
_KEYS: Final = (
    "ldapserver", "ldapport", "ldapscheme", "ldaptls", "ldapprefix", "ldapsuffix", "ldapbasedn", "ldapbinddn",
    "ldapbindpasswd", "ldapsearchattribute", "ldapsearchfilter", "ldapurl",
)  # fmt: skip
_SEARCH: Final = ("basedn", "binddn", "bindpasswd", "searchattribute", "searchfilter")


class BadLdapOption(ValueError):
    """Which parameter is wrong, and what is allowed; its value may be a password and is not kept."""

    def __init__(self, key: str, allowed: str) -> None:
        super().__init__(key, allowed)
        self.key = key
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class LdapOptions:
    """How to ask the directory. With `basedn` the user's entry is searched, else its name is prefix, user, suffix."""

    servers: tuple[str, ...]
    port: int = _PLAIN_PORT
    scheme: Literal["ldap", "ldaps"] = "ldap"
    starttls: bool = False
    prefix: str = ""
    suffix: str = ""
    basedn: str | None = None
    binddn: str = ""
    bindpasswd: str = field(default="", repr=False)
    searchattribute: str = "uid"
    searchfilter: str = ""
    scope: Literal["base", "one", "sub"] = "sub"


def parse_ldap_options(text: str, comments: bool = False) -> LdapOptions:
    """Read key=value pairs; with `comments`, a # after a blank ends them. BadLdapOption says what is wrong."""
    if len(text.encode(errors="surrogateescape")) > BYTES_MAX:
        raise BadLdapOption("ldap options", f"at most {BYTES_MAX} bytes")
    given: dict[str, str] = {}
    for key, value in _pairs(text, comments):
        if key not in _KEYS:
            # Not the value: the name of bindpasswd may be misspelt.
            raise BadLdapOption(key, "invalid LDAP option; allowed are " + ", ".join(_KEYS))
        given[key.removeprefix("ldap")] = value
    return _options(given)


def _pairs(text: str, comments: bool) -> Iterator[tuple[str, str]]:
    position = 0
    while True:
        rest = text[position:].lstrip(" \t\r\n\v\f,")
        if not rest or (comments and rest[0] == "#"):
            return
        match = _PAIR.match(text, position)
        if match is None or match[1] != match[5]:
            raise BadLdapOption("ldap options", 'key=value or key="value", separated by blanks or commas')
        position = match.end()
        yield match[2], match[4] if match[3] is None else match[3].replace('""', '"')


def _options(given: dict[str, str]) -> LdapOptions:
    values: dict[str, Any] = {}
    if "url" in given:
        values.update(_url(given.pop("url")))
    if "scheme" in given:
        values["scheme"] = _one_of("ldapscheme", given.pop("scheme"), ("ldap", "ldaps"))
    if "tls" in given:
        values["starttls"] = _one_of("ldaptls", given.pop("tls"), ("0", "1")) == "1"
    if "port" in given:
        values["port"] = _port("ldapport", given.pop("port"))
    if "server" in given:
        values["servers"] = tuple(re.split(r"[\s,]+", given.pop("server").strip()))
    values.update(given)
    _require(values)
    values.setdefault("servers", ("localhost",))
    values.setdefault("port", _TLS_PORT if values.get("scheme") == "ldaps" else _PLAIN_PORT)
    if not values.get("searchattribute", "x"):
        del values["searchattribute"]
    return LdapOptions(**values)


def _require(values: dict[str, Any]) -> None:
    simple = [name for name in ("prefix", "suffix") if name in values]
    search = [name for name in _SEARCH if name in values]
    if not simple and "basedn" not in values:
        raise BadLdapOption("ldap options", "one of ldapbasedn, ldapprefix, ldapsuffix is required")
    if simple and search:
        raise BadLdapOption(f"ldap{simple[0]}", "either ldapprefix and ldapsuffix, or a search, not both")
    if "searchattribute" in values and "searchfilter" in values:
        raise BadLdapOption("ldapsearchfilter", "either ldapsearchattribute or ldapsearchfilter, not both")
    if values.get("starttls") and values.get("scheme") == "ldaps":
        raise BadLdapOption("ldaptls", "StartTLS is for ldapscheme=ldap")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9;.-]*", str(values.get("searchattribute") or "uid")):
        raise BadLdapOption("ldapsearchattribute", "the name of an attribute")


def _url(text: str) -> Iterator[tuple[str, Any]]:
    """ldap[s]://server[:port]/basedn[?attribute[?scope[?filter]]] of RFC 4516."""
    bad = BadLdapOption("ldapurl", "ldap[s]://server[:port]/basedn[?attribute[?scope[?filter]]]")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise bad from None
    asked = parts.query.split("?")
    if parts.scheme not in ("ldap", "ldaps") or len(asked) > 3 or parts.fragment or parts.username is not None:
        raise bad
    attribute, scope, condition = [unquote(each) for each in (*asked, "", "")][:3]
    yield "scheme", parts.scheme
    if parts.hostname:
        yield "servers", (parts.hostname,)
    if port is not None:
        yield "port", _port("ldapurl", str(port))
    yield "basedn", unquote(parts.path.removeprefix("/"))
    if attribute:
        yield "searchattribute", attribute
    # RFC 4516: without a scope only the entry itself is looked at.
    yield "scope", _one_of("ldapurl", scope or "base", ("base", "one", "sub"))
    if condition:
        yield "searchfilter", condition


def _port(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65535):
        raise BadLdapOption(key, "a port number from 1 to 65535")
    return int(text)


def _one_of(key: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise BadLdapOption(key, "one of " + ", ".join(allowed))
    return text
