"""Tests of LDAP parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.ldap import BadLdapOption, LdapOptions, parse_ldap_options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ldapprefix=uid=", {"prefix": "uid="}),
        (
            'ldapserver=h ldapprefix="uid=" ldapsuffix=", dc=x"',
            {"servers": ("h",), "prefix": "uid=", "suffix": ", dc=x"},
        ),
        ('ldapprefix="a""b"', {"prefix": 'a"b'}),
        ("ldapserver=a,ldapsuffix=@x", {"servers": ("a",), "suffix": "@x"}),
        ('ldapserver="a b,c" ldapsuffix=@x', {"servers": ("a", "b", "c"), "suffix": "@x"}),
        ('"ldapprefix=uid=",ldapport=3890', {"prefix": "uid=", "port": 3890}),
        ("ldapprefix=x ldaptls=1", {"prefix": "x", "starttls": True}),
        ("ldapprefix=x ldapscheme=ldaps", {"prefix": "x", "scheme": "ldaps", "port": 636}),
        ("ldapbasedn=dc=x", {"basedn": "dc=x"}),
        (
            'ldapbasedn="dc=x" ldapbinddn="cn=a" ldapbindpasswd=b#c ldapsearchattribute=mail',
            {"basedn": "dc=x", "binddn": "cn=a", "bindpasswd": "b#c", "searchattribute": "mail"},
        ),
        ("ldapbasedn=dc=x ldapsearchfilter=(uid=$username)", {"basedn": "dc=x", "searchfilter": "(uid=$username)"}),
        ("ldapurl=ldap://h/dc=x", {"servers": ("h",), "basedn": "dc=x", "scope": "base"}),
        (
            "ldapurl=ldaps://h:99/dc=x?mail?sub",
            {
                "servers": ("h",),
                "port": 99,
                "scheme": "ldaps",
                "basedn": "dc=x",
                "searchattribute": "mail",
                "scope": "sub",
            },
        ),
        (
            "ldapurl=ldap://h/dc=x??one?(a=%24username)",
            {"servers": ("h",), "basedn": "dc=x", "searchfilter": "(a=$username)", "scope": "one"},
        ),
        ("ldapurl=ldap://h/dc=x ldapserver=other", {"servers": ("other",), "basedn": "dc=x", "scope": "base"}),
        ("ldapprefix=x # why", {"prefix": "x"}),
    ],
)
def test_parameters(text: str, expected: dict[str, Any]) -> None:
    """Pairs are separated by blanks or commas and may be quoted; what is not given has its default."""
    assert parse_ldap_options(text, comments=True) == LdapOptions(**{"servers": ("localhost",), **expected})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "ldap options"),
        ("ldapserver=h", "ldap options"),
        ("ldapprefix", "ldap options"),
        ('ldapprefix="a', "ldap options"),
        ('ldapprefix="a"b', "ldap options"),
        ("ldapprefix=x # why", "ldap options"),
        ("ldappasswd=geheim ldapprefix=x", "ldappasswd"),
        ("ldapprefix=x ldapport=0", "ldapport"),
        ("ldapprefix=x ldapport=ldap", "ldapport"),
        ("ldapprefix=x ldaptls=yes", "ldaptls"),
        ("ldapprefix=x ldapscheme=ldapi", "ldapscheme"),
        ("ldapprefix=x ldapscheme=ldaps ldaptls=1", "ldaptls"),
        ("ldapprefix=x ldapbasedn=y", "ldapprefix"),
        ("ldapsuffix=x ldapbindpasswd=geheim", "ldapsuffix"),
        ("ldapbasedn=x ldapsearchattribute=a ldapsearchfilter=(b=c)", "ldapsearchfilter"),
        ("ldapbasedn=x ldapsearchattribute=a)(b", "ldapsearchattribute"),
        ("ldapurl=http://h/dc=x", "ldapurl"),
        ("ldapurl=ldap://h:0/dc=x", "ldapurl"),
        ("ldapurl=ldap://h:x/dc=x", "ldapurl"),
        ("ldapurl=ldap://h/dc=x??everywhere", "ldapurl"),
        ("ldapurl=ldap://h/dc=x??sub?(a=b)?ext", "ldapurl"),
        ("ldapprefix=" + "x" * 1024, "ldap options"),
    ],
)
def test_bad_parameters(text: str, key: str) -> None:
    """The error names the parameter and what is allowed, and no value."""
    with pytest.raises(BadLdapOption) as caught:
        parse_ldap_options(text)
    assert caught.value.key == key
    assert caught.value.allowed
    assert "geheim" not in str(caught.value)


def test_the_password_does_not_show() -> None:
    """It is in no repr."""
    assert "geheim" not in repr(parse_ldap_options("ldapbasedn=x ldapbindpasswd=geheim"))


@given(st.text(max_size=200))
def test_any_text_is_parameters_or_an_error(text: str) -> None:
    """Nothing else comes out."""
    try:
        found = parse_ldap_options(text)
    except BadLdapOption:
        return
    assert found.servers
