"""Tests of the ini syntax: lines, includes and connection strings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgshoal.config.ini import Assignment, Header, connection_string, read_ini
from pgshoal.errors import ConfigError
from tests.config.conftest import Write


def pairs(path: Path) -> list[tuple[str, str, str]]:
    """The assignments of a file as (section, key, value)."""
    return [(item.section, item.key, item.value) for item in read_ini(str(path)) if isinstance(item, Assignment)]


def fault(path: Path) -> str:
    """The error of a file that cannot be read, as text."""
    with pytest.raises(ConfigError) as caught:
        list(read_ini(str(path)))
    return str(caught.value)


def test_sections_keys_and_places(write: Write) -> None:
    """Each line knows its section, file and line number."""
    assert list(read_ini(str(write("[a]\n\nk = v\n")))) == [
        Header("a", "p.ini", 1),
        Assignment("a", "k", "v", "p.ini", 3),
    ]


def test_comments_stand_at_line_starts_only(write: Write) -> None:
    """Lines starting with ; or # are skipped, also after blanks; later in a line they belong to the value."""
    path = write("[s]\n; a = 1\n  # b = 2\nc = 3 ; not a comment\n")
    assert pairs(path) == [("s", "c", "3 ; not a comment")]


def test_a_byte_order_mark(write: Write) -> None:
    """At the start of a file it is skipped; anywhere else it is as wrong as any other sign."""
    assert list(read_ini(str(write("\ufeff[a]\nk = v\n")))) == [
        Header("a", "p.ini", 1),
        Assignment("a", "k", "v", "p.ini", 2),
    ]
    assert fault(write("[a]\n\ufeffk = v\n")).startswith("p.ini:2: expected key = value")


def test_blanks_and_line_ends(write: Write) -> None:
    """Blanks around key and value are cut, carriage returns too, and the last line needs no end."""
    path = write("[s]\r\n  a=1  \r\n\tb\t=\t2\r\nc = ")
    assert pairs(path) == [("s", "a", "1"), ("s", "b", "2"), ("s", "c", "")]


def test_quoted_keys(write: Write) -> None:
    """A key in single quotes may hold anything but a single quote."""
    assert pairs(write("[s]\n'a \"b\" ; =' = 1\n*=2\nA.b-_9 = 3\n")) == [
        ("s", 'a "b" ; =', "1"),
        ("s", "*", "2"),
        ("s", "A.b-_9", "3"),
    ]


def test_a_header_may_be_followed_by_text(write: Write) -> None:
    """What stands behind the bracket of a header is ignored, as PgBouncer does."""
    assert pairs(write("[s] ; about\na = 1\n")) == [("s", "a", "1")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('"a" = 1', "expected key = value"),
        ("a@b = 1", "expected = after the key"),
        ("'a''b' = 1", "expected = after the key"),
        ("a", "expected = after the key"),
        ("'a = 1", "expected key = value"),
        ("= 1", "expected key = value"),
        ("ключ = 1", "expected key = value"),
        ("[s", "a section header needs a closing ]"),
        ("%foo x", "the only directive is %include PATH"),
        ("%includex", "the only directive is %include PATH"),
        ("%include", "the only directive is %include PATH"),
        ("\ufeff[s]", "expected key = value"),
    ],
)
def test_syntax_errors_name_file_and_line(write: Write, line: str, reason: str) -> None:
    """A line that is no header, assignment or include is an error at its place."""
    text = fault(write(f"[s]\na = 1\n{line}\n"))
    assert text.startswith("p.ini:3: ")
    assert reason in text


def test_zero_byte_is_an_error_at_its_line(write: Write) -> None:
    """A zero byte does not silently end the file."""
    assert fault(write(b"[s]\na = 1\0\nb = 2\n")).startswith("p.ini:2: ")


def test_undecodable_bytes_are_kept(write: Write) -> None:
    """A value that is not UTF-8 keeps its bytes."""
    [(_, _, value)] = pairs(write(b"[s]\na = \xe9\n"))
    assert value.encode(errors="surrogateescape") == b"\xe9"


def test_missing_file() -> None:
    """A file that cannot be read is an error that names it."""
    assert fault(Path("/nonexistent/p.ini")) == "/nonexistent/p.ini: could not read the file: No such file or directory"


def test_include_carries_the_section_both_ways(write: Write) -> None:
    """An included file goes on in the current section, and its last section stays current after it."""
    write("a = 1\n[t]\nb = 2\n", "inc.ini")
    assert pairs(write("[s]\n  %include inc.ini\nc = 3\n")) == [("s", "a", "1"), ("t", "b", "2"), ("t", "c", "3")]


def test_include_is_relative_to_the_working_directory(write: Write) -> None:
    """The folder of the including file plays no part."""
    root = write("[s]\n%include sub/one.ini\n")
    Path("sub").mkdir()
    write("%include two.ini\n", "sub/one.ini")
    write("a = 1\n", "two.ini")
    assert pairs(root) == [("s", "a", "1")]


def test_missing_include_names_the_including_line(write: Write) -> None:
    """The error for a missing include stands at the %include line."""
    text = fault(write("[s]\n\n%include nope.ini\n"))
    assert text == "p.ini:3: %include = nope.ini: could not read the file: No such file or directory"


def test_fault_inside_an_include_names_the_inner_line(write: Write) -> None:
    """A syntax error in an included file is reported where it is."""
    write("\n\nfoo\n", "inc.ini")
    assert fault(write("[s]\n%include inc.ini\n")).startswith("inc.ini:3: foo: ")


@pytest.mark.parametrize("depth", [10, 11])
def test_include_nesting_limit(write: Write, depth: int) -> None:
    """Ten includes may be nested, eleven may not."""
    for number in range(1, depth):
        write(f"%include n{number + 1}.ini\n", f"n{number}.ini")
    write("a = 1\n", f"n{depth}.ini")
    root = write("[s]\n%include n1.ini\n")
    if depth == 10:
        assert pairs(root) == [("s", "a", "1")]
    else:
        assert fault(root) == "n10.ini:1: %include = n11.ini: includes may be nested 10 deep"


def test_include_loop_ends(write: Write) -> None:
    """A file that includes itself is stopped by the nesting limit."""
    assert "nested 10 deep" in fault(write("%include p.ini\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("   ", []),
        ("a=1 b=2", [("a", "1"), ("b", "2")]),
        ("  a=1   b=2 ", [("a", "1"), ("b", "2")]),
        ("a = 1 b= 2", [("a", "1"), ("b", "2")]),
        ("a='x y' b=2", [("a", "x y"), ("b", "2")]),
        ("a='it''s' b=''''", [("a", "it's"), ("b", "'")]),
        ("a=o'x", [("a", "o'x")]),
        ("a=1\tb=2", [("a", "1\tb=2")]),
        ("a=x=y", [("a", "x=y")]),
        ("a=1 a=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_connection_strings(text: str, expected: list[tuple[str, str]]) -> None:
    """Pairs are separated by spaces only, and quoted values may hold spaces and doubled quotes."""
    assert list(connection_string(text)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("host=", "the value of host may not be empty"),
        ("password=''", "the value of password may not be empty"),
        ("host='x", "the value of host needs a closing quote"),
        ("host='x'port=1", "expected a space after the quoted value of host"),
        ("host=x ; c", "expected key=value at character 8"),
        ("host", "expected key=value at character 1"),
        ("=x", "expected key=value at character 1"),
    ],
)
def test_connection_string_errors(text: str, reason: str) -> None:
    """A broken connection string says what is expected and where."""
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        list(connection_string(text))
    assert str(caught.value) == reason


@given(st.text())
def test_connection_string_errors_quote_no_value(secret: str) -> None:
    """No error quotes a value, which may be a password."""
    text = f"password='x{secret}geheim"
    said = ""
    try:
        list(connection_string(text))
    except ValueError as error:
        said = str(error)
    assert "geheim" not in said


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(min_size=1)))
def test_any_value_can_be_quoted(values: dict[str, str]) -> None:
    """Whatever is quoted by doubling its quotes reads back as it was."""
    text = " ".join(f"{key}='{value.replace(chr(39), chr(39) * 2)}'" for key, value in values.items())
    assert dict(connection_string(text)) == values


@given(st.binary(max_size=200))
def test_no_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are either lines or a ConfigError."""
    path = tmp_path_factory.getbasetemp() / "any.ini"
    path.write_bytes(content)
    places = []
    try:
        places += [item.line for item in read_ini(str(path))]
    except ConfigError as error:
        places.append(error.line)
    # %include of a file that is not there stands at its own line too.
    assert all(1 <= line <= content.count(b"\n") + 1 for line in places)
