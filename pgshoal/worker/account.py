"""Switches the process to the account of the `user` setting, for good."""

from __future__ import annotations

import os
import pwd


def become(name: str) -> None:
    """Drop root; raises LookupError if there is no such account."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"could not find user '{name}' to switch to") from None
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
