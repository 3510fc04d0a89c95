"""What experiments share: targets side by side, settings, and the cells they make together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from pgshoal.bench.knobs import Knobs
from pgshoal.bench.load.pgbench import PgbenchLoad
from pgshoal.bench.model import Cell, Load, Pick, Published, Target, Tls, Value

Where = Mapping[str, Value]
DIRECT: Final = Target("direct")
#: Kinds of poolers of which the kit makes fleets.
POOLERS: Final[tuple[Literal["pgshoal", "pgbouncer"], ...]] = ("pgshoal", "pgbouncer")
SINGLES: Final = (DIRECT, *(Target(kind) for kind in POOLERS))
#: PostgreSQL as the laptop harness had it, when it is the kit's.
LAPTOP_SERVER: Final[Mapping[str, str]] = {"max_connections": "{pg_max_connections}"}
LAPTOP_KNOBS: Final = ("pg_max_connections", "default_pool_size", "max_client_conn", "server_idle_timeout")
#: For a load that keeps all parts busy and shall measure the pooler alone.
STRICT: Final = (
    *("load-free", "machine-free", "postgres-free", "cached", "budget"),
    *("samples", "steal", "counts", "stall", "steady", "alive"),
)


def phase(target: Target) -> int:
    """Direct runs come before pooled ones, so that no pooler's connections are left over from one to the other."""
    return 0 if target.kind == "direct" else 1


def side_by_side(
    name: str,
    targets: Sequence[Target],
    load: Load,
    settings: Mapping[str, object],
    budget: int | None = None,
    **more: Any,
) -> list[Cell]:
    """One load against several targets; the budget is the poolers', `more` are other parts of a cell."""
    return [
        Cell(name, one, load, settings=settings, phase=phase(one), budget=budget if phase(one) else None, **more)
        for one in targets
    ]


def laptop(name: str, load: Load, knobs: Knobs) -> list[Cell]:
    """One load against PostgreSQL and a pooler of each kind, set up as the laptop harness had them."""
    settings = {"pool_mode": "transaction", **{knob: knobs.int(knob) for knob in LAPTOP_KNOBS[1:]}}
    return side_by_side(name, SINGLES, load, settings, knobs.int("default_pool_size"))


def fleets(name: str, load: PgbenchLoad, knobs: Knobs, tls: Tls = "none") -> Iterator[Cell]:
    """PostgreSQL itself and fleets of each size under one load, all fleets with the same budget."""
    budget = knobs.int("budget")
    settings = {"pool_mode": "transaction", "default_pool_size": budget, "max_prepared_statements": 200}
    settings["max_client_conn"] = 10_000  # a fleet of PgBouncers divides it, and the kernel does not divide evenly
    variant = {"clients": load.clients}
    yield Cell(name, DIRECT, load, variant, tls=tls)
    for target in (Target(kind, count) for kind in POOLERS for count in knobs.ints("processes")):
        yield Cell(name, target, load, variant, settings, tls, phase=1, budget=budget)


def ratio(text: str, value: float, figure: str, top: Where, bottom: Where, source: str) -> Published:
    """A published ratio of a figure in two cells of the same kind of target."""
    return Published(text, value, Pick(figure, "", top), Pick(figure, "", bottom), source)


def between(text: str, value: float, top: tuple[int, int], bottom: tuple[int, int], source: str) -> Published:
    """A ratio of the rates of two cells, each given as (processes, clients)."""
    above, below = ({"processes": count, "clients": clients} for count, clients in (top, bottom))
    return ratio(text, value, "tps", above, below, source)
