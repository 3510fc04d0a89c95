"""The universal scalability law: rate(n) = rate * n / (1 + sigma*(n-1) + kappa*n*(n-1)), fitted with its uncertainty.

Gunther's law: sigma is what the processes wait for in line (contention), kappa what they have to tell each other
(coherence). With n/rate on the left it is linear in 1/rate, sigma/rate and kappa/rate, and these may not be negative.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
#: Rates scatter at least so much: the variation that careful publications report.
SCATTER_LEAST: Final = 0.03
DRAWS: Final = 2000
SEED: Final = 20
SHARE: Final = 0.9  # of the draws lie in an interval


class Interval(NamedTuple):
    """Where a figure lies in nine of ten cases, as far as the scatter of runs tells."""

    low: float
    high: float


@dataclass(frozen=True)
class Law:
    """The three parameters."""

    one: float  # the rate of one process
    sigma: float = 0.0
    kappa: float = 0.0

    def rate(self, n: float) -> float:
        """The rate of n processes."""
        return self.one * n / (1 + self.sigma * (n - 1) + self.kappa * n * (n - 1))

    def gain(self, n: int) -> float:
        """What one more than n brings, as a share of what n bring."""
        return self.rate(n + 1) / self.rate(n) - 1

    @property
    def peak(self) -> float:
        """How many processes bring most; beyond it the rate falls."""
        if not self.kappa:
            return math.inf if self.sigma < 1 else 1.0
        return math.sqrt(max(1 - self.sigma, 0.0) / self.kappa)


@dataclass(frozen=True)
class Fit:
    """The law that fits best, and laws that fit rates scattered as the measured ones are."""

    law: Law
    sizes: tuple[int, ...]  # numbers of processes that were measured
    scatter: float  # of one run's rate, relative
    draws: tuple[Law, ...]

    def interval(self, figure: Callable[[Law], float]) -> Interval:
        """Of any figure of the law."""
        low, high = np.quantile([figure(law) for law in self.draws], [(1 - SHARE) / 2, (1 + SHARE) / 2])
        return Interval(float(low), float(high))

    @property
    def scales(self) -> bool:
        """Whether there is anything about scaling in it: one size tells nothing."""
        return len(self.sizes) > 1

    @property
    def caution(self) -> str:
        """What few sizes leave open; empty with enough of them."""
        count = len(self.sizes)
        if count == 1:
            return "only one number of processes was measured: how they scale is not known"
        if count == 2:
            return "only two numbers of processes were measured: contention was fitted, coherence taken as none"
        return "three numbers of processes fix the law exactly: only repeats say how well" if count == 3 else ""


def fit(rates: Mapping[int, Sequence[float]]) -> Fit:
    """Least squares of the relative error over the rates of all runs by number of processes; ValueError without any."""
    known = {n: [rate for rate in runs if rate > 0] for n, runs in sorted(rates.items())}
    points = [(n, rate) for n, runs in known.items() for rate in runs]
    if not points:
        raise ValueError("no rates to fit")
    numbers = np.array([n for n, _ in points], float)
    measured = np.array([rate for _, rate in points])
    columns = np.stack([np.ones_like(numbers), numbers - 1, numbers * (numbers - 1)], axis=1)
    sizes = tuple(n for n, runs in known.items() if runs)
    design = columns[:, : min(len(sizes), 3)]
    law = laws(design, numbers, measured[:, None])[0]
    scatter = scattered(law, known, points, design.shape[1])
    noise = np.random.default_rng(SEED).standard_normal((len(points), DRAWS))
    modelled = np.array([law.rate(n) for n, _ in points])[:, None]
    return Fit(law, sizes, scatter, tuple(laws(design, numbers, modelled * np.exp(scatter * noise))))


def laws(design: Matrix, numbers: Matrix, rates: Matrix) -> list[Law]:
    """The best law for each column of rates: of all choices of parameters that are not zero, the one that fits best."""
    left = numbers[:, None] / rates
    weights = 1 / left.mean(axis=1)
    best = np.zeros((3, rates.shape[1]))
    misfit = np.full(rates.shape[1], np.inf)
    more = range(1, design.shape[1])
    for chosen in itertools.chain.from_iterable(itertools.combinations(more, k) for k in range(len(more) + 1)):
        using = [0, *chosen]
        found = np.linalg.lstsq(design[:, using] * weights[:, None], left * weights[:, None], rcond=None)[0]
        error = (((design[:, using] @ found - left) * weights[:, None]) ** 2).sum(axis=0)
        better = (found >= 0).all(axis=0) & (found[0] > 0) & (error < misfit)
        misfit[better] = error[better]
        best[:, better] = 0
        best[np.ix_(using, better)] = found[:, better]
    return [Law(1 / a, b / a, c / a) for a, b, c in best.T.tolist()]


def scattered(law: Law, known: Mapping[int, list[float]], points: Sequence[tuple[int, float]], free: int) -> float:
    """How far runs lie from the law and from the others of their size, the larger of both."""
    residuals = [math.log(rate / law.rate(n)) for n, rate in points]
    spare = len(points) - free
    misfit = math.sqrt(sum(one**2 for one in residuals) / spare) if spare else 0.0
    within = [statistics.stdev(runs) / statistics.fmean(runs) for runs in known.values() if len(runs) > 1]
    return max([SCATTER_LEAST, misfit, *within])
