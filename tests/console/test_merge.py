"""How rows of several workers become one table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgshoal.console.merge import Gathered, gathered, merge
from pgshoal.console.sockets import Row
from pgshoal.console.tables import TABLES, Column, Table
from pgshoal.worker.stats import Totals

TABLE = Table(
    "T",
    (
        Column("name", "text", "", "key"),
        Column("first", "text", "", "first"),
        Column("sum", "int4", "", "sum"),
        Column("max", "int4", "", "max"),
        Column("tail", "int4", "", "tail"),
        Column("other", "int4", "", "max"),
    ),
    "",
    sorted=True,
)
_NUMBERS = st.integers(0, 5)
_ROWS = st.tuples(st.sampled_from("abc"), st.just("x"), _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS)
_PARTS = st.lists(st.lists(_ROWS, max_size=5, unique_by=lambda row: row[0]), max_size=5)


@given(parts=_PARTS)
def test_each_column_by_its_rule(parts: list[list[Row]]) -> None:
    """Sums add up, maxima are found, and a tail belongs to the greatest of its heads."""
    shown = merge(TABLE, Gathered(parts))
    every = [row for part in parts for row in part]
    wanted: list[Row] = []
    for name in sorted({str(row[0]) for row in every}):
        mine = [[int(str(cell)) for cell in row[2:]] for row in every if row[0] == name]
        head, tail = max((row[1], row[2]) for row in mine)
        wanted.append((name, "x", sum(row[0] for row in mine), head, tail, max(row[3] for row in mine)))
    assert shown == wanted


def test_every_column_of_pgbouncers_tables_has_a_rule_that_fits() -> None:
    """Rows are told apart by all their columns or by keys; a tail follows a maximum; numbers alone are added up."""
    for table in TABLES.values():
        rules = [column.merge for column in table.columns]
        assert table.local or table.ours or "each" in rules or "key" in rules, table.name
        for before, column in zip((None, *table.columns), table.columns, strict=False):
            assert column.merge != "tail" or (before is not None and before.merge == "max")
            assert column.merge not in ("sum", "max", "tail") or column.kind != "text", (table.name, column.name)


def test_nulls_are_nothing() -> None:
    """A value that one worker does not know."""
    assert merge(TABLE, Gathered([[("a", None, None, None, 3, 1)], [("a", "y", 2, 1, 4, None)]])) == [
        ("a", None, 2, 1, 4, 1)
    ]


def test_lists_of_names_and_of_numbers() -> None:
    """What all know by name is counted once, an empty list of names among them; all else is added up."""
    own: list[Row] = [("users", 2, "a", "b"), ("dns_names", 0), ("used_clients", 3)]
    other: list[Row] = [("users", 2, "b", "c"), ("dns_names", 1, "h"), ("used_clients", 4)]
    assert merge(TABLES["LISTS"], Gathered([own, other])) == [("users", 3), ("dns_names", 1), ("used_clients", 7)]


def test_zones_of_several_workers() -> None:
    """The names of a zone are counted once, and the latest serial is shown."""
    own: list[Row] = [("example.test", 7, "a.example.test,b.example.test"), ("other.test", 0, "")]
    other: list[Row] = [("example.test", 8, "b.example.test,c.example.test")]
    assert merge(TABLES["DNS_ZONES"], Gathered([own, other])) == [("example.test", 8, 3), ("other.test", 0, 0)]
    hosts: list[list[Row]] = [[("a", 3, "10.0.0.1:0")], [("b", 1, ""), ("a", 5, "10.0.0.1:0")]]
    assert merge(TABLES["DNS_HOSTS"], Gathered(hosts)) == [("a", 5, "10.0.0.1:0"), ("b", 1, "")]


def test_an_answer_with_the_last_period() -> None:
    """The supervisor's own part of STATS: totals of the dead, and the counts behind all averages."""
    zeros = (0,) * 12
    ones: tuple[int, ...] = (1,) * 12
    answer = {
        "parts": [
            {"number": None, "rows": [["app", *ones]], "deltas": [["app", *(50,) * 12]], "period_us": 10_000_000},
            {"number": 1, "seat": 1, "rows": [["app", *ones], ["b", *zeros]]},
        ]
    }
    found = gathered([("app", *ones)], answer)
    assert (found.deltas, found.period_us) == ({"app": Totals(*(50,) * 12)}, 10_000_000)
    app, b = merge(TABLES["STATS"], found)
    assert app == ("app", *(3,) * 12, 5, 5, 5, 5, 5, 1, 1, 1, 5, 5, 5, 5)
    assert b == ("b", *(0,) * 24)
    assert merge(TABLES["STATS_TOTALS"], found)[0] == ("app", *(3,) * 12)
    assert ("avg_query_count", 5) in merge(TABLES["TOTALS"], found)


def test_no_answer() -> None:
    """This worker's rows alone."""
    assert gathered([("a",)], None).parts == [[("a",)]]
