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
TAIL_TIMES: Final = 5.0
TAIL_FEW_MS: Final = 10.0  # what one turn of a scheduler more or less makes
PAUSE_MOST_S: Final = 0.5
PAUSE_TIMES: Final = 20.0
LONGEST_MOST_S: Final = 1.0
LONGEST_TIMES: Final = 50.0
SLICE_LEAST: Final = 0.1


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


def stall(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """A load that stands still for a moment, or a part of it, is another thing than a slow one."""
    facts = row.figures
    pause, longest, slowest = (facts.get(name, at) for name, at in (("pause_s", 0.0), ("longest_s", 0.0), ("slice", 1)))
    if pause > (most := max(PAUSE_MOST_S, PAUSE_TIMES * facts.get("pause_usual_s", 0.0))):
        return f"no transaction ended for {pause:.2f} s from second {facts['pause_at_s']:.1f} on (limit {most:.2f} s)"
    if longest > (most := max(LONGEST_MOST_S, LONGEST_TIMES * facts.get("longest_usual_s", 0.0))):
        at_s = facts["longest_at_s"]
        return f"a transaction took {longest:.2f} s from second {at_s:.1f} on (limit {most:.2f} s)"
    if slowest < SLICE_LEAST:
        at_s = facts["slice_at_s"]
        return f"the rate fell to {slowest:.0%} of its median at second {at_s:.1f} (limit {SLICE_LEAST:.0%})"
    return ""


def steady(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """Repeats agree. One that lies apart does not count, and is no reason to doubt the others."""
    others = repeats(row, peers)
    main = next((name for name in RATES if name in row.figures), "")
    names = dict.fromkeys(name for name in (main, "throughput_mib_s") if name in row.figures)
    return next(filter(None, [*(apart(name, row, others) for name in names), tail(row, others)]), "")


def steady_cpu(row: Row, peers: Sequence[Row], cell: Cell) -> str:
    """As `steady`, where the rate may be what a full machine leaves and the cost of a transaction is what is asked."""
    return apart("cpu_us_per_tx", row, repeats(row, peers)) if "cpu_us_per_tx" in row.figures else ""


def apart(name: str, row: Row, others: Sequence[Row]) -> str:
    """How far a rate is from those of the other repeats, or how far all of them vary."""
    rates = [row.figures[name], *(one.figures[name] for one in others if name in one.figures)]
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


def tail(row: Row, others: Sequence[Row]) -> str:
    """Under an open loop the rate is given: what happens is seen in the latency. Of two, the quicker is believed."""
    if "lag_mean_ms" not in row.figures or "p99_ms" not in row.figures:
        return ""
    p99 = row.figures["p99_ms"]
    median = statistics.median_low([p99, *(one.figures["p99_ms"] for one in others if "p99_ms" in one.figures)])
    if p99 <= max(TAIL_TIMES * median, median + TAIL_FEW_MS):
        return ""
    return f"p99_ms {p99:,.1f} is {p99 / median:.0f} times the median {median:,.1f} (limit {TAIL_TIMES:.0f})"


def repeats(row: Row, peers: Sequence[Row]) -> list[Row]:
    """The other runs of the same cell that a run is compared with: doubtful ones too, but no spoiled or stalled ones.

    Else a pooler that stands still in one run could leave it the only one with an idle machine, with nobody to compare.
    """
    others = (one for one in peers if one.key == row.key and one.repeat != row.repeat)
    return [one for one in others if not (one.spoiled or one.fails("stall"))]


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
    "stall": stall,
    "steady": steady,
    "steady-cpu": steady_cpu,
    "alive": alive,
}


def examine(row: Row, peers: Sequence[Row], cell: Cell, names: Sequence[str]) -> tuple[str, ...]:
    """Reasons as `name: text`, by the named checks; none for a row that is an error anyway. KeyError: no such check."""
    if row.error:
        return ()
    found = ((name, CHECKS[name](row, peers, cell)) for name in names)
    return tuple(f"{name}: {reason}" for name, reason in found if reason)


#: The figure without which a check says nothing.
NEEDS: Final = {
    "load-free": "load_cores",
    "machine-free": "machine_idle",
    "budget": "backends_max",
    "steal": "steal",
    "counts": "commits",
    "alive": "postgres_ended",
}


def unmade(row: Row, cell: Cell, names: Sequence[str]) -> tuple[str, ...]:
    """Checks that had nothing to look at, as `name: text`: silence is not consent."""
    moot = {"budget": cell.budget is None, "counts": "sent_in_all" not in row.figures or row.lost}
    lacking = [name for name in names if name in NEEDS and NEEDS[name] not in row.figures and not moot.get(name)]
    if row.error:
        return ()
    return tuple(f"{name}: {reason_of(row, NEEDS[name])}" for name in lacking)


def reason_of(row: Row, figure: str) -> str:
    """Why a figure could not be had, as far as is known."""
    if figure == "commits" and (count := row.figures.get("strangers_at_work")):
        return f"{count:.0f} sessions that are none of the kit's were at work in the same database"
    return f"{figure} could not be had"
