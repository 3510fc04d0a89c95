"""The experiments by the name that the command line takes; each module of this package declares its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

from pgshoal.bench.model import Experiment

#: In the order of `all`. A module says `EXPERIMENT = Experiment(...)`, or `EXPERIMENTS = (...)` for several.
NAMES: Final = (
    "connect",
    "burst",
    "backends",
    "churn",
    "ceiling",
    "scaling",
    "tls",
    "mixed",
    "cancel",
    "nodes",
    "compare",
)


def declared(name: str) -> tuple[Experiment, ...]:
    """What the module of that name declares; nothing while there is no such module."""
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        return ()
    found: tuple[Experiment, ...] = getattr(module, "EXPERIMENTS", ()) or (module.EXPERIMENT,)
    return found


#: The declarations behind each name of the command line.
EXPERIMENTS: Final[Mapping[str, tuple[Experiment, ...]]] = {name: found for name in NAMES if (found := declared(name))}
#: Each declaration by its own name, the one that rows carry.
BY_NAME: Final[Mapping[str, Experiment]] = {one.name: one for some in EXPERIMENTS.values() for one in some}
