"""Tests of the auth_file reader: lines, limits, and what kind each secret is."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.userlist import classify, parse_userlist, read_userlist

KEY = base64.b64encode(b"k" * 32).decode()
SHORT = base64.b64encode(b"k" * 31).decode()
# What can come out of a file: no zero byte, and lone surrogates only where bytes were not UTF-8.
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
SCRAM = f"SCRAM-SHA-256$4096:{base64.b64encode(b'salt').decode()}${KEY}:{KEY}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("hello", "plain"),
        ("md5" + "0a" * 16, "md5"),
        ("md5" + "0A" * 16, "plain"),
        ("md5" + "0a" * 15, "plain"),
        ("md5" + "0a" * 16 + "\n", "plain"),
        (SCRAM, "scram"),
        (SCRAM.replace("4096", "0"), "plain"),
        (SCRAM.replace("4096", "x"), "plain"),
        (SCRAM.replace(KEY, SHORT), "plain"),
        (SCRAM.replace("SHA-256$", "SHA-512$"), "plain"),
        (SCRAM + "x", "plain"),
    ],
)
def test_kinds_of_secret(text: str, kind: str) -> None:
    """A secret that is no exact md5 or SCRAM verifier is an ordinary password."""
    secret = classify(text)
    assert (secret.kind, secret.text) == (kind, text)


def test_secrets_do_not_show() -> None:
    """The text of a secret is not in its repr."""
    assert "hello" not in repr(classify("hello"))


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ('"a" "b"\n', {"a": "b"}),
        ('"a" "b" the rest\n"c" "d"', {"a": "b", "c": "d"}),
        ('"a" between "b"\n', {"a": "b"}),
        ('"a""b" "c""d"', {'a"b': 'c"d'}),
        ('; x\n  ; y\n\n  "a" "b"\n', {"a": "b"}),
        ('"a" "b" "c" "d"\n', {"a": "b"}),
        ('"a"\n"b"\n"c" "d"\n', {"a": "b", "c": "d"}),
        ('"a" "x\ny"\n"c" "d"', {"a": "x\ny", "c": "d"}),
        ('"a" "b"\r\n"c" "d"\r\n', {"a": "b", "c": "d"}),
        ('"a" ""', {"a": ""}),
        ('"a" "1"\n"a" "2"\n', {"a": "2"}),
        ("", {}),
    ],
)
def test_lines(text: str, users: dict[str, str]) -> None:
    """Names and secrets are double-quoted, what stands between and behind them is ignored, the last line wins."""
    found = parse_userlist(text, "u.txt")
    assert found.error is None
    assert {name: secret.text for name, secret in found.secrets.items()} == users


@pytest.mark.parametrize(
    "broken",
    ['"b"', '"b" "c', '"b', "b c", "# comment", '"b" c', '"' + "u" * 128 + '" "x"', '"b" "' + "p" * 65531 + '"'],
)
def test_error_keeps_earlier_lines(broken: str) -> None:
    """A broken line ends the reading with an error at its place; users before it stand."""
    found = parse_userlist(f'"a" "b"\n\n{broken}', "u.txt")
    assert set(found.secrets) == {"a"}
    assert str(found.error).startswith("u.txt:3: ")


def test_limits_are_inclusive() -> None:
    """A name of 127 bytes and a secret of 65530 bytes are accepted, counted in UTF-8."""
    found = parse_userlist(f'"{"u" * 127}" "{"p" * 65530}"\n"{"ü" * 64}" "x"', "u.txt")
    assert [len(name) for name in found.secrets] == [127]
    assert str(found.error) == "u.txt:2: a user name may have 127 bytes"


def test_errors_show_no_secret() -> None:
    """The error for a secret that is too long does not show it."""
    assert "pppp" not in str(parse_userlist(f'"a" "{"p" * 65531}"', "u.txt").error)


def test_missing_file_is_reported() -> None:
    """A file that is not there gives no users and an error to log."""
    found = read_userlist("/nonexistent/u.txt")
    assert found.secrets == {}
    assert str(found.error) == "/nonexistent/u.txt: could not open auth_file: No such file or directory"


def test_a_missing_quote_in_a_long_file_is_found_at_once() -> None:
    """A quote that never closes does not make the reader try every way to split the text."""
    found = parse_userlist('"a" "' + 'x""' * 100_000, "u.txt")
    assert found.secrets == {}
    assert found.error is not None


@given(st.dictionaries(st.text(CHARACTERS, max_size=20), st.text(CHARACTERS, max_size=40)))
def test_whatever_is_quoted_reads_back(users: dict[str, str]) -> None:
    """Names and secrets with doubled quotes come back as they were."""
    doubled = {name.replace('"', '""'): secret.replace('"', '""') for name, secret in users.items()}
    lines = [f'"{name}" "{secret}"' for name, secret in doubled.items()]
    found = parse_userlist("\n".join(lines), "u.txt")
    assert found.error is None
    assert {name: secret.text for name, secret in found.secrets.items()} == users


@given(st.text('ab"; \n\\', max_size=60))
def test_any_text_is_read_or_reported(text: str) -> None:
    """Any text gives users, an error, or both, and the error's line is inside the text."""
    found = parse_userlist(text, "u.txt")
    if found.error is not None:
        assert 1 <= found.error.line <= text.count("\n") + 1
