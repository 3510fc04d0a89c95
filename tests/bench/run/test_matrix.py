"""The matrix is drawn from its seed, in blocks and phases, and knows what is done and what is not wanted."""

from __future__ import annotations

import pytest

from pgshoal.bench.model import Target
from pgshoal.bench.run.matrix import open_runs, plan, stages
from tests.bench.run.scripted import DIRECT, POOLED, cell, experiment, knobs

FLEETS = tuple(Target("pgshoal", count) for count in range(1, 9))
MANY = experiment("many", *(cell("many", target) for target in FLEETS))


def test_the_seed_alone_decides_the_order() -> None:
    """The same seed gives the same order, however the cells were declared; another seed another order."""
    backwards = experiment("many", *(cell("many", target) for target in reversed(FLEETS)))
    order = [one.mark for one in plan(MANY, knobs(repeats="2"), 1)]
    assert order == [one.mark for one in plan(backwards, knobs(repeats="2"), 1)]
    assert order != [one.mark for one in plan(MANY, knobs(repeats="2"), 2)]
    assert sorted(order) == sorted((one.key, repeat) for one in MANY.cells(knobs()) for repeat in (0, 1))


def test_each_repeat_is_a_block_in_an_order_of_its_own() -> None:
    """All cells are run once before any is run again, and the second time in another order."""
    made = plan(MANY, knobs(repeats="2"), 1)
    first, second = made[: len(FLEETS)], made[len(FLEETS) :]
    assert {one.repeat for one in first} == {0}
    assert {one.repeat for one in second} == {1}
    assert [one.cell.key for one in first] != [one.cell.key for one in second]
    assert [one.order for one in made] == list(range(2 * len(FLEETS)))


def test_lower_phases_come_first() -> None:
    """All repeats of a phase are made before the next phase begins."""
    cells = [cell("two", FLEETS[0], phase=1), cell("two", DIRECT, phase=0), cell("two", FLEETS[1], phase=1)]
    made = plan(experiment("two", *cells), knobs(repeats="2"), 3)
    assert [one.cell.phase for one in made] == [0, 0, 1, 1, 1, 1]


def test_figures_that_do_not_scatter_are_taken_once() -> None:
    """An experiment may limit the repeats."""
    once = experiment("once", cell("once", POOLED), repeats_most=1)
    assert len(plan(once, knobs(repeats="3"), 1)) == 1
    often = experiment("often", cell("often", POOLED), repeats_most=5)
    assert len(plan(often, knobs(repeats="2"), 1)) == 2


def test_figures_that_mean_little_alone_are_taken_several_times() -> None:
    """In a quick run, too; who asks for a number of repeats gets that number."""
    thrice = experiment("thrice", cell("thrice", POOLED), repeats_least=3)
    assert len(plan(thrice, knobs(), 1)) == 3
    for asked in (1, 5):
        assert len(plan(thrice, knobs(repeats=str(asked)), 1)) == asked


def test_cells_that_cannot_be_told_apart_are_a_mistake() -> None:
    """Rows of two cells with one key would be mixed."""
    with pytest.raises(ValueError, match="twice: two of its cells"):
        plan(experiment("twice", cell("twice", POOLED), cell("twice", POOLED)), knobs(), 1)


def test_only_the_targets_asked_for_are_run() -> None:
    """`targets` leaves out kinds of targets."""
    both = experiment("both", cell("both", DIRECT), cell("both", POOLED))
    assert [one.cell.target for one in plan(both, knobs(targets="direct"), 1)] == [DIRECT]


def test_a_pooler_by_address_takes_the_place_of_a_plain_one() -> None:
    """It gets the runs of one process without TLS, and none of our settings, as nobody could apply them."""
    tls = cell("any", Target("pgshoal", options=(("engine", "epoll"),)), variant={"clients": 2}, tls="both")
    plain = cell("any", POOLED, variant={"clients": 1}, settings={"default_pool_size": 5}, budget=5)
    whole = experiment("any", cell("any", DIRECT), plain, tls, cell("any", FLEETS[3]))
    made = plan(whole, knobs(targets="other:6432", pooler_port="7000"), 1)
    assert {one.cell.target.label for one in made} == {"other:6432", "127.0.0.1:7000"}
    assert [(dict(one.cell.settings), one.cell.budget, one.cell.variant) for one in made] == [
        ({}, None, {"clients": 1})
    ] * 2


def test_what_is_done_is_left_out() -> None:
    """A resumed run makes the others, in the order they would have had."""
    made = plan(MANY, knobs(), 1)
    done = {made[0].mark, made[5].mark}
    assert [one.order for one in open_runs(made, done)] == [1, 2, 3, 4, 6, 7]


def test_neighbours_on_the_same_server_go_through_their_phases_together() -> None:
    """All direct runs come before pooled ones there; an experiment that wants another server stays by itself."""
    harness = {"max_connections": "25"}
    pairs = [
        (name, [cell(name, DIRECT, phase=0), cell(name, POOLED, phase=1)], server)
        for name, server in (("a", harness), ("b", harness), ("c", {}))
    ]
    made = [(one := experiment(name, *cells, server=server), plan(one, knobs(), 1)) for name, cells, server in pairs]
    seen = [(stage.experiment.name, stage.runs[0].cell.phase, stage.last) for stage in stages(made)]
    assert seen == [
        ("a", 0, False),
        ("b", 0, False),
        ("a", 1, True),
        ("b", 1, True),
        ("c", 0, False),
        ("c", 1, True),
    ]
