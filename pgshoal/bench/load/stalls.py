"""Whether a load stood still: pauses, transactions that took very long, and slices of time with a low rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgshoal.bench.load.logs import Span, Transactions

SLICE_S: Final = 0.5
#: A slice of so few transactions in the median may have none by chance.
SLICE_FEW: Final = 50


def stalls(everything: Transactions, span: Span, *, each_for_itself: bool = False) -> Mapping[str, float]:
    """Figures for the check `stall`, from the whole log: a transaction open at the interval's end is logged later.

    Seconds count from the interval's beginning. With `each_for_itself` a transaction has a connection of its own, and
    what a single one had to wait for a connection is no sign of a stall. Nothing where nothing was logged.
    """
    if not len(everything):
        return {}
    found = {**pauses(everything, span), **slices(everything, span)}
    return found if each_for_itself else {**found, **longest(everything, span)}


def pauses(everything: Transactions, span: Span) -> Mapping[str, float]:
    """The longest time in which no transaction ended, if some of it lies in the interval; beside it the usual time."""
    ends = np.sort(everything.ended_us) / 1e6
    if ends[-1] < span.ended_s:
        ends = np.append(ends, span.ended_s)
    gaps = np.diff(ends)
    inside = (ends[1:] > span.began_s) & (ends[:-1] < span.ended_s)
    if not inside.any():
        return {}
    at = int(np.argmax(np.where(inside, gaps, 0)))
    return {
        "pause_s": float(gaps[at]),
        "pause_at_s": float(ends[at] - span.began_s),
        "pause_usual_s": float(np.median(gaps)),
    }


def longest(everything: Transactions, span: Span) -> Mapping[str, float]:
    """The longest transaction that was open at some time of the interval; beside it the usual time."""
    taken, ends = everything.latency_us / 1e6, everything.ended_us / 1e6
    inside = (ends > span.began_s) & (ends - taken < span.ended_s)
    if not inside.any():
        return {}
    at = int(np.argmax(np.where(inside, taken, 0)))
    return {
        "longest_s": float(taken[at]),
        "longest_at_s": float(ends[at] - taken[at] - span.began_s),
        "longest_usual_s": float(np.median(taken)),
    }


def slices(everything: Transactions, span: Span) -> Mapping[str, float]:
    """The slowest slice of the interval as a share of the median one."""
    count = int(span.seconds / SLICE_S)
    if count < 2:
        return {}
    edges = span.began_s + SLICE_S * np.arange(count + 1)
    done = np.histogram(everything.ended_us / 1e6, edges)[0]
    if (usual := float(np.median(done))) < SLICE_FEW:
        return {}
    at = int(np.argmin(done))
    return {"slice": float(done[at]) / usual, "slice_at_s": at * SLICE_S}
