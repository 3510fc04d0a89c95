"""`python -m pgshoal.bench`: the ratios from a command line of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pgshoal.bench.old_stand import ENGINES
from pgshoal.bench.ratios import main


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="pgshoal.bench", description="ratios against PgBouncer in one run")
    parser.add_argument("--quick", action="store_true", help="one short round of the main experiments")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="experiments whose name starts so")
    parser.add_argument("--engines", default=",".join(ENGINES), help="separated by commas")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--results", type=Path, default=Path("bench-results"))
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    engines = [name.strip() for name in given.engines.split(",")]
    sys.exit(main(given.quick, given.only, engines, given.rounds, given.seconds, given.results, given.strict))
