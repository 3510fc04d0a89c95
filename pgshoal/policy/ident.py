"""Whether a name that the system or a certificate vouches for may log in as a database user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pgshoal.config.ident import IdentLine

#: Longer names match no regular expression, which could take too long over them.
NAME_MAX: Final = 256


def may_be(lines: Iterable[IdentLine] | None, system: str, user: str) -> bool:
    """Without a map (None) the two names must be equal; in a map one line must allow it. An empty name is nobody."""
    if not system:
        return False
    if lines is None:
        return system == user
    return any(_allows(line, system, user) for line in lines)


def _allows(line: IdentLine, system: str, user: str) -> bool:
    if line.pattern is None:
        return line.system == system and line.user in (None, user)
    found = line.pattern.search(system) if len(system) <= NAME_MAX else None
    if found is None:
        return False
    if line.user is None:
        return True
    group = found[1] or "" if line.pattern.groups else ""
    return line.user.replace("\\1", group, 1) == user
