"""Tests for pgshoal.wire.params."""

import pytest

from pgshoal.wire.errors import WireError
from pgshoal.wire.params import canonical_name, quote_value, set_statement, settable, split_names


def test_reported_facts_cannot_be_set() -> None:
    """What a server only reports is never replayed, in any spelling."""
    assert not settable("server_version")
    assert not settable("IS_SUPERUSER")
    assert not settable("in_hot_standby")
    assert settable("TimeZone")
    assert settable("search_path")


def test_names_take_postgresql_spelling() -> None:
    """Names compare without case and are told to clients as PostgreSQL spells them."""
    assert canonical_name("datestyle") == "DateStyle"
    assert canonical_name("TIMEZONE") == "TimeZone"
    assert canonical_name("Application_Name") == "application_name"
    assert canonical_name("My.Own") == "my.own"


def test_values_are_quoted_against_injection() -> None:
    """Quotes are doubled, and backslashes are safe with standard_conforming_strings on or off."""
    assert quote_value("UTC") == "'UTC'"
    assert quote_value("a'; drop table t; --") == "'a''; drop table t; --'"
    assert quote_value("a\\'b") == "E'a\\\\''b'"
    assert quote_value("a\0b") == "'ab'"


def test_backslash_beside_non_ascii_is_refused() -> None:
    """In some client encodings the backslash could be half of a character, so no quoting of it is safe."""
    with pytest.raises(WireError):
        quote_value("\udc95\\'")
    assert quote_value("é") == "'é'"


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a=b", "1a", "a.", "é", "a'b"])
def test_odd_names_are_never_put_into_sql(name: str) -> None:
    """A parameter name is words joined by dots, or it is refused."""
    with pytest.raises(WireError):
        set_statement(name, "x")


def test_set_statement_for_plain_values() -> None:
    """An ordinary value is one string, also where it has commas."""
    assert set_statement("DateStyle", "ISO, MDY") == "SET DateStyle='ISO, MDY'"
    assert set_statement("my.own", "") == "SET my.own=''"


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        ('"$user", public', "'$user','public'"),
        ("", "''"),
        ('""', "''"),
        ('A, "A", "a""b"', "'a','A','a\"b'"),
        ('"a, b"', "'a, b'"),
        ("x'; drop table t; --", "'x''; drop table t; --'"),
        ('"open', "'open'"),
        (" , ,", "''"),
    ],
)
def test_search_path_is_set_name_by_name(value: str, sql: str) -> None:
    """Each schema is a literal of its own, so a path keeps its meaning and cannot carry SQL."""
    assert set_statement("search_path", value) == f"SET search_path={sql}"


def test_split_names_keeps_quoted_names_apart() -> None:
    """Commas and spaces inside quotes belong to the name."""
    assert split_names('a,"b , c" ,d') == ["a", "b , c", "d"]
