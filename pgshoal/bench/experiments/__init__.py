"""The experiments by the name that the command line takes, in the order of `all`; each module declares its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgshoal.bench.experiments import (
    backends,
    burst,
    cancel,
    ceiling,
    churn,
    compare,
    connect,
    mixed,
    nodes,
    scaling,
    tls,
)
from pgshoal.bench.model import Experiment

EXPERIMENTS: Final[Mapping[str, tuple[Experiment, ...]]] = {
    "connect": (connect.EXPERIMENT,),
    "burst": (burst.EXPERIMENT,),
    "backends": (backends.EXPERIMENT,),
    "churn": (churn.EXPERIMENT,),
    "ceiling": (ceiling.EXPERIMENT,),
    "scaling": scaling.EXPERIMENTS,
    "tls": (tls.EXPERIMENT,),
    "mixed": (mixed.EXPERIMENT,),
    "cancel": (cancel.EXPERIMENT,),
    "nodes": (nodes.EXPERIMENT,),
    "compare": compare.EXPERIMENTS,
}
