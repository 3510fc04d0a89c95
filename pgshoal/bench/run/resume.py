"""A run that goes on in its folder must be the same run: what differs is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pgshoal.bench.knobs import Knobs

#: Where a run lies is not what it measures.
NO_MATTER: Final = frozenset({"results", "seed"})
SIZES: Final = {True: "quick", False: "full"}


def differences(facts: Mapping[str, Any], knobs: Knobs, names: Sequence[str], matter: Collection[str]) -> list[str]:
    """What a folder's run.json says otherwise than what is asked for now; empty when the run can go on.

    `matter` are the knobs of these experiments and the common ones.
    """
    if not facts:
        return ["the folder has no run.json, so it holds no run"]
    if facts.get("quick") != knobs.quick:
        return [f"it was a {SIZES[not knobs.quick]} run, this is a {SIZES[knobs.quick]} one"]
    then: Mapping[str, Any] = facts.get("knobs", {})
    now = {name: plain(value) for name, value in knobs.as_dict().items()}
    out = [
        f"{name} was {shown(then.get(name))}, is {shown(now.get(name))}"
        for name in sorted(set(matter) - NO_MATTER)
        if plain(then.get(name)) != now.get(name)
    ]
    if facts.get("seed") != knobs.int("seed"):
        out.append(f"seed was {facts.get('seed')}, is {knobs.int('seed')}")
    if list(facts.get("experiments", ())) != list(names):
        out.append(f"experiments were {shown(facts.get('experiments'))}, are {shown(names)}")
    return out


def plain(value: object) -> object:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def shown(value: object) -> str:
    """A value as a user types it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "nothing" if value in (None, "") else str(value)
