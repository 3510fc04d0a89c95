"""Switches the process to the account of the `user` setting, for good."""

from __future__ import annotations

import importlib
import os
import pwd
from typing import Final

#: Imported late by the standard library, or only for one engine: after the switch their files may be out of reach.
LATE: Final = (
    "concurrent.futures.thread",
    "encodings.idna",
    "linecache",
    "pgshoal.engine.native",
    "pgshoal.engine.python",
    "stringprep",
    "tracemalloc",
    "unicodedata",
)


def become(name: str) -> None:
    """Drop root; raises LookupError if there is no such account."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"could not find user '{name}' to switch to") from None
    for module in LATE:
        try:
            importlib.import_module(module)
        except ImportError:
            continue  # whoever needs it will say so
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
