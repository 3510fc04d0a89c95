"""Tests of the two error roots and of the REFUSALS table."""

from __future__ import annotations

import pickle
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.settings import BY_NAME
from pgshoal.errors import REFUSALS, ConfigError, printable, refuse


def test_config_error_is_one_readable_line() -> None:
    """A configuration error names file, line, key, value and what is allowed, on one line."""
    error = ConfigError("a.ini", 7, "pool_mode", "x\ny", "must be one of a, b")
    assert str(error) == "a.ini:7: pool_mode = x y: must be one of a, b"


def test_config_error_leaves_out_what_is_not_known() -> None:
    """Line 0, an empty key and a hidden value leave no trace in the text."""
    assert str(ConfigError("a.ini", 0, "", None, "could not read")) == "a.ini: could not read"
    assert str(ConfigError("a.ini", 3, "password", None, "too long")) == "a.ini:3: password: too long"


def test_errors_survive_pickling() -> None:
    """Both errors can be sent to another process and arrive equal."""
    error = pickle.loads(pickle.dumps(ConfigError("f", 1, "k", "v", "r")))
    assert (error.file, error.line, error.key, error.value, error.reason) == ("f", 1, "k", "v", "r")
    refused = pickle.loads(pickle.dumps(refuse("no_such_database", db="x")))
    assert (refused.key, refused.text) == ("no_such_database", "no such database: x")


@given(st.text())
def test_printable_text_can_be_encoded_and_printed(text: str) -> None:
    """No control character and no undecodable byte passes through to a terminal."""
    shown = printable(text + "\udcff\x1b")
    assert shown.isprintable()
    assert shown.endswith(r"\xff\x1b")
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("key", "facts", "text"),
    [
        ("no_such_database", {"db": "x"}, "no such database: x"),
        ("database_disabled", {"db": "x"}, 'database "x" is disabled'),
        ("bad_packet_header", {"hex": "0000"}, "bad packet header: '0000'"),
        ("max_client_conn", {}, "no more connections allowed (max_client_conn)"),
        (
            "server_login_failing",
            {"reason": "nope"},
            "server login has been failing, cached error: nope (server_login_retry)",
        ),
        ("client_login_timeout_server", {}, "client_login_timeout (server down)"),
        ("query_timeout", {}, "query timeout"),
        ("query_timeout_queued", {}, "query_timeout"),
        ("trust_failed", {}, '"trust" authentication failed'),
        ("statement_mode_transaction", {}, "transaction blocks not allowed in statement pooling mode"),
        ("server_crashed", {}, "server conn crashed?"),
    ],
)
def test_refusal_texts(key: str, facts: dict[str, Any], text: str) -> None:
    """Refusals are FATAL 08P01 with PgBouncer's exact text."""
    refused = refuse(key, **facts)
    assert (refused.text, refused.sqlstate, refused.severity) == (text, "08P01", "FATAL")
    assert str(refused) == text


def test_console_errors_keep_the_connection() -> None:
    """Console errors have severity ERROR, and a failed RELOAD its own SQLSTATE."""
    reload = refuse("reload_failed")
    assert (reload.text, reload.severity, reload.sqlstate) == (
        "RELOAD failed, see logs for additional details",
        "ERROR",
        "F0000",
    )
    assert refuse("invalid_command", query="select 1").text == "invalid command 'select 1', use SHOW HELP;"
    assert refuse("cannot_touch_admin_db", action="pause", db="pgbouncer").text == "cannot pause admin db: pgbouncer"


def test_a_servers_own_words_keep_its_sqlstate() -> None:
    """A server's login error reaches the client with the SQLSTATE the server gave."""
    refused = refuse("server_login_error", text="too many {braces}", sqlstate="53300")
    assert (refused.text, refused.sqlstate) == ("too many {braces}", "53300")


def test_facts_are_never_read_as_templates() -> None:
    """Braces in what a client sent are passed on as they are."""
    assert refuse("no_such_database", db="{db!r}{0}%s").text == "no such database: {db!r}{0}%s"


def test_unknown_key_and_missing_fact_fail_at_once() -> None:
    """A misspelt refusal, or one without its facts, is a KeyError where it is made."""
    with pytest.raises(KeyError):
        refuse("no_such_refusal")
    with pytest.raises(KeyError):
        refuse("no_such_database")


@pytest.mark.parametrize("key", sorted(REFUSALS))
def test_every_row_is_sound(key: str) -> None:
    """Each row formats with the facts it names, and the knob it names is a real setting."""
    row = REFUSALS[key]
    names = [name for _, name, _, _ in string.Formatter().parse(row.text) if name]
    assert refuse(key, **dict.fromkeys(names, "x")).text
    assert not row.setting or row.setting in BY_NAME["pgbouncer"]
    assert len(row.sqlstate) == 5


def test_log_only_reasons_are_marked() -> None:
    """What PgBouncer only logs is never sent to the client."""
    silent = {"client_unexpected_eof", "bad_cancel_request", "second_ssl", "cancel_wait_timeout", "bad_packet"}
    assert silent <= {key for key, row in REFUSALS.items() if row.silent}
    assert not REFUSALS["no_such_database"].silent
