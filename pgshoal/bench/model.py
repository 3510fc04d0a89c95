"""What the kit is made of: experiments are data, a cell is one run to be made, a row is one run that was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pgshoal.bench.knobs import Knobs
    from pgshoal.bench.measure.meter import Meter
    from pgshoal.bench.stand import Stand
    from pgshoal.bench.targets.opened import Opened

Kind = Literal["direct", "pgshoal", "pgbouncer", "address"]
Tls = Literal["none", "client", "server", "both"]
Value = int | float | str

#: Checks that make a run's figures those of something else than what was to be measured.
SPOILING: Final = ("alive", "counts", "budget")
#: Checks that tell a run in which something happened from the other repeats.
SETTING_APART: Final = ("stall", "steady", "steady-cpu")


@dataclass(frozen=True)
class Target:
    """What a load is run against, as data; `opened.py` makes it run. Its label is what tables and charts show.

    `processes` are pgshoal's workers or the PgBouncers of one so_reuseport fleet; `options` are settings of a pgshoal
    (engine, budget, accept_balance, worker_cpu_affinity) or `peers = off` and `pin = on` of a PgBouncer fleet;
    `address` is HOST:PORT of a pooler that somebody else runs.
    """

    kind: Kind
    processes: int = 1
    options: tuple[tuple[str, str], ...] = ()
    address: str = ""
    nodes: int = 1  # so many of it behind a layer-4 balancer

    @property
    def label(self) -> str:
        """The words of tables and charts, alike for alike targets: `pgshoal x4 engine=epoll`."""
        parts = [self.address or self.kind]
        if self.processes > 1:
            parts.append(f"x{self.processes}")
        if self.nodes > 1:
            parts.append(f"{self.nodes} nodes")
        return " ".join([*parts, *(f"{key}={value}" for key, value in self.options)])


@dataclass(frozen=True)
class Cell:
    """One run to be made: a load against a target. `variant` is what tells it from the experiment's other cells."""

    experiment: str
    target: Target
    load: Load
    variant: Mapping[str, Value] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)  # of the pooler, the whole fleet's: opened.py divides
    tls: Tls = "none"
    user: str = "postgres"
    phase: int = 0  # lower ones are all run before higher ones; inside a phase the order is drawn
    budget: int | None = None  # server connections that PostgreSQL may see at most, the kit's own apart

    @property
    def key(self) -> str:
        """Tells cells apart across interrupted and resumed runs."""
        variant = ",".join(f"{name}={value}" for name, value in self.variant.items())
        return "|".join((self.experiment, self.target.label, variant))


@dataclass(frozen=True)
class ClientOutcome:
    """How one client, or one attempt, ended; times in milliseconds from the start of the load."""

    number: int
    succeeded: bool
    milliseconds: float
    error: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a load saw. Transactions and latencies are those that ended in the measured interval, all of them."""

    figures: Mapping[str, float]
    transactions: int = 0
    latencies_ms: NDArray[np.float32] | None = None
    clients: Sequence[ClientOutcome] = ()
    #: Transactions of the whole run that PostgreSQL has seen from this load; None when the load cannot tell.
    sent_in_all: int | None = None


@dataclass
class Scene:
    """Where a load acts: everything is started and warm enough to be spoken to."""

    stand: Stand
    opened: Opened
    cell: Cell
    knobs: Knobs
    meter: Meter
    folder: Path  # scratch of this run alone; removed after it


class NotHere(RuntimeError):
    """A run that cannot be made on this machine, or against this server; the text says what is missing."""


class Load(Protocol):
    """A kind of traffic, as a frozen dataclass of its sizes; `run` marks the load interval with the scene's meter.

    RuntimeError or OSError when it fails, NotHere when it cannot be done here; what clients suffer from the target is
    an Outcome, not an error.
    """

    #: How many processors the load generator can fill: its threads or processes.
    @property
    def generators(self) -> int: ...

    def run(self, scene: Scene) -> Outcome: ...


@runtime_checkable
class NeedsTables(Protocol):
    """A load that reads tables: they are made before anything is counted."""

    def prepare(self, stand: Stand, knobs: Knobs) -> None:
        """Makes them, or finds them made."""


@dataclass(frozen=True)
class Metric:
    """One figure of rows. `targets` bounds, by target label, the ratio to the base or, if absolute, the value."""

    name: str
    unit: str
    targets: Mapping[str, float] = field(default_factory=dict)
    higher_is_better: bool = False
    absolute: bool = False
    base: str = ""  # label of the target to compare with; empty: none

    def met(self, label: str, ratio: float, value: float) -> bool | None:
        """Whether the bound is met; None when there is none."""
        bound = self.targets.get(label)
        if bound is None:
            return None
        judged = value if self.absolute else ratio
        return judged >= bound if self.higher_is_better else judged <= bound


@dataclass(frozen=True)
class Pick:
    """Chooses rows: a figure of one kind of target (empty: whichever is being looked at) where the variant says so."""

    figure: str
    kind: Kind | Literal[""] = ""
    where: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A published ratio `top / bottom`, or the plain figure when there is no bottom, beside which ours is printed."""

    text: str
    value: float
    top: Pick
    bottom: Pick | None = None
    source: str = ""


@dataclass(frozen=True)
class Chart:
    """One picture of an experiment's rows.

    `scaling` draws `figure` over `x` with the ideal line, `lines` without it, `bars` one bar a row; `latency` draws
    distributions, `cpu` bars by process, `backends` counts over time, `outcomes` clients that succeeded and failed.
    """

    kind: Literal["scaling", "lines", "bars", "latency", "cpu", "backends", "outcomes"]
    title: str
    figure: str = ""
    x: str = ""


@dataclass(frozen=True)
class Experiment:
    """A declaration. `cells` makes the matrix from the knobs; `checks` names the validity checks that apply."""

    name: str
    title: str
    question: str
    cells: Callable[[Knobs], Sequence[Cell]]
    metrics: tuple[Metric, ...]
    knobs: tuple[str, ...] = ()  # beside the common ones
    charts: tuple[Chart, ...] = ()
    published: tuple[Published, ...] = ()
    checks: tuple[str, ...] = ()
    server: Mapping[str, str] = field(default_factory=dict)  # of PostgreSQL that the kit runs; {knob}: its value
    files: tuple[str, ...] = ()  # the laptop harness's CSV files that this experiment writes
    keep_up: bool = False  # targets stay started through all repeats, so that rounds alternate quickly
    repeats_most: int = 0  # for figures that do not scatter; 0: as many as asked for
    repeats_least: int = 1  # for figures that mean little from one run, unless repeats are asked for


@dataclass(frozen=True)
class Row:
    """One run as it was made: a JSON line. `invalid` says why its figures do not count; `error` why there are none.

    `figures` holds what the load saw and what the meter measured, by the names of docs/topics/bench.md.
    `series` are samples over time, `clients` the outcomes, `latencies` the file of all samples beside the rows;
    `unchecked` names checks that could not be made, with the reason.
    """

    experiment: str
    key: str
    target: str
    kind: Kind
    processes: int
    variant: Mapping[str, Value]
    repeat: int
    order: int
    started: str
    figures: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)  # by process: pooler/0, postgres, load
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    clients: Sequence[Mapping[str, Any]] = ()
    latencies: str = ""
    budget: int | None = None  # the cell's, for the line in charts of connection counts
    invalid: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    error: str = ""

    def fails(self, *checks: str) -> bool:
        """Whether one of these checks made the run invalid."""
        return any(reason.partition(":")[0] in checks for reason in self.invalid)

    @property
    def lost(self) -> bool:
        """Whether PostgreSQL or the pooler did not live through the run: it is made again, as one that failed."""
        return self.fails("alive")

    @property
    def spoiled(self) -> bool:
        """Whether no figure of the run counts, even where there is nothing better."""
        return bool(self.error) or self.fails(*SPOILING)

    @property
    def apart(self) -> bool:
        """Whether the run is known not to be as the others are: it does not count beside merely doubtful ones."""
        return self.fails(*SETTING_APART)
