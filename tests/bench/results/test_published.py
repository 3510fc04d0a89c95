"""Published ratios stand beside ours of the same question, once for each kind of pooler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgshoal.bench.model import Experiment, Pick, Published, Row, Target
from pgshoal.bench.results.combine import Group, gathered
from pgshoal.bench.results.published import Beside, beside
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, run_of


def row(target: Target, tps: float, clients: int = 256) -> Row:
    """One run."""
    return replace(run_of("x", target, clients=clients), figures={"tps": tps})


CELLS = gathered(
    [
        row(DIRECT, 50),
        row(PGBOUNCER, 100),
        row(replace(PGBOUNCER, processes=2), 180),
        row(PGSHOAL, 200),
        row(replace(PGSHOAL, processes=2), 300),
        row(replace(PGSHOAL, processes=2), 9999, clients=8),
    ]
)


def asked(top: Pick, bottom: Pick | None, groups: list[Group] = CELLS) -> list[Beside]:
    """Ours beside 1.5."""
    published = Published("words", 1.5, top, bottom)
    return beside(Experiment("x", "", "", lambda knobs: (), (), published=(published,)), groups)


def by_family(found: list[Beside]) -> list[Beside]:
    """In an order that does not depend on the cells'."""
    return sorted(found, key=lambda one: one.family)


def test_the_same_target_stands_on_both_sides() -> None:
    """Picks without a kind compare each family with itself: two processes with one."""
    top, bottom = (Pick("tps", where={"processes": count, "clients": 256}) for count in (2, 1))
    assert [(one.family, one.here, one.factor) for one in by_family(asked(top, bottom))] == [
        ("pgbouncer", 1.8, pytest.approx(1.2)),
        ("pgshoal", 1.5, 1.0),
    ]


def test_every_pooler_stands_beside_direct() -> None:
    """A fixed kind below: each other kind above it, and direct not over itself."""
    found = asked(Pick("tps", where={"processes": 1}), Pick("tps", "direct"))
    assert [(one.family, one.kind, one.here) for one in by_family(found)] == [
        ("pgbouncer", "pgbouncer", 2),
        ("pgshoal", "pgshoal", 4),
    ]


def test_a_kind_above_is_the_only_one() -> None:
    """A fixed kind above: one line for that kind; without a bottom the figure itself."""
    assert [one.here for one in asked(Pick("tps", "direct"), None)] == [50]


def test_what_was_not_measured_is_said() -> None:
    """A published ratio does not vanish because this run has no such cell."""
    (one,) = asked(Pick("tps", where={"processes": 8}), Pick("tps", where={"processes": 1}))
    assert (one.here, one.factor, one.family) == (None, None, "")


def test_doubtful_cells_are_marked() -> None:
    """Ours is not valid where a side has no valid run."""
    groups = gathered([replace(row(PGSHOAL, 200), invalid=("steady: no",)), row(DIRECT, 50)])
    assert [one.valid for one in asked(Pick("tps"), Pick("tps", "direct"), groups)] == [False]


def test_targets_that_differ_in_an_option_may_stand_on_both_sides() -> None:
    """Where the other side has no such target, the same kind of pooler is meant: isolated beside shared."""
    apart = replace(PGSHOAL, processes=4, options=(("isolated", "on"),))
    found = [
        replace(run_of("x", target, exports=layout), figures={"tps": value})
        for target, layout, value in (
            (apart, "isolated", 582.0),
            (replace(PGSHOAL, processes=4), "shared", 992.0),
            (replace(PGBOUNCER, processes=4), "shared", 1.0),
        )
    ]
    top, bottom = (Pick("tps", where={"exports": layout}) for layout in ("isolated", "shared"))
    (one,) = asked(top, bottom, gathered(found))
    assert one.here == pytest.approx(582 / 992)
    assert one.words == "words, pgshoal"


def test_targets_of_one_kind_keep_their_options() -> None:
    """Where two of them stand beside a published figure."""
    found = [
        replace(run_of("x", replace(PGSHOAL, options=(("engine", engine),))), figures={"tps": 1.0})
        for engine in ("epoll", "python")
    ]
    assert [one.family for one in asked(Pick("tps"), None, gathered(found))] == [
        *("pgshoal engine=epoll", "pgshoal engine=python")
    ]


def test_a_target_that_is_named_is_not_named_again() -> None:
    """The published words end with it."""
    published = Published("served, direct", 25, Pick("tps", "direct"))
    experiment = Experiment("x", "", "", lambda knobs: (), (), published=(published,))
    assert [one.words for one in beside(experiment, CELLS)] == ["served, direct"]


def test_nodes_are_of_one_family() -> None:
    """Two nodes stand over one."""
    found = [
        replace(run_of("x", replace(PGSHOAL, nodes=nodes), nodes=nodes), figures={"tps": value})
        for nodes, value in ((1, 462.0), (2, 400.0))
    ]
    top, bottom = (Pick("tps", where={"nodes": count}) for count in (2, 1))
    assert [one.here for one in asked(top, bottom, gathered(found))] == [pytest.approx(400 / 462)]


def test_direct_is_no_pooler() -> None:
    """Where nothing is said of the kind, poolers are meant."""
    assert [one.family for one in by_family(asked(Pick("tps", where={"clients": 256, "processes": 1}), None))] == [
        "pgbouncer", "pgshoal",
    ]  # fmt: skip
