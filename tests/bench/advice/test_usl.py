"""The scaling law is found again in rates that follow it, with as much doubt as the runs leave."""

from __future__ import annotations

import math

import pytest

from pgshoal.bench.advice.usl import SCATTER_LEAST, Law, fit


def exactly(law: Law, *numbers: int) -> dict[int, tuple[float, ...]]:
    """Rates without any scatter."""
    return {n: (law.rate(n),) for n in numbers}


@pytest.mark.parametrize("law", [Law(45_000), Law(45_000, 0.1), Law(45_000, 0, 0.02), Law(45_000, 0.05, 0.01)])
def test_exact_rates_give_the_law_back(law: Law) -> None:
    """With and without contention and coherence."""
    found = fit(exactly(law, 1, 2, 4, 8)).law
    assert found.one == pytest.approx(law.one, rel=1e-6)
    assert [found.sigma, found.kappa] == pytest.approx([law.sigma, law.kappa], abs=1e-9)


def test_parameters_are_never_negative() -> None:
    """Rates that grow faster than in proportion are taken as scatter."""
    found = fit({1: (100.0,), 2: (230.0,), 4: (480.0,)})
    assert (found.law.sigma, found.law.kappa) == (0, 0)
    assert all(one.sigma >= 0 and one.kappa >= 0 and one.one > 0 for one in found.draws)


def test_the_peak_is_where_the_rate_is_highest() -> None:
    """Coherence bends the curve down; without it there is no peak."""
    law = Law(100, 0.04, 0.015)
    assert law.peak == pytest.approx(8)
    assert law.rate(8) > max(law.rate(7), law.rate(9))
    assert (Law(100, 0.1).peak, Law(100, 1.5).peak) == (math.inf, 1)


def test_few_sizes_say_so() -> None:
    """One size tells nothing about scaling, two nothing about coherence."""
    law = Law(100, 0.05, 0.01)
    one, two, three, four = (fit(exactly(law, *numbers)) for numbers in ((2,), (1, 2), (1, 2, 4), (1, 2, 4, 8)))
    assert not one.scales
    assert "only one number" in one.caution
    assert two.scales
    assert two.law.kappa == 0
    assert "only two numbers" in two.caution
    assert "three numbers" in three.caution
    assert four.caution == ""


def test_the_interval_holds_the_truth_and_grows_with_scatter() -> None:
    """Repeats that agree leave less doubt than repeats that do not; there is always some."""
    law = Law(1000, 0.08)
    calm = {n: tuple(law.rate(n) * (1 + shift) for shift in (-0.01, 0, 0.01)) for n in (1, 2, 4)}
    wild = {n: tuple(law.rate(n) * (1 + shift) for shift in (-0.2, 0, 0.2)) for n in (1, 2, 4)}
    narrow, wide = (fit(rates).interval(lambda one: one.gain(4)) for rates in (calm, wild))
    assert narrow.low < law.gain(4) < narrow.high
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert fit(calm).scatter == SCATTER_LEAST
    assert fit(wild).scatter == pytest.approx(0.2, rel=0.05)


def test_the_same_rates_give_the_same_interval() -> None:
    """The draws are of a fixed seed."""
    rates = {1: (100.0, 102.0), 2: (180.0,), 4: (300.0,)}
    assert fit(rates).interval(lambda one: one.gain(4)) == fit(rates).interval(lambda one: one.gain(4))


def test_no_rates_are_an_error() -> None:
    """Runs without transactions do not count."""
    with pytest.raises(ValueError, match="no rates"):
        fit({1: (0.0,), 2: ()})
