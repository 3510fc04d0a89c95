"""Named rules that say why a run's figures do not count; each reason gives the figure and the limit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgshoal.bench.model import Cell, Row

#: Why the row does not count, or an empty text. The rows are those of the same experiment, the row itself may be there.
Check = Callable[[Row, Sequence[Row], Cell], str]

BUSY: Final = 0.90  # of what a generator's threads, a server's host or a pooler's processes can do
IDLE_LEAST: Final = 0.05
OTHERS_FEW: Final = 0.2  # processors: what the system does for everybody
STEAL_MOST: Final = 0.02
READ_MOST: Final = 0.001  # of all blocks
READ_FEW: Final = 50  # of the catalogue, by new backends
SAMPLES_LEAST: Final = 100
COUNTS_APART: Final = 0.01
COUNTS_FEW: Final = 20  # what poolers and pgbench ask for themselves
VARIATION_MOST: Final = 0.10
OUTLIER: Final = 0.25
RATES: Final = ("tps", "units_per_s", "throughput_mib_s")


def load_free(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """The load generator has to wait for the target, not the target for it."""
    used = row.figures.get("load_cores")
    if used is None or used < BUSY * cell.load.generators:
        return ""
    return f"the load generator used {used:.2f} of {cell.load.generators} processors (limit {BUSY:.0%})"


def machine_free(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Where nothing is idle, load, pooler and PostgreSQL fight for processors."""
    idle = row.figures.get("machine_idle")
    if idle is None or idle >= IDLE_LEAST:
        return ""
    others = row.figures.get("other_cores", 0.0)
    who = f", programs without a part in the run used {others:.2f} processors" if others > OTHERS_FEW else ""
    return f"the machine was {idle:.1%} idle (limit {IDLE_LEAST:.0%}){who}"


def postgres_free(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """A pooler with room left is not what was measured when PostgreSQL fills its host."""
    used, cores = row.figures.get("postgres_cores"), row.figures.get("machine_cores")
    pooler = row.figures.get("pooler_cores")
    if row.kind == "direct" or used is None or cores is None or pooler is None:
        return ""
    if used < BUSY * cores or pooler >= BUSY * row.processes:
        return ""
    return f"PostgreSQL used {used:.2f} of {cores:.0f} processors (limit {BUSY:.0%}), the pooler {pooler:.2f}"


def cached(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """A read-only load is measured from memory."""
    read, hit = row.figures.get("blocks_read", 0.0), row.figures.get("blocks_hit", 0.0)
    if read <= max(READ_MOST * (read + hit), READ_FEW):
        return ""
    return f"PostgreSQL read {read:,.0f} blocks beside {hit:,.0f} in memory (limit {READ_MOST:.1%})"


def budget(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """More server connections than allowed are an unfair help."""
    seen = row.figures.get("backends_max")
    if seen is None or cell.budget is None or seen <= cell.budget:
        return ""
    return f"PostgreSQL saw {seen:.0f} server connections (limit {cell.budget})"


def samples(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Percentiles of a handful say nothing."""
    count = row.figures.get("transactions")
    if count is None or count >= SAMPLES_LEAST:
        return ""
    return f"{count:.0f} transactions ended in the interval (limit {SAMPLES_LEAST})"


def steal(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Another guest's work is not to be seen from here, but what it takes is."""
    share = row.figures.get("steal")
    if share is None or share < STEAL_MOST:
        return ""
    return f"other guests took {share:.1%} of the processors (limit {STEAL_MOST:.0%})"


def counts(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """The kit and PostgreSQL count the same transactions."""
    ours, theirs = row.figures.get("sent_in_all"), row.figures.get("commits")
    few = COUNTS_FEW + row.figures.get("backends_max", 0.0)  # a pooler sets parameters once on each connection
    if ours is None or theirs is None or abs(theirs - ours) <= max(COUNTS_APART * ours, few):
        return ""
    return f"the kit sent {ours:,.0f} transactions, PostgreSQL counted {theirs:,.0f} (limit {COUNTS_APART:.0%})"


def steady(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Repeats agree. One that lies apart does not count, and is no reason to doubt the others."""
    name = next((name for name in RATES if name in row.figures), "")
    rates = [one.figures[name] for one in repeats(row, peers) if name in one.figures]
    if len(rates) < 2 or not (median := statistics.median(rates)):
        return ""
    apart = abs(row.figures[name] / median - 1)
    if apart > OUTLIER:
        return f"{name} {row.figures[name]:,.1f} is {apart:.0%} from the median {median:,.1f} (limit {OUTLIER:.0%})"
    near = [rate for rate in rates if abs(rate / median - 1) <= OUTLIER]
    variation = statistics.stdev(near) / statistics.fmean(near) if len(near) > 1 else 0.0
    if variation <= VARIATION_MOST:
        return ""
    return f"{name} varies by {variation:.1%} over {len(near)} repeats (limit {VARIATION_MOST:.0%})"


def repeats(row: Row, peers: Sequence[Row]) -> list[Row]:
    """The runs of the same cell that count as far as other checks say, the row itself among them."""
    others = [one for one in peers if one.key == row.key and one.repeat != row.repeat and not one.error]
    return [row, *(one for one in others if all(reason.startswith("steady:") for reason in one.invalid))]


def alive(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Who ends, or starts anew, is not measured."""
    reasons = ["PostgreSQL ended or restarted"] if row.figures.get("postgres_ended") else []
    if count := row.figures.get("pooler_ended"):
        reasons.append(f"{count:.0f} of the pooler's processes ended (limit 0)")
    return ", ".join(reasons)


CHECKS: Final[Mapping[str, Check]] = {
    "load-free": load_free,
    "machine-free": machine_free,
    "postgres-free": postgres_free,
    "cached": cached,
    "budget": budget,
    "samples": samples,
    "steal": steal,
    "counts": counts,
    "steady": steady,
    "alive": alive,
}


def examine(row: Row, peers: Sequence[Row], cell: Cell, names: Sequence[str]) -> tuple[str, ...]:
    """Reasons as `name: text`, by the named checks; none for a row that is an error anyway. KeyError: no such check."""
    if row.error:
        return ()
    found = ((name, CHECKS[name](row, peers, cell)) for name in names)
    return tuple(f"{name}: {reason}" for name, reason in found if reason)
