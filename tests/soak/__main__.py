"""`make soak`: the isolation checker for minutes or hours, on each engine."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from tests.soak import world as parts
from tests.soak.crowd import run
from tests.soak.world import World
from tests.support.certs import Authority
from tests.support.pooler import Pooler
from tests.support.postgres import Postgres
from tests.support.proxy import BrokenProxy

DBNAME = "soak"


def soak(engine: str, given: argparse.Namespace) -> bool:
    """One engine; true if every promise held."""
    authority = Authority()
    with ExitStack() as stack:
        # Committed at once: what was confirmed survives a crash.
        pg = stack.enter_context(
            Postgres(given.major, settings={"synchronous_commit": "on"}, tls=authority if given.major < 18 else None)
        )
        parts.create(pg, DBNAME)
        network = stack.enter_context(BrokenProxy((pg.host, pg.port))) if given.chaos else None
        entries, settings = parts.entries(pg, DBNAME, network), parts.settings(authority)
        pooler = stack.enter_context(Pooler(entries, engine=engine, workers=given.workers, **settings))
        tls = parts.context(authority)
        world = World(pg, pooler, DBNAME, given.seconds, tls, chaos=given.chaos, network=network)
        run(world, given.clients)
        if world.wrong:
            log = pooler.log_text()
            start = max(0, log.find("Traceback") - 500) if "Traceback" in log else -2000
            print(log[start:][:4000], file=sys.stderr)
    facts = ", ".join(f"{name} {count}" for name, count in sorted(world.done.items()))
    print(f"{engine} on PostgreSQL {given.major}: {'FAILED' if world.wrong else 'held'} ({facts})", flush=True)
    return not world.wrong


def main() -> int:
    """Every engine in turn."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--engines", default="uring,epoll,python")
    parser.add_argument("--major", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120, help="for each engine")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chaos", action="store_true", help="servers die, the network breaks, the pooler pauses")
    given = parser.parse_args()
    failed = [engine for engine in given.engines.split(",") if not soak(engine, given)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
