"""What a client's startup parameters mean."""

from __future__ import annotations

from typing import Any

import pytest

from pgshoal.policy.startup import (
    LoginWish,
    StartupRules,
    Unwelcome,
    make_rules,
    merge_parameters,
    read_wish,
    with_host,
)
from pgshoal.wire.startup import Startup

RULES = make_rules((), ())


def ask(rules: StartupRules = RULES, **parameters: str) -> LoginWish | Unwelcome:
    """A startup packet of alice for app with more parameters."""
    pairs = {"user": "alice", "database": "app", **parameters}
    return read_wish(Startup(3, 0, tuple(pairs.items())), rules)


def wish(rules: StartupRules = RULES, **parameters: str) -> LoginWish:
    """The same, accepted."""
    found = ask(rules, **parameters)
    assert isinstance(found, LoginWish), found
    return found


def unwelcome(rules: StartupRules = RULES, **parameters: str) -> Unwelcome:
    """The same, refused."""
    found = ask(rules, **parameters)
    assert isinstance(found, Unwelcome), found
    return found


def test_a_missing_database_is_the_user_name() -> None:
    """Without a database, and with an empty one, the database is named like the user."""
    assert wish(database="").database == "alice"
    bare = read_wish(Startup(3, 0, (("user", "bob"),)), RULES)
    assert isinstance(bare, LoginWish)
    assert bare.database == "bob"


@pytest.mark.parametrize("user", ["", None])
def test_a_user_must_be_named(user: str | None) -> None:
    """No user, or an empty one, is refused."""
    pairs = (("database", "app"),) if user is None else (("user", user), ("database", "app"))
    found = read_wish(Startup(3, 0, pairs), RULES)
    assert isinstance(found, Unwelcome)
    assert found.key == "no_username"


def test_user_names_are_bounded_in_bytes() -> None:
    """127 bytes are a name, 128 are not, and characters of several bytes count as such."""
    assert wish(user="a" * 127).user == "a" * 127
    assert unwelcome(user="a" * 128).key == "username_too_long"
    assert unwelcome(user="é" * 64).key == "username_too_long"


def test_tracked_names_match_without_case_and_come_in_the_told_order() -> None:
    """Any spelling of a tracked name is its canonical one; the order is the one clients are told."""
    found = wish(application_name="x", TIMEZONE="UTC", datestyle="ISO")
    assert found.parameters == (("DateStyle", "ISO"), ("TimeZone", "UTC"), ("application_name", "x"))


def test_an_untracked_name_is_refused_with_its_value_only_in_the_log() -> None:
    """The client learns the name, the log also the value."""
    found = unwelcome(geqo="off")
    assert (found.key, found.name) == ("unsupported_parameter", "geqo")
    assert found.warning == "unsupported startup parameter: geqo=off"


@pytest.mark.parametrize("name", ["is_superuser", "server_version", "session_authorization"])
def test_names_a_client_must_not_set_are_refused(name: str) -> None:
    """Reported names that no client may choose are unsupported, whatever the server reports."""
    wished: dict[str, Any] = {name: "x"}
    assert unwelcome(**wished).name == name


def test_a_value_that_cannot_be_quoted_safely_is_refused() -> None:
    """Backslash beside non-ASCII text could end a literal early in some client encodings."""
    found = unwelcome(application_name="\u8868\\x")
    assert (found.key, found.name) == ("unsupported_parameter", "application_name")
    assert wish(application_name="a\\b").parameters == (("application_name", "a\\b"),)


def test_track_extra_parameters_adds_names() -> None:
    """An extra name is accepted in any case and told last, in the spelling of the setting."""
    rules = make_rules(("Work_Mem",), ())
    assert wish(rules, work_mem="1MB", application_name="a").parameters == (
        ("application_name", "a"),
        ("Work_Mem", "1MB"),
    )


def test_ignored_names_win_over_tracked_ones_and_are_exact() -> None:
    """ignore_startup_parameters drops a tracked name too, but only in the spelling of the setting."""
    rules = make_rules((), ("extra_float_digits", "application_name"))
    assert wish(rules, extra_float_digits="2", application_name="x").parameters == ()
    assert unwelcome(rules, EXTRA_FLOAT_DIGITS="2").name == "EXTRA_FLOAT_DIGITS"
    assert wish(rules, Application_Name="x").parameters == (("application_name", "x"),)


def test_options_set_tracked_names() -> None:
    """Settings in `options` count like parameters; the last one wins."""
    found = wish(application_name="a", options="-c DATESTYLE=german --application_name=b")
    assert found.parameters == (("DateStyle", "german"), ("application_name", "b"))


def test_options_refusals_say_where() -> None:
    """An unknown name inside `options` has a text of its own, and so has another switch."""
    assert unwelcome(options="-c geqo=off").key == "unsupported_parameter_in_options"
    assert unwelcome(options="-x").key == "unsupported_options"


def test_an_empty_name_in_options_is_refused() -> None:
    """`-c=` and `--=x` end the login at once."""
    assert unwelcome(options="-c=").key == "unsupported_options"
    assert unwelcome(options="--=x").key == "unsupported_options"


def test_options_can_be_ignored_whole() -> None:
    """With `options` in ignore_startup_parameters its content is not looked at."""
    assert wish(make_rules((), ("options",)), options="-x nonsense").parameters == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("database", "logical"),
        ("true", "physical"),
        ("ON", "physical"),
        ("1", "physical"),
        ("y", "physical"),
        ("false", "none"),
        ("0", "none"),
        ("o", "none"),
        ("garbage", "none"),
        ("", "none"),
    ],
)
def test_replication_values(value: str, kind: str) -> None:
    """`database` is logical, a true boolean or its unique beginning physical, anything else none."""
    assert wish(replication=value).replication == kind


def test_replication_clients_keep_their_options() -> None:
    """What a replication client puts in `options` is for its server, not for us."""
    assert wish(replication="database", options="-c wal_sender_timeout=5s").options == "-c wal_sender_timeout=5s"


def test_a_client_has_the_pools_values_and_its_own() -> None:
    """Own values stand in place of the pool's; names the pool does not know come last."""
    merged = merge_parameters([("DateStyle", "ISO"), ("TimeZone", "UTC")], [("TimeZone", "CET"), ("search_path", "a")])
    assert merged == (("DateStyle", "ISO"), ("TimeZone", "CET"), ("search_path", "a"))


def test_application_name_carries_the_clients_address() -> None:
    """The address is added behind the name, or behind `app` when there is none."""
    assert with_host((), "10.0.0.1", 5, 0, "box") == (("application_name", "app - 10.0.0.1:5"),)
    assert with_host((("application_name", "x"), ("TimeZone", "UTC")), "::1", 5, 0, "box") == (
        ("TimeZone", "UTC"),
        ("application_name", "x - ::1:5"),
    )
    assert with_host((), "unix", 6432, 77, "box") == (("application_name", "app - unix(77@box):6432"),)
