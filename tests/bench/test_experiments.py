"""The declared experiments carry the promised bounds and are chosen by name."""

from __future__ import annotations

import pytest

from pgshoal.bench.old_experiments import EXPERIMENTS, Metric, chosen
from pgshoal.bench.runners import RUNNERS


def test_names_are_unique_and_every_kind_has_a_runner() -> None:
    """Each experiment can be picked alone and run."""
    assert len({e.name for e in EXPERIMENTS}) == len(EXPERIMENTS)
    assert {e.kind for e in EXPERIMENTS} == set(RUNNERS)


def test_the_promises_are_declared() -> None:
    """The bounds of 16 and 256 clients, of TLS and of new connections stand where the table takes them from."""
    bounds = {e.name: e.metrics[0].targets for e in EXPERIMENTS}
    assert bounds["simple-16"]["uring"] == bounds["prepared-16"]["uring"] == 0.80
    assert bounds["simple-256"]["uring"] == bounds["prepared-256"]["uring"] == 0.65
    assert bounds["tls"]["uring"] == 0.85
    assert bounds["churn-trust"]["uring"] == bounds["churn-scram"]["uring"] == 1.2
    assert bounds["idle"]["uring"] == 2048


def test_experiments_are_chosen_by_the_beginning_of_their_name() -> None:
    """A full name takes that one, a prefix all that start so; an unknown one is an error that lists what there is."""
    assert [e.name for e in chosen(("churn",), False)] == ["churn-trust", "churn-scram"]
    assert [e.name for e in chosen(("simple-1", "tls"), False)] == ["simple-1", "tls"]
    assert chosen((), False) == EXPERIMENTS
    assert 0 < len(chosen((), True)) < len(EXPERIMENTS)
    with pytest.raises(ValueError, match="simple-1, "):
        chosen(("nonsense",), False)


def test_a_target_is_judged_on_ratio_or_value() -> None:
    """Lower is better unless said otherwise; absolute bounds look at the value itself."""
    assert Metric("cpu", "", {"uring": 0.8}).met("uring", 0.8, 99)
    assert Metric("cpu", "", {"uring": 0.8}).met("uring", 0.81, 99) is False
    assert Metric("speed", "", {"uring": 1.0}, higher_is_better=True).met("uring", 0.99, 99) is False
    assert Metric("memory", "", {"uring": 2048}, absolute=True).met("uring", 9.9, 2000)
    assert Metric("cpu", "", {"uring": 0.8}).met("python", 5.0, 99) is None
