"""Which worker gets a new client: decisions from counts alone."""

from __future__ import annotations

from collections import Counter

from pgshoal.policy.balance import PACK_CLIENTS, Churn, Gauge, Load, Placement, diverts, least, pack


def loads(*clients: int) -> list[Load]:
    """Workers 0, 1, 2 … with so many clients each."""
    return [Load(number, count) for number, count in enumerate(clients)]


def test_least_takes_the_worker_with_the_fewest_clients() -> None:
    """One client more than the least loaded worker is reason enough to hand over while there are few."""
    assert least(loads(1, 0, 1), 0) == 1
    assert least(loads(3, 1, 0), 0) == 2


def test_equal_workers_keep_what_they_accept() -> None:
    """A tie, and being the least loaded itself, leave the client where the kernel put it."""
    assert least(loads(2, 2, 2), 1) == 1
    assert least(loads(0, 5), 0) == 0
    assert least([], 3) == 3


def test_many_clients_allow_a_small_difference() -> None:
    """With 64 clients a difference of 4 is let pass and one of 5 is not."""
    assert least(loads(64, 60), 0) == 0
    assert least(loads(64, 59), 0) == 1


def test_a_worker_that_may_not_take_clients_places_all_of_them() -> None:
    """One that is missing in the list hands over whatever it is given."""
    assert least([Load(1, 50)], 0) == 1


def test_pack_fills_one_worker_before_the_next() -> None:
    """The lowest number with room gets the client, whoever accepted it."""
    assert pack(loads(0, 0, 0), 2) == 0
    assert pack(loads(PACK_CLIENTS - 1, 0, 0), 2) == 0
    assert pack(loads(PACK_CLIENTS, 3, 0), 2) == 1


def test_pack_passes_over_a_busy_worker() -> None:
    """A worker without CPU to spare counts as full."""
    assert pack([Load(0, 1, busy=True), Load(1, 0)], 0) == 1


def test_pack_is_least_when_all_are_full() -> None:
    """Beyond the last worker's fill clients are spread evenly."""
    assert pack([Load(0, 40), Load(1, 20, busy=True), Load(2, 30)], 0) == 1


def test_who_looks_at_each_client() -> None:
    """kernel never does, nor does a lonely worker; least and pack do until clients come and go fast."""
    assert not diverts("kernel", loads(9, 0), 0, churning=False)
    assert not diverts("least", loads(9), 0, churning=False)
    assert diverts("least", loads(0, 0), 0, churning=False)
    assert not diverts("least", loads(8, 0), 0, churning=True)
    assert diverts("pack", loads(0, 0), 0, churning=False)
    assert not diverts("pack", loads(7, 0), 0, churning=True)


def test_pack_looks_at_clients_who_come_and_go_fast_where_they_will_not_stay() -> None:
    """Only the worker that is being filled takes them unseen, and only until it is half full."""
    assert diverts("pack", loads(7, 0), 1, churning=True)
    assert diverts("pack", loads(8, 0), 0, churning=True)


def test_churn_does_not_hide_a_heap() -> None:
    """Even when clients come and go fast, a worker far above the least loaded one hands over."""
    assert diverts("least", loads(9, 0), 0, churning=True)
    assert diverts("least", loads(100, 70), 0, churning=True)
    assert not diverts("least", loads(100, 76), 0, churning=True)


def test_a_burst_is_no_churn() -> None:
    """Clients who come and stay are no churn, however many."""
    churn = Churn()
    churn.note(1_000_000, 0, 0)
    churn.note(1_333_000, 500, 500)
    assert not churn.found


def test_short_visits_are_churn_until_they_stop() -> None:
    """Clients that stay for less than a second are; the finding lasts until they stay for more than two."""
    churn = Churn()
    churn.note(1_000_000, 0, 10)
    churn.note(2_000_000, 11, 10)
    assert churn.found
    churn.note(3_000_000, 17, 10)
    assert churn.found
    churn.note(4_000_000, 22, 10)
    assert not churn.found


def test_a_few_that_leave_are_no_churn() -> None:
    """Four ends in a second are nothing, even on an empty worker."""
    churn = Churn()
    churn.note(1_000_000, 0, 0)
    churn.note(2_000_000, 4, 0)
    assert not churn.found


def test_a_gauge_reads_the_share_of_a_window() -> None:
    """70 % of a CPU is busy, less is not."""
    gauge = Gauge()
    gauge.note(10_000_000, 5_000_000)
    assert not gauge.busy
    gauge.note(10_200_000, 5_140_000)
    assert gauge.busy
    gauge.note(10_400_000, 5_270_000)
    assert not gauge.busy


def test_a_gauge_is_read_in_windows() -> None:
    """Looks that follow each other closely learn nothing; after a long silence the first look only begins a window."""
    gauge = Gauge()
    gauge.note(10_000_000, 0)
    assert not gauge.due(10_099_999)
    assert gauge.due(10_100_000)
    gauge.note(12_000_000, 2_000_000)
    assert not gauge.busy


def test_a_burst_in_one_look_is_spread() -> None:
    """Decisions count at once: forty clients that arrive together at one worker end up ten on each."""
    placement = Placement()
    placement.read(0, loads(0, 0, 0, 0))
    placed = Counter(placement.place("least", 1) for _ in range(40))
    assert set(placed.values()) == {10}


def test_counts_are_used_for_a_moment_only() -> None:
    """With four workers for a millisecond; what was placed must stand in the next counts by itself."""
    placement = Placement()
    assert placement.stale(1_000)
    placement.read(1_000, loads(1, 0, 1, 1))
    assert placement.place("least", 0) == 1
    assert not placement.stale(1_999)
    assert placement.stale(2_000)
    placement.read(2_000, loads(1, 1, 1, 0))
    assert placement.place("least", 0) == 3


def test_a_worker_whose_box_is_full_is_passed_over() -> None:
    """Until the next look it gets nobody."""
    placement = Placement()
    placement.read(0, loads(9, 0, 1))
    placement.forget(1)
    assert placement.place("least", 0) == 2


def test_pack_counts_its_own_decisions() -> None:
    """Twenty clients that arrive together fill the first worker and begin the second."""
    placement = Placement()
    placement.read(0, loads(0, 0, 0))
    placed = Counter(placement.place("pack", 2) for _ in range(20))
    assert placed == {0: PACK_CLIENTS, 1: 20 - PACK_CLIENTS}
