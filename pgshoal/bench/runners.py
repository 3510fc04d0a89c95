"""How each kind of experiment is run on one started pooler, and what figures it yields."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from pgshoal.bench import stranded
from pgshoal.bench.fleets import pids
from pgshoal.bench.measure import process
from pgshoal.bench.old_experiments import MB, Experiment
from pgshoal.bench.old_stand import Stand
from pgshoal.bench.raw import RawClient
from pgshoal.demo import pgbench
from pgshoal.demo.pgbench import Report
from pgshoal.demo.pooler import START_LIMIT_S, Pooler

Figures = Mapping[str, float]
Runner = Callable[[Stand, Pooler, Experiment], Figures]
SETTLE_S = 1.0
UNREAD_S = 3.0
COPY_ROW_BYTES = 1000
COPIES = 3
PUSH_MOST = 1 << 30


def warm_up(stand: Stand, pooler: Pooler, experiment: Experiment) -> None:
    """Opens the pooler's server connections and fills the caches before anything counts."""
    wait_for_all(pooler)
    if experiment.kind == "pgbench":
        pgbench.measure(
            stand.cluster.programs["pgbench"], stand.target(pooler, experiment), (*experiment.arguments, "-T", "1")
        )
    else:
        with RawClient(pooler.host, pooler.port, experiment.user, "postgres") as client:
            client.query("select 1")
            client.drain()


def wait_for_all(pooler: Pooler) -> None:
    """A pooler accepts as soon as its first worker serves; measured is the whole fleet."""
    deadline = time.monotonic() + START_LIMIT_S
    while pooler.running and "process up" not in pooler.log_text():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {pooler.name} is up, its log: {pooler.log_text()[-1000:]}")
        time.sleep(0.05)


def run_pgbench(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """CPU of the pooler per transaction, and the latency pgbench saw.

    Where clients stay connected their logins are another experiment's subject: they are measured apart and taken off.
    """
    seconds = min(stand.sizes.seconds, experiment.longest_s)
    spent, report = spend(stand, pooler, experiment, "-T", str(seconds))
    count = report.transactions
    if "-C" not in experiment.arguments:
        logins, few = spend(stand, pooler, experiment, "-t", "1")
        spent = tuple(all_of_it - part for all_of_it, part in zip(spent, logins, strict=True))
        count -= few.transactions
    total, user, system = (part / count for part in spent)
    return {"cpu": total, "cpu user": user, "cpu system": system, "latency": report.latency_ms, "tps": report.tps}


def spend(stand: Stand, pooler: Pooler, experiment: Experiment, *until: str) -> tuple[tuple[float, ...], Report]:
    """One run of pgbench: the pooler's CPU (all, user, system) in microseconds, and what pgbench reported."""
    before, split = process.total(process.cpu_ns, *pids(pooler)), cpu_split_us(pooler)
    arguments = (*experiment.arguments, *until)
    report = pgbench.measure(stand.cluster.programs["pgbench"], stand.target(pooler, experiment), arguments)
    spent = (process.total(process.cpu_ns, *pids(pooler)) - before) / 1000
    if report.failed or not report.transactions:
        raise RuntimeError(f"pgbench: {report.transactions} transactions, {report.failed} failed")
    parts = (now - then for now, then in zip(cpu_split_us(pooler), split, strict=True))
    return (spent, *parts), report


def cpu_split_us(pooler: Pooler) -> tuple[float, float]:
    """User and system time of all processes of a pooler."""
    users, systems = zip(*map(process.cpu_split_us, process.family(*pids(pooler))), strict=True)
    return sum(users), sum(systems)


def run_copy(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """Megabytes per second that one client gets out of a COPY, and the pooler's CPU per megabyte; middle of several."""
    rows = stand.sizes.copy_mb * 1_000_000 // COPY_ROW_BYTES
    speeds, costs = [], []
    with RawClient(pooler.host, pooler.port, experiment.user, "postgres") as client:
        for _ in range(COPIES):
            before, start = process.total(process.cpu_ns, *pids(pooler)), time.monotonic()
            client.query(f"copy (select repeat('x', {COPY_ROW_BYTES - 1}) from generate_series(1, {rows})) to stdout")
            megabytes = client.drain() / 1e6
            speeds.append(megabytes / (time.monotonic() - start))
            costs.append((process.total(process.cpu_ns, *pids(pooler)) - before) / 1000 / megabytes)
    return {"throughput": statistics.median(speeds), "cpu": statistics.median(costs)}


def run_idle(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """Memory that the pooler needs for one more client which is logged in and silent."""
    before = process.total(process.rss_bytes, *pids(pooler))
    clients: list[RawClient] = []
    try:
        for _ in range(stand.sizes.idle_clients):
            clients.append(RawClient(pooler.host, pooler.port, experiment.user, "postgres"))
        time.sleep(SETTLE_S)
        after = process.total(process.rss_bytes, *pids(pooler))
    finally:
        for client in clients:
            client.close()
    return {"memory": (after - before) / len(clients), "clients": len(clients)}


def run_memory(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """Growth of the pooler's memory in the cases that tempt a pooler to buffer."""
    unread = growth(pooler, lambda: leave_unread(pooler, experiment.user))
    deaf = growth(pooler, lambda: push_at_deaf(pooler, experiment.user))
    row = growth(pooler, lambda: read_row(pooler, experiment.user))
    return {
        "unread result of 2 GB": unread[0],
        "COPY nobody reads": deaf[0],
        "row of 200 MB, at peak": row[0],
        "row of 200 MB, afterwards": row[1],
    }


def growth(pooler: Pooler, act: Callable[[], None]) -> tuple[float, float]:
    """Megabytes of growth at the peak of an act, and a moment after it."""
    for pid in process.family(*pids(pooler)):
        process.reset_peak(pid)
    before = process.total(process.rss_bytes, *pids(pooler))
    act()
    peak = process.total(process.peak_bytes, *pids(pooler))
    time.sleep(SETTLE_S)
    return (peak - before) / MB, (process.total(process.rss_bytes, *pids(pooler)) - before) / MB


def leave_unread(pooler: Pooler, user: str) -> None:
    """Asks for 2 GB and reads none of it."""
    with RawClient(pooler.host, pooler.port, user, "postgres", receive_buffer=65536) as client:
        client.query("select repeat('x', 1000000) from generate_series(1, 2000)")
        time.sleep(UNREAD_S)


def push_at_deaf(pooler: Pooler, user: str) -> None:
    """Sends COPY data to a server that has stopped reading, until the pooler stops taking it."""
    with RawClient(pooler.host, pooler.port, user, "deaf") as client:
        client.query("copy t from stdin")
        client.socket.recv(64)
        block = b"d" + (65532).to_bytes(4, "big") + b"x" * 65528
        taken = client.push(block, PUSH_MOST, UNREAD_S)
    if not len(block) < taken < PUSH_MOST:
        raise RuntimeError(f"the pooler took {taken / MB:,.1f} MB of a COPY that nobody reads")


def read_row(pooler: Pooler, user: str) -> None:
    """Reads one row of 200 MB to its end."""
    with RawClient(pooler.host, pooler.port, user, "postgres") as client:
        client.query("select repeat('x', 200000000)")
        if (got := client.drain()) < 200_000_000:
            raise RuntimeError(f"a row of 200 MB arrived as {got} bytes")


def run_stranded(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """What clients get who all happen to be on two workers."""
    return stranded.measure(pooler, experiment.user, min(stand.sizes.seconds, experiment.longest_s))


def run_workers(stand: Stand, pooler: Pooler, experiment: Experiment) -> Figures:
    """Memory of the processes of a fleet without clients: the largest worker, what is its alone, the supervisor."""
    time.sleep(SETTLE_S)
    supervisor, *workers = process.family(pooler.pid)
    return {
        "largest": max(map(process.rss_bytes, workers)) / MB,
        "private": max(map(process.private_bytes, workers)) / MB,
        "supervisor": process.rss_bytes(supervisor) / MB,
    }


RUNNERS: Mapping[str, Runner] = {
    "pgbench": run_pgbench,
    "copy": run_copy,
    "idle": run_idle,
    "memory": run_memory,
    "stranded": run_stranded,
    "workers": run_workers,
}
