"""Every declaration can be told apart, asks for what exists, and can be laid out as a matrix."""

from __future__ import annotations

import pytest

from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.knobs import KNOBS, resolve
from pgshoal.bench.measure.validity import CHECKS
from pgshoal.bench.model import Experiment
from pgshoal.bench.run.matrix import plan

EVERY = [one for some in EXPERIMENTS.values() for one in some]


def test_names_are_unique() -> None:
    """Rows know their experiment by its name alone."""
    assert len({one.name for one in EVERY}) == len(EVERY)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("experiment", EVERY, ids=lambda one: one.name)
def test_a_declaration_makes_a_matrix(experiment: Experiment, quick: bool) -> None:
    """Its knobs and checks exist, and its cells have keys and names of their own in both sizes."""
    knobs = resolve({}, {}, quick)
    assert set(experiment.knobs) <= set(KNOBS)
    assert set(experiment.checks) <= set(CHECKS)
    made = plan(experiment, knobs, 1)
    assert {one.cell.experiment for one in made} <= {experiment.name}
    assert made or quick


def test_direct_runs_come_before_pooled_ones_wherever_both_are_asked_for() -> None:
    """PostgreSQL has seen no pooler when it is measured by itself."""
    for name in ("connect", "burst", "backends", "churn", "ceiling"):
        kinds = [one.cell.target.kind for one in plan(EXPERIMENTS[name][0], resolve({}, {}, True), 1)]
        assert kinds.index("direct") == 0
        assert kinds[kinds.count("direct") :].count("direct") == 0


def test_every_knob_belongs_to_an_experiment() -> None:
    """None is left over that nobody's help shows."""
    looked_at = {knob for one in EVERY for knob in one.knobs}
    assert {name for name, knob in KNOBS.items() if not knob.common} == looked_at
