"""A long siege of a fleet's budget: crowds of clients, workers killed every second, and a verdict at the end."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections import Counter

import psycopg

from tests.e2e.fleet import test_budget as budget
from tests.e2e.fleet.crowd import Monitor
from tests.support.pooler import Pooler, database
from tests.support.postgres import Postgres

LIMIT = 7
SETTLE_S = 30.0


def siege(engine: str, given: argparse.Namespace) -> list[str]:
    """One engine; the promises that were broken."""
    settings = {"max_db_connections": LIMIT, "default_pool_size": 20, "max_client_conn": 1000, "workers": given.workers}
    settings["budget"] = given.budget
    with Postgres(given.major) as pg, Monitor(pg) as monitor:
        entries = {"app": database(pg)}
        with Pooler(entries, engine=engine, pool_mode="transaction", **settings) as pooler:
            ends, killed = asyncio.run(budget._siege(pooler, given.seconds))
            wrong = settled(pooler, monitor, given.workers)
            most = monitor.end()
            log = pooler.log_text()
    print(f"{engine}: {sum(ends.values())} clients {dict(ends)}, {killed} workers killed")
    print(f"{engine}: {sum(monitor.seen.values())} samples, backends seen {dict(sorted(monitor.seen.items()))}")
    if most > LIMIT:
        wrong.append(f"{most} backends were seen, the limit is {LIMIT}")
    strange = set(ends) - {"served", "reset", "lost"} - budget._TOLD
    if strange:
        wrong.append(f"clients heard {strange}")
    if not ends["served"]:
        wrong.append("nobody was served")
    if (found := re.search("internal error|Traceback", log)) is not None:
        wrong.append("in the log:\n" + log[max(0, found.start() - 200) : found.start() + 2000])
    return wrong


def settled(pooler: Pooler, monitor: Monitor, workers: int) -> list[str]:
    """After the last blow everything comes back: workers, slots, counts."""
    state: dict[str, object] = {}

    def good() -> bool:
        try:
            rows = pooler.admin("show ledger")
        except psycopg.OperationalError:  # by a worker that was just killed
            return False
        clients = sum(row["used"] for row in rows if row["kind"] == "clients")
        servers = sum(row["used"] for row in rows if row["kind"] == "database")
        state.update(workers=len(pooler.worker_pids()), clients=clients, servers=servers, backends=monitor.count())
        return state == {"workers": workers, "clients": 1, "servers": servers, "backends": servers}

    deadline = time.monotonic() + SETTLE_S
    while not good():
        if time.monotonic() > deadline:
            return [f"not settled after {SETTLE_S:.0f} s: {state}"]
        time.sleep(0.2)
    try:
        # Not one slot has leaked: so many queries at once need all of them.
        asyncio.run(budget._at_once(pooler, 2 * LIMIT))
    except AssertionError as error:
        return [f"not all slots are there: {error}"]
    return []


def main() -> int:
    """Every engine in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="uring,epoll,python")
    parser.add_argument("--major", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60, help="for each engine")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget", choices=("elastic", "static"), default="elastic")
    given = parser.parse_args()
    verdicts: Counter[bool] = Counter()
    for engine in given.engines.split(","):
        wrong = siege(engine, given)
        verdicts[not wrong] += 1
        print(f"{engine}: {'FAILED' if wrong else 'held'}", *wrong, sep="\n  ", flush=True)
    return 1 if verdicts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
