"""Runs the pooler under another account, also when only root can enter the interpreter's folder.

`python -m pgshoal.demo.launch ACCOUNT FILE` opens what the interpreter needs while it is root, becomes the account
with all that belongs to it, and executes the same interpreter again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pgshoal.demo.account import die_with_parent, named
from pgshoal.worker.account import Way


def run_as(account_name: str, arguments: Sequence[str]) -> None:
    """Become the account and run Python with these arguments; does not return."""
    account = named(account_name)
    way = Way()
    os.chdir("/")
    account.become()
    die_with_parent()
    way.execute(arguments)


if __name__ == "__main__":
    run_as(sys.argv[1], ["-m", "pgshoal", "run", *sys.argv[2:]])
