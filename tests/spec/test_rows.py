"""No row of what an operator relies on is without a test, and our lists and the product name the same things."""

from __future__ import annotations

import ast

import pytest

from pgshoal.console.commands import COMMANDS
from pgshoal.console.tables import TABLES
from tests.spec.rows import Row, excused, facts, rows
from tests.spec.witnesses import Witness, Words, _tests, witnesses


@pytest.fixture(scope="module")
def tests() -> tuple[Witness, ...]:
    """All of them."""
    return witnesses()


def named(row: Row) -> str:
    """How a row is called where it is excused."""
    return row.name.partition(": ")[0] if row.kind == "refusal" else row.name


def test_every_row_has_a_test(tests: tuple[Witness, ...]) -> None:
    """Each is shown by some test, or stands among those that nobody can cause."""
    reasons = excused()
    missing = [row.name for row in rows() if named(row) not in reasons and not any(map(row.shown_by, tests))]
    assert missing == []


def test_excuses_are_needed(tests: tuple[Witness, ...]) -> None:
    """Each names a row and has a reason, and no test shows that row after all."""
    found = {named(row): row for row in rows()}
    assert all(excused().values())
    assert [name for name in excused() if name not in found] == []
    assert [name for name in excused() if any(map(found[name].shown_by, tests))] == []


def test_columns_are_those_of_the_console() -> None:
    """Tables and columns, in their order."""
    listed = {table: columns.split() for line in facts("columns.txt") for table, _, columns in [line.partition(": ")]}
    assert listed == {name: [column.name for column in table.columns] for name, table in TABLES.items()}


def test_commands_are_those_of_the_console() -> None:
    """Every command, and every table it shows."""
    listed = facts("commands.txt")
    assert {line.split()[0] for line in listed} - {"SELECT"} == COMMANDS.keys()
    assert {name for name in TABLES if f"SHOW {name}" not in listed} == set()


def _witness(code: str) -> Witness:
    (found,) = _tests("x", ast.parse(code).body, {})
    return found


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def test_x():\n    make(users={'bob': 'pool_size=1'})", "[users] pool_size"),
        ("def test_x():\n    make({'app': database(pg, pool_size=1)})", "[databases] pool_size"),
        ("LINE = 'SV_USED server got dirty'\ndef test_x():\n    assert LINE in log", "SV_USED server got dirty"),
        ("def test_x():\n    assert f'cannot {verb} admin db: {name}' == text", "cannot_touch_admin_db"),
    ],
)
def test_what_a_test_shows(code: str, name: str) -> None:
    """Settings count at the scope where they are given, texts also from the module around the test."""
    shown = {named(row) for row in rows() if row.shown_by(_witness(code))}
    assert name in shown
    assert "[peers] pool_size" not in shown
    assert len(shown & {"[users] pool_size", "[databases] pool_size"}) <= 1


def test_a_word_in_a_docstring_shows_nothing() -> None:
    """Only what a test does counts."""
    witness = _witness("def test_x():\n    'query_wait_timeout and max_packet_size.'\n    assert True")
    assert [row.name for row in rows() if row.shown_by(witness)] == []
    assert witness.words == Words(names=set())
