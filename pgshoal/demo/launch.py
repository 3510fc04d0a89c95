"""Runs pgshoal's commands under another account, also when only root can enter the interpreter's folder.

`python -m pgshoal.demo.launch ACCOUNT ARGUMENT...` imports everything while it is still root, then becomes the account
and goes on in the same process: an exec would need the interpreter's files again.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

from pgshoal.demo.account import named

# Imported late by the standard library or by drivers, at moments when we can no longer read them.
LATE = (
    "asyncio",
    "bisect",
    "concurrent.futures.process",
    "concurrent.futures.thread",
    "curses",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "grp",
    "linecache",
    "multiprocessing",
    "select",
    "ssl",
    "stringprep",
    "tracemalloc",
    "unicodedata",
    "zoneinfo",
)
LEFT_OUT = ("pgshoal.bench", "pgshoal.demo", "pgshoal.__main__")
OPTIONAL = ("pgshoal_engine", "aiodns", "rich.traceback", "rich.markup", "typer.rich_utils")


def preload() -> None:
    """Imports what the pooler may need later; a module of an extra that is not installed is no error."""
    for name in (*LATE, *OPTIONAL):
        with_optional(name)
    package = importlib.import_module("pgshoal")
    for found in pkgutil.walk_packages(package.__path__, "pgshoal."):
        if not found.name.startswith(LEFT_OUT):
            with_optional(found.name)


def with_optional(name: str) -> None:
    """Imports one module; what is missing stays missing, and whoever needs it will say so."""
    try:
        importlib.import_module(name)
    except ImportError:
        return


def main() -> int:
    """Becomes the account given first, then runs the command line with the rest."""
    account = named(sys.argv[1])
    preload()
    cli = importlib.import_module("pgshoal.cli")
    os.chdir("/")
    account.become()
    sys.argv = ["pgshoal", *sys.argv[2:]]
    result: int | None = cli.main()
    return result or 0


if __name__ == "__main__":
    sys.exit(main())
