"""Runs the pooler under another account, also when only root can enter the interpreter's folder.

`python -m pgshoal.demo.launch ACCOUNT FILE` imports the pooler while it is still root, then becomes the account and
goes on in the same process: an exec would need the interpreter's files again. What Python imports later is found
through descriptors of its folders, opened before.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from pgshoal.demo.account import die_with_parent, named


def keep_reachable() -> None:
    """Adds to every import path a second way that leads through an open descriptor and so past closed folders."""
    ways: dict[str, str] = {}
    for entry in dict.fromkeys(sys.path):
        folder = os.path.realpath(entry or os.getcwd())
        if os.path.isdir(folder):
            ways[entry or folder] = f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}"
    for module in list(sys.modules.values()):
        places = getattr(module, "__path__", None)
        if not isinstance(places, list):
            continue
        for place in list(places):
            for entry, way in ways.items():
                if Path(place).is_relative_to(entry):
                    places.append(str(way / Path(place).relative_to(entry)))
    sys.path.extend(ways.values())


def main() -> int:
    """Becomes the account given first and serves the configuration given second."""
    account, config = named(sys.argv[1]), sys.argv[2]
    run = importlib.import_module("pgshoal.worker.run")  # by name, as the rest of this package needs no worker
    keep_reachable()
    os.chdir("/")
    account.become()
    die_with_parent()
    result: int = run.main(config)
    return result


if __name__ == "__main__":
    sys.exit(main())
