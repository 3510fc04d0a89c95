"""The page's text from rows of the console's tables."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pgshoal.console.sockets import Row, Value
from pgshoal.console.tables import TABLES
from pgshoal.metrics.exposition import Found, render
from pgshoal.metrics.families import FAMILIES, SOURCES, Family


def row(table: str, **known: Value) -> Row:
    """A row of a table whose other columns are zero, or empty."""
    blank: dict[str, Value] = {"text": "", "int4": 0, "int8": 0, "numeric": 0}
    return tuple(known[column.name] if column.name in known else blank[column.kind] for column in TABLES[table].columns)


def samples(found: Found) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and values of the labels."""
    text, _ = render(found, "")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families_name_columns(family: Family) -> None:
    """Every metric comes from columns that exist, of a table that is asked for, and has a legal name of its own."""
    columns = {column.name for column in TABLES[family.table].columns}
    assert {family.column, *family.labels.values(), *filter(None, [family.tail])} <= columns
    assert family.table in SOURCES
    assert re.fullmatch(r"(pgbouncer|pgshoal)_[a-z_]+[a-z]", family.name)
    assert not family.name.endswith("_total")
    assert [other.name for other in FAMILIES].count(family.name) == 1


def test_pools_and_times() -> None:
    """Counts stand as they are; seconds and their microseconds become one number."""
    pools = [row("POOLS", database="app", user="u", cl_waiting=3, maxwait=2, maxwait_us=500_000)]
    found = samples(Found({"POOLS": pools}, 0))
    assert found["pgbouncer_pools_client_waiting_connections", ("app", "u")] == 3
    assert found["pgbouncer_pools_client_maxwait_seconds", ("app", "u")] == 2.5


def test_counters_are_in_seconds() -> None:
    """Microseconds of STATS are shown as seconds, under names that end with _total."""
    stats = [row("STATS", database="app", total_xact_count=7, total_query_time=1_500_000)]
    found = samples(Found({"STATS": stats}, 0))
    assert found["pgbouncer_stats_sql_transactions_pooled_total", ("app",)] == 7
    assert found["pgbouncer_stats_queries_duration_seconds_total", ("app",)] == 1.5


def test_strange_names_are_quoted() -> None:
    """A name of a database can hold anything that the format gives a meaning to."""
    name = 'a"b\\c\nd'
    found = samples(Found({"STATS": [row("STATS", database=name, total_xact_count=1)]}, 0))
    assert found["pgbouncer_stats_sql_transactions_pooled_total", (name,)] == 1


def test_lists_and_the_rest() -> None:
    """Each row of SHOW LISTS is a metric; the page says what it lacks."""
    found = samples(Found({"LISTS": [("used_clients", 12)]}, 2))
    assert found["pgbouncer_used_clients", ()] == 12
    assert found["pgshoal_workers_missing", ()] == 2
    assert found["pgbouncer_up", ()] == 1


def test_workers() -> None:
    """A number that is being replaced has two processes: its clients are added, and it is up if one serves."""
    workers = [
        row("WORKERS", worker=0, state="draining", clients=3, cpu="50.0", restarts=1),
        row("WORKERS", worker=0, state="starting", clients=1, cpu="25.0", restarts=1),
        row("WORKERS", worker=1, state="down", clients=0, cpu=None, restarts=4),
    ]
    found = samples(Found({"WORKERS": workers}, 0))
    assert found["pgshoal_worker_up", ("0",)] == 1
    assert found["pgshoal_worker_up", ("1",)] == 0
    assert found["pgshoal_worker_clients", ("0",)] == 4
    assert found["pgshoal_worker_cpus", ("0",)] == 0.75
    assert found["pgshoal_worker_restarts_total", ("0",)] == 1
    assert found["pgshoal_worker_restarts_total", ("1",)] == 4


def test_openmetrics_for_who_asks() -> None:
    """The Accept header of the scraper decides on the format."""
    found = Found({}, 0)
    assert render(found, "")[1].startswith("text/plain")
    body, content_type = render(found, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
