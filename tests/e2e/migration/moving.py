"""A site on PgBouncer, then on pgshoal: the run and the judgement that all its tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from pgshoal.bench.targets import pgbouncer
from tests.e2e.migration.site import SITES, Site
from tests.e2e.migration.transcript import Expected, Transcript, differing
from tests.support.invoking import Invocations

Script = Callable[[Site], Transcript]


def moved(
    name: str, script: Script, facts: Mapping[str, object], engine: str, tables_of_servers: Sequence[str] = ()
) -> None:
    """Runs the script on PgBouncer and on `pgshoal-bouncer`, in the same folder; fails on any fault.

    `tables_of_servers`: chapters that show which server is where; with them it runs on two workers, too, without them.
    """
    try:
        pgbouncer.find()
    except pgbouncer.NoPgBouncer as missing:
        pytest.skip(f"nothing to compare with: {missing}")
    place = Invocations.in_a_folder()
    try:
        theirs = heard(Site(name, place, "PgBouncer", engine, facts), script)
        ours = heard(Site(name, place, "pgshoal-bouncer", engine, facts), script)
        judge(name, "pgshoal-bouncer", theirs, ours)
        if tables_of_servers:
            fleet = heard(Site(name, place, "pgshoal run", engine, facts), script)
            judge(name, "pgshoal run", *(each.of_any_fleet(tables_of_servers) for each in (theirs, fleet)))
    finally:
        place.remove()


def heard(site: Site, script: Script) -> Transcript:
    """One run, of which nothing stays but what was written down."""
    try:
        return script(site)
    finally:
        site.remove()


def judge(name: str, program: str, theirs: Transcript, ours: Transcript) -> None:
    """Fails unless they differ exactly as the file says, and the page of differences has it."""
    expected = Expected(SITES / name / f"{program}.differences")
    assert expected.undocumented() == []
    faults = expected.faults(differing(theirs, ours))
    assert faults == [], "\n".join([f"{name} on {program}:", *faults])
