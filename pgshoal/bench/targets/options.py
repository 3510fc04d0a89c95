"""What the options of a target mean, and the processes it is divided into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pgshoal.bench.knobs import ENGINES, Knobs
from pgshoal.bench.model import Target

SWITCH: Final = ("on", "off")
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": ENGINES,
    "budget": ("elastic", "static"),
    "accept": ("least", "kernel", "pack"),
    "peers": SWITCH,
    "pin": SWITCH,
    "isolated": SWITCH,
    "standby": SWITCH,
}


@dataclass(frozen=True)
class Options:
    """The options of one target; None leaves a setting of the pooler at its default."""

    engine: str
    budget: str | None
    accept: str | None
    peers: bool
    pin: bool
    isolated: bool
    standby: bool


@dataclass(frozen=True)
class Part:
    """One pooler of a target: the name of its address, how many processes it has, and those of the parts before it."""

    name: str
    processes: int
    before: int
    whole: int  # processes of all parts

    def cpus(self, usable: list[int]) -> list[int]:
        """A processor for each of its processes, beside those of the other parts as long as there are any."""
        return [usable[(self.before + number) % len(usable)] for number in range(self.processes)]


def read(target: Target, knobs: Knobs) -> Options:
    """Knobs fill in what the target leaves open; ValueError for an option, or a word, that nothing is known of."""
    given = dict(target.options)
    for key, word in given.items():
        if word not in ALLOWED.get(key, ()):
            raise ValueError(f"{target.label}: {key}={word} is no option of a target")
    if given.get("isolated") == "on" and (target.processes < 2 or target.nodes > 1):
        raise ValueError(f"{target.label}: isolated needs one node with two processes or more")
    return Options(
        engine=given.get("engine", knobs.text("engine")),
        budget=given.get("budget"),
        accept=given.get("accept"),
        peers=given.get("peers", "on") == "on",
        pin=given.get("pin", "on" if knobs.flag("pin") else "off") == "on",
        isolated=given.get("isolated") == "on",
        standby=given.get("standby") == "on",
    )


def parts(target: Target, options: Options) -> list[Part]:
    """One pooler; isolated two, the second one of one process; or one for each node."""
    if options.isolated:
        sizes = {"main": target.processes - 1, "exports": 1}
    elif target.nodes > 1:
        sizes = {f"node{number}": target.processes for number in range(1, target.nodes + 1)}
    else:
        sizes = {"main": target.processes}
    whole, found, before = sum(sizes.values()), [], 0
    for name, processes in sizes.items():
        found.append(Part(name, processes, before, whole))
        before += processes
    return found
