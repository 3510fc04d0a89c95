"""The fleet's statistics in the supervisor."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from pgshoal.config.model import Config, DatabaseConfig, Settings
from pgshoal.worker.stats import Totals
from tests.console.fleet import Head, Link
from tests.worker.stub import Lines


def head(**settings: Any) -> Head:
    """A supervisor of one database."""
    return Head(Config("test.ini", Settings(stats_period=10, **settings), {"app": DatabaseConfig("app")}), Lines())


def tell(link: Link, name: str = "app", **counts: int) -> None:
    """A worker's report."""
    link.send("totals", {"databases": {name: astuple(Totals(**counts))}})


def carried(found: Head) -> dict[str, Totals]:
    """The supervisor's part of SHOW STATS when all who live were heard."""
    return {name: Totals(*counts) for name, *counts in found.relay.figures.part(found.children)["rows"]}


def test_reports_replace_each_other_until_death() -> None:
    """Only what a dead worker has left is the supervisor's to add."""
    fleet = head()
    links = [fleet.start(), fleet.start()]
    for link in links:
        tell(link, query_count=1)
        tell(link, query_count=5)
    assert carried(fleet) == {}
    fleet.die(fleet.children[0])
    assert carried(fleet) == {"app": Totals(query_count=5)}
    tell(links[1], query_count=9)
    fleet.die(fleet.children[0])
    assert carried(fleet) == {"app": Totals(query_count=14)}


def test_only_what_has_changed_is_reported() -> None:
    """What a worker does not speak of stands; a pool that was dropped takes its counts along."""
    fleet = head()
    link = fleet.start()
    tell(link, query_count=1)
    tell(link, "pgbouncer", query_count=2)
    link.send("totals", {"databases": {"app": None, "never": None}})
    fleet.die(fleet.children[0])
    assert carried(fleet) == {"pgbouncer": Totals(query_count=2)}


def test_databases_that_are_gone() -> None:
    """Are not carried on; the console's row is no database."""
    fleet = head()
    for name in ("app", "gone", "pgbouncer"):
        tell(fleet.start(), name, query_count=1)
        fleet.die(fleet.children[0])
    assert sorted(carried(fleet)) == ["app", "pgbouncer"]


def test_a_period() -> None:
    """Ends when stats_period is over, with one line for the whole fleet, in the log and for systemd."""
    fleet = head()
    links = [fleet.start(), fleet.start()]
    for link in links:
        tell(link, query_count=50)
    figures = fleet.relay.figures
    figures.tick(109.0)
    assert fleet.log.lines == []
    figures.tick(110.0)
    assert "stats: 0 xacts/s, 10 queries/s" in fleet.log.texts()
    assert fleet.told[-1].startswith("STATUS=stats: 0 xacts/s, 10 queries/s")
    fleet.die(fleet.children[0])
    tell(links[1], query_count=60)
    figures.tick(120.0)
    assert "stats: 0 xacts/s, 1 queries/s" in fleet.log.texts()
    part = figures.part([])
    assert Totals(*part["rows"][0][1:]) == Totals(query_count=50 + 60)
    assert part["period_us"] == 10_000_000
    assert Totals(*part["deltas"][0][1:]) == Totals(query_count=10)


def test_log_stats_off() -> None:
    """The line is not logged; systemd has it all the same."""
    fleet = head(log_stats=False)
    fleet.relay.figures.tick(110.0)
    assert fleet.log.lines == []
    assert len(fleet.told) == 1


def test_another_supervisor_goes_on() -> None:
    """Nothing is lost or counted twice: not of the dead, nor of workers that live on and report again or never."""
    old = head()
    links = [old.start(), old.start(), old.start()]
    for number, link in enumerate(links):
        tell(link, query_count=10**number)
    old.die(old.children[0])
    new = head()
    new.relay.figures.adopt(old.relay.figures.export())
    new.children = []
    for generation in (2, 3):
        link = new.start()
        new.relay.died(new.children[-1])
        new.children[-1].generation = generation
        new.relay.attach(new.children[-1])
        if generation == 3:
            tell(link, query_count=101)
    assert carried(new) == {"app": Totals(query_count=1)}
    new.relay.figures.tick(110.0)
    assert "stats: 0 xacts/s, 0 queries/s" in new.log.texts()
    for child in list(new.children):
        new.die(child)
    assert carried(new) == {"app": Totals(query_count=1 + 10 + 101)}
