"""Stalls are found in the whole log, whether they lie inside the interval or go on beyond its end."""

from __future__ import annotations

import numpy as np
import pytest

from pgshoal.bench.load.logs import Span, Transactions
from pgshoal.bench.load.stalls import pauses, stalls

SPAN = Span(1000.0, 1003.0)


def log(*ends_s: float, taken_s: float = 0.001) -> Transactions:
    """Transactions that ended at these times after the interval's beginning, and took that long."""
    ended = np.array([round((SPAN.began_s + at) * 1e6) for at in ends_s], np.int64)
    return Transactions(ended, np.full(len(ended), round(taken_s * 1e6)), np.zeros(len(ended), np.int64))


def together(*logs: Transactions) -> Transactions:
    """One log of several threads."""
    ended, taken, lag = (
        np.concatenate([getattr(one, name) for one in logs]) for name in ("ended_us", "latency_us", "lag_us")
    )
    return Transactions(ended, taken, lag)


def steps(begin_s: float, end_s: float) -> list[float]:
    """A transaction each millisecond."""
    return [float(at) for at in np.arange(begin_s, end_s, 0.001)]


def test_a_load_that_goes_on_has_small_figures() -> None:
    """From warm-up to cool-down without a stop."""
    found = stalls(log(*steps(-1, 4)), SPAN)
    assert found["pause_s"] == pytest.approx(0.001, abs=1e-4)
    assert found["longest_s"] == found["longest_usual_s"] == 0.001
    assert found["slice"] == pytest.approx(1, abs=0.01)


def test_a_pause_inside_is_found_with_its_time() -> None:
    """Between two transactions of the interval."""
    found = stalls(log(*steps(-1, 1.2), *steps(2, 4)), SPAN)
    assert (found["pause_s"], found["pause_at_s"]) == pytest.approx((0.8, 1.2), abs=0.01)
    assert found["pause_usual_s"] == pytest.approx(0.001, abs=1e-4)


def test_a_pause_that_runs_past_the_end_is_found() -> None:
    """What was open at the end is logged in the cool-down, and its time is the whole of what it took."""
    found = stalls(together(log(*steps(-1, 2.9)), log(6, taken_s=3.1)), SPAN)
    assert (found["pause_s"], found["pause_at_s"]) == pytest.approx((3.1, 2.9), abs=0.01)
    assert (found["longest_s"], found["longest_at_s"]) == pytest.approx((3.1, 2.9), abs=0.01)


def test_a_load_that_never_goes_on_has_paused_to_the_end() -> None:
    """Nothing is logged after the stop, not even in the cool-down."""
    assert stalls(log(*steps(-1, 1)), SPAN)["pause_s"] == pytest.approx(2, abs=0.01)


def test_what_lies_outside_is_not_the_intervals() -> None:
    """A pause of the warm-up, or of the cool-down, is not measured."""
    found = stalls(log(-3, *steps(-0.5, 3.5), 9), SPAN)
    assert found["pause_s"] == pytest.approx(0.001, abs=1e-4)
    assert pauses(log(-3, -2), Span(1004.0, 1004.0)) == {}


def test_one_of_several_clients_that_hangs_is_found() -> None:
    """The others' transactions hide the pause, not how long its own took; with connections of their own it may."""
    hung = together(log(*steps(-1, 4)), log(2.5, taken_s=2))
    assert stalls(hung, SPAN)["longest_s"] == 2
    assert stalls(hung, SPAN)["longest_at_s"] == pytest.approx(0.5)
    assert "longest_s" not in stalls(hung, SPAN, each_for_itself=True)


def test_a_rate_that_falls_is_found() -> None:
    """A transaction each tenth of a second is no pause, but not the rate of before; few ones may miss a slice."""
    found = stalls(log(*steps(-1, 1), *(1 + 0.1 * n for n in range(6)), *steps(1.5, 4)), SPAN)
    assert found["slice"] == pytest.approx(0.01, abs=0.005)
    assert found["slice_at_s"] == 1
    assert "slice" not in stalls(log(*(0.1 * n for n in range(30))), SPAN)


def test_nothing_logged_has_no_figures() -> None:
    """Clients that were all refused have not stood still."""
    assert stalls(log(), SPAN) == {}
