"""Each check fires on a row planted just past its limit, and stays silent just before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgshoal.bench.measure.validity import CHECKS, examine, unmade
from pgshoal.bench.model import Row
from tests.bench.measure.planted import CELL, row, runs

PAST = {
    "load-free": (row(load_cores=1.81), "used 1.81 of 2 processors (limit 90%)"),
    "machine-free": (row(machine_idle=0.049), "4.9% idle (limit 5%)"),
    "postgres-free": (row(postgres_cores=3.7, machine_cores=4, pooler_cores=0.5), "3.70 of 4 processors (limit 90%)"),
    "cached": (row(blocks_read=101, blocks_hit=99_899), "read 101 blocks beside 99,899 in memory (limit 0.1%)"),
    "budget": (row(backends_max=21), "saw 21 server connections (limit 20)"),
    "samples": (row(transactions=99), "99 transactions ended in the interval (limit 100)"),
    "steal": (row(steal=0.021), "took 2.1% of the processors (limit 2%)"),
    "counts": (row(sent_in_all=10_000, commits=10_101), "sent 10,000 transactions, PostgreSQL counted 10,101"),
    "stall": (row(pause_s=0.6, pause_at_s=1.2), "no transaction ended for 0.60 s from second 1.2 on (limit 0.50 s)"),
    "alive": (row(pooler_ended=1), "1 of the pooler's processes ended (limit 0)"),
}
WITHIN = {
    "load-free": row(load_cores=1.79),
    "machine-free": row(machine_idle=0.05),
    "postgres-free": row(postgres_cores=3.5, machine_cores=4, pooler_cores=0.5),
    "cached": row(blocks_read=100, blocks_hit=99_900),
    "budget": row(backends_max=20),
    "samples": row(transactions=100),
    "steal": row(steal=0.019),
    "counts": row(sent_in_all=10_000, commits=9_900),
    "stall": row(pause_s=0.5, longest_s=1.0, slice=0.1),
    "alive": row(pooler_ended=0, postgres_ended=0),
}


def reasons(name: str, rows: list[Row]) -> list[str]:
    """What one check says about each of these rows, which are each other's peers."""
    return [" ".join(examine(one, rows, CELL, [name])) for one in rows]


def test_every_check_is_planted() -> None:
    """A check without rows of its own here is not checked itself."""
    of_repeats = {"steady", "steady-cpu"}
    assert set(CHECKS) == PAST.keys() | of_repeats == WITHIN.keys() | of_repeats


@pytest.mark.parametrize("name", PAST)
def test_a_check_fires_past_its_limit(name: str) -> None:
    """The reason names the check, the figure and the limit; the other checks have nothing to say about that figure."""
    planted, said = PAST[name]
    found = examine(planted, [planted], CELL, list(CHECKS))
    assert len(found) == 1
    assert found[0].startswith(f"{name}: ")
    assert said in found[0]


@pytest.mark.parametrize("name", WITHIN)
def test_a_check_is_silent_within_its_limit(name: str) -> None:
    """A row just inside the limit counts."""
    assert examine(WITHIN[name], [], CELL, [name]) == ()


def test_what_was_not_measured_is_not_judged() -> None:
    """PostgreSQL on another machine, a pooler of unknown processes: absent figures make no run invalid."""
    assert examine(row(), [row(), row(1)], CELL, list(CHECKS)) == ()


def test_only_the_named_checks_apply() -> None:
    """An experiment that means to fill the machine leaves that check out; a name without a check is an error."""
    full = row(machine_idle=0.0, steal=0.5)
    assert [reason.partition(":")[0] for reason in examine(full, [], CELL, ["steal"])] == ["steal"]
    with pytest.raises(KeyError):
        examine(full, [], CELL, ["stolen"])


def test_an_error_needs_no_reasons() -> None:
    """A run that failed has no figures to be judged."""
    assert examine(row(error="pgbench ended", machine_idle=0.0), [], CELL, ["machine-free"]) == ()


def test_a_busy_database_is_no_fault_of_a_direct_run_or_a_full_pooler() -> None:
    """PostgreSQL is what a direct run measures; a pooler without room is measured, whatever PostgreSQL does."""
    direct = row(kind="direct", postgres_cores=3.7, machine_cores=4, pooler_cores=0)
    full = row(postgres_cores=3.7, machine_cores=4, pooler_cores=1.9)
    assert reasons("postgres-free", [direct, full]) == ["", ""]


def test_a_full_machine_says_whether_others_filled_it() -> None:
    """Programs that have no part in the run are named where they used more than a little."""
    (hogged,) = reasons("machine-free", [row(machine_idle=0.0, other_cores=1.4)])
    assert hogged.endswith("(limit 5%), programs without a part in the run used 1.40 processors")
    assert reasons("machine-free", [row(machine_idle=0.0, other_cores=0.2)])[0].endswith("(limit 5%)")


def test_a_new_backend_may_look_into_the_catalogue() -> None:
    """A few blocks are no sign of a cold cache, however short the run."""
    assert reasons("cached", [row(blocks_read=50, blocks_hit=100)]) == [""]
    assert reasons("cached", [row(blocks_read=51, blocks_hit=100)]) != [""]


def test_counts_differ_both_ways_but_not_by_a_handful() -> None:
    """Lost transactions are as wrong as strange ones; what poolers ask on each connection is no difference."""
    assert "PostgreSQL counted 9,899" in reasons("counts", [row(sent_in_all=10_000, commits=9_899)])[0]
    assert reasons("counts", [row(sent_in_all=100, commits=120)]) == [""]
    assert reasons("counts", [row(sent_in_all=100, commits=121)]) != [""]
    assert reasons("counts", [row(sent_in_all=100, commits=128, backends_max=8)]) == [""]
    assert reasons("counts", [row(sent_in_all=100, commits=129, backends_max=8)]) != [""]


def test_a_database_that_restarted_makes_a_run_invalid() -> None:
    """PostgreSQL and the pooler are told apart."""
    assert reasons("alive", [row(postgres_ended=1)]) == ["alive: PostgreSQL ended or restarted"]


def test_a_slow_run_lies_apart_and_the_others_count() -> None:
    """One run of three that is 40 % slow is invalid, and is no reason to doubt the other two."""
    assert reasons("steady", runs(1000, 600, 1010)) == [
        "",
        "steady: tps 600.0 is 40% from the median 1,000.0 (limit 25%)",
        "",
    ]


def test_repeats_that_vary_are_all_invalid() -> None:
    """Nobody knows which of them is right."""
    assert reasons("steady", runs(800, 1000, 1200)) == ["steady: tps varies by 20.0% over 3 repeats (limit 10%)"] * 3
    assert reasons("steady", runs(910, 1000, 1090)) == ["", "", ""]


def test_one_run_cannot_be_compared() -> None:
    """Neither can the first of several, nor one beside other cells', failed, spoiled or stalled runs."""
    first = row(0, tps=1000)
    assert reasons("steady", [first]) == [""]
    others = [row(1, tps=10, key="other"), row(1, tps=10, error="x")]
    others += [row(1, tps=10, invalid=(f"{name}: so",)) for name in ("alive", "counts", "budget", "stall")]
    assert examine(first, [first, *others], CELL, ["steady"]) == ()


def test_a_slow_run_is_found_among_doubtful_ones() -> None:
    """One that stood still is the only one with an idle machine: the others are no valid runs, but witnesses."""
    slow, *others = runs(600, 1000, 1010)
    full = [replace(one, invalid=("machine-free: full",)) for one in others]
    assert reasons("steady", [slow, *full]) == ["steady: tps 600.0 is 40% from the median 1,000.0 (limit 25%)", "", ""]


def test_under_an_open_loop_the_latency_is_judged_too() -> None:
    """The rate is as asked in all of them; a quick run is no fault, nor is a millisecond more where all is quick."""

    def said(*times: float) -> list[bool]:
        rows = [row(number, tps=500, lag_mean_ms=1, p99_ms=p99) for number, p99 in enumerate(times)]
        return [bool(reason) for reason in reasons("steady", rows)]

    assert said(1963, 6.3, 33) == [True, False, False]
    assert said(6.3, 1963) == [False, True]
    assert said(33, 33, 2) == [False, False, False]
    assert said(1, 1, 9) == [False, False, False]
    assert reasons("steady", [row(0, tps=500, p99_ms=1963), row(1, tps=500, p99_ms=6.3)]) == ["", ""]


def test_exports_are_judged_beside_the_rate() -> None:
    """A steady rate of the API does not hide that one run's exports were slow."""
    rows = [row(number, tps=500, throughput_mib_s=rate) for number, rate in enumerate((900, 910, 300))]
    assert [reason[:24] for reason in reasons("steady", rows)] == ["", "", "steady: throughput_mib_s"]


def test_where_costs_are_asked_rates_may_vary() -> None:
    """What other programs leave of the machine decides the rate; the CPU time of a transaction is judged alone."""
    rates = [row(number, tps=rate, cpu_us_per_tx=12) for number, rate in enumerate((800, 1000, 1200))]
    assert reasons("steady-cpu", rates) == ["", "", ""]
    costs = [row(number, tps=1000, cpu_us_per_tx=cost) for number, cost in enumerate((12, 17, 12))]
    assert reasons("steady-cpu", costs)[1] == "steady-cpu: cpu_us_per_tx 17.0 is 42% from the median 12.0 (limit 25%)"
    assert reasons("steady-cpu", runs(1, 2)) == ["", ""]


def test_a_slow_load_may_pause() -> None:
    """Limits grow with what is usual for the load; a rate that falls to nearly nothing is a stall without a pause."""
    assert reasons("stall", [row(pause_s=3, pause_at_s=0, pause_usual_s=0.2)]) == [""]
    assert reasons("stall", [row(longest_s=4, longest_at_s=0, longest_usual_s=0.1)]) == [""]
    (said,) = reasons("stall", [row(longest_s=5.5, longest_at_s=0.5, longest_usual_s=0.1)])
    assert said == "stall: a transaction took 5.50 s from second 0.5 on (limit 5.00 s)"
    (said,) = reasons("stall", [row(slice=0.05, slice_at_s=1.5)])
    assert said == "stall: the rate fell to 5% of its median at second 1.5 (limit 10%)"


def test_a_check_that_cannot_be_made_says_so() -> None:
    """An absent figure makes no run invalid, but is told; where there is nothing to check there is nothing to tell."""
    lost = row(sent_in_all=10, invalid=("alive: PostgreSQL ended or restarted",))
    assert unmade(row(sent_in_all=10), CELL, ["counts"]) == ("counts: commits could not be had",)
    assert unmade(row(sent_in_all=10, strangers_at_work=2), CELL, ["counts"]) == (
        "counts: 2 sessions that are none of the kit's were at work in the same database",
    )
    assert unmade(row(), CELL, ["budget", "counts", "stall"]) == ("budget: backends_max could not be had",)
    assert unmade(lost, CELL, ["counts"]) == unmade(row(error="x"), CELL, ["budget"]) == ()
    assert unmade(row(), replace(CELL, budget=None), ["budget"]) == ()


def test_a_second_look_judges_alike() -> None:
    """Reasons that an earlier look at steadiness left in the rows do not take those rows out of the next."""
    rows = runs(1000, 600, 1010)
    marked = [row(1, tps=600, invalid=("steady: tps 600",)) if one.repeat == 1 else one for one in rows]
    assert reasons("steady", marked) == reasons("steady", rows)


def test_steadiness_takes_the_rate_that_a_row_has() -> None:
    """Units, or megabytes, where there are no transactions per second; none at all is not judged."""
    units = [row(number, units_per_s=rate) for number, rate in enumerate((100, 100, 50))]
    assert [bool(reason) for reason in reasons("steady", units)] == [False, False, True]
    assert reasons("steady", [row(number, cancel_ms=rate) for number, rate in enumerate((1, 9))]) == ["", ""]


def test_runs_that_did_nothing_are_not_divided_by_nothing() -> None:
    """Rates of zero have no variation; that nothing was done is for the check of samples to say."""
    assert reasons("steady", runs(0, 0)) == ["", ""]
