"""The cases of `compare`: each an experiment of its own, with bounds of its own, on targets that are kept up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.model import Cell, Chart, Experiment, Load, Metric, Target, Tls

KB: Final = 1024
FAMILY: Final = "compare-"
#: Closed loops that fill the machine are wanted here: CPU per transaction is what is compared.
RELAYED: Final = ("cached", "samples", "steal", "counts", "alive", "stall", "steady")
MOMENTS: Final = ("alive",)
KNOBS: Final = ("compare_seconds", "copy_mb", "idle_clients", "engines", "only", "scale")
#: The names of all cases, once they are declared.
CASES: Final[set[str]] = set()
COMMON: Final[Mapping[str, object]] = {"auth_type": "trust", "default_pool_size": 20}


def case(
    name: str,
    title: str,
    targets: Callable[[Knobs], Sequence[Target]],
    load: Callable[[Knobs], Load],
    metrics: Sequence[Metric],
    *,
    settings: Mapping[str, object] | None = None,
    user: str = "postgres",
    tls: Tls = "none",
    quick: bool = False,
    repeats_most: int = 0,
    checks: Sequence[str] = (),
) -> Experiment:
    """One case. `quick` says whether it is part of a quick run that names no cases."""
    CASES.add(name)

    def cells(knobs: Knobs) -> Sequence[Cell]:
        if not chosen(name, quick, knobs):
            return ()
        merged = {**COMMON, **(settings or {})}
        return [
            Cell(FAMILY + name, target, load(knobs), settings=merged, tls=tls, user=user) for target in targets(knobs)
        ]

    return Experiment(
        FAMILY + name,
        title,
        "what do we cost beside PgBouncer, and do we keep to the bounds we set ourselves",
        cells,
        tuple(metrics),
        knobs=KNOBS,
        charts=(Chart("bars", title, metrics[0].name),),
        checks=tuple(checks),
        server={"max_connections": "1000"},
        keep_up=True,
        repeats_most=repeats_most,
    )


def chosen(name: str, quick: bool, knobs: Knobs) -> bool:
    """Whether a case is wanted: by its name, by the beginning of names where no case is called just so, or as one of
    all when none is named: the quick ones of a quick run.
    """
    wanted = [part.strip().removeprefix(FAMILY) for part in knobs.text("only").split(",") if part.strip()]
    begins = tuple(part for part in wanted if part not in CASES)
    return name in wanted or name.startswith(begins) if wanted else quick or not knobs.quick
