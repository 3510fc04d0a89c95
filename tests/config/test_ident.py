"""Tests of the ident file's reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgshoal.config.ident import IdentLine, parse_ident, read_ident


def test_maps() -> None:
    """Lines of one map stay in order; comments are nothing; a quoted `all` is a name."""
    found = parse_ident('# who\nm root alice\nn "a b" "all" # why\nm root all\n', "ident.conf")
    assert found.warnings == ()
    assert found.maps == {
        "m": (IdentLine("root", "alice"), IdentLine("root", None)),
        "n": (IdentLine("a b", "all"),),
    }


def test_regular_expressions() -> None:
    """A system name that begins with a slash is one."""
    (line,) = parse_ident(r'm "/^(.*)@example\.com$" \1', "ident.conf").maps["m"]
    assert line.pattern is not None
    assert line.pattern.pattern == r"^(.*)@example\.com$"
    assert line.user == "\\1"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("m root", "fields = 2"),
        ("m root alice extra", "fields = 4"),
        ("m root alice,bob", "list"),
        ("m root +admins", "database-user = +admins"),
        ("m root /a", "database-user = /a"),
        ("m root @names", "database-user = @names"),
        ("m /( alice", "system-name = /("),
        ("m /x \\1", "database-user = \\1"),
        ('m "root alice', "quotes"),
    ],
)
def test_bad_lines_are_passed_over(line: str, field: str) -> None:
    """The warning names file, line and field; the lines around it stand."""
    found = parse_ident(f"a x y\n{line}\nb x y\n", "ident.conf")
    assert [*found.maps] == ["a", "b"]
    (warning,) = found.warnings
    assert str(warning).startswith(
        f"ident.conf:2: {field}".replace("\\", "\\") + ": could not parse ident config line 2: "
    )


def test_a_file_that_cannot_be_read_has_no_maps(tmp_path: Path) -> None:
    """The log says why."""
    found = read_ident(str(tmp_path / "none"))
    assert found.maps == {}
    assert f"could not open ident config file {tmp_path}/none: No such file or directory" in str(found.warnings[0])
