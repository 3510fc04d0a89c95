"""A folder of runs as sizes of a fleet under one load, each with its rate, its CPU time and where it was full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgshoal.bench.advice.bottleneck import Evidence
from pgshoal.bench.results.combine import Group

KINDS = ("pgshoal", "pgbouncer", "address")
#: Of experiments by what they tell about sizes; others are taken where there is none of these.
EXPERIMENTS = ("scaling", "scaling-select", "ceiling", "churn", "mixed")


@dataclass(frozen=True)
class Ladder:
    """Runs of one target under one load by number of workers, the smallest first."""

    groups: tuple[Group, ...]

    @property
    def text(self) -> str:
        """What was measured, in words."""
        first = self.groups[0]
        return ", ".join(filter(None, (f"{first.family} in `{first.first.experiment}`", first.variant)))

    @property
    def valid(self) -> bool:
        """Whether every size has runs that count."""
        return all(group.valid for group in self.groups)

    @property
    def doubt(self) -> str:
        """What the checks of the bench say about these runs; empty when all count."""
        invalid = [row for group in self.groups for row in group.counted if row.invalid]
        runs = sum(len(group.counted) for group in self.groups)
        return f"{len(invalid)} of {runs} runs do not count ({invalid[0].invalid[0]})" if invalid else ""

    def rates(self) -> dict[int, list[float]]:
        """Transactions a second of each counted run by number of workers."""
        return {group.first.processes: group.values("tps") for group in self.groups}

    def capacities(self) -> dict[int, list[float]]:
        """What the workers would do with a whole core each, by the CPU time of a transaction."""
        spent = {group.first.processes: cpu_s(group, "pooler_cores") for group in self.groups}
        return {count: [count / one for one in each] for count, each in spent.items() if each}

    def evidence(self) -> list[Evidence]:
        """How each size did."""
        return [evidence(group) for group in self.groups]


def ladders(groups: Sequence[Group]) -> list[Ladder]:
    """All that can be advised on, what tells most first: our pooler, valid runs, several sizes, many clients."""
    found: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        row = group.first
        if row.kind != "direct" and group.value("tps") and "nodes" not in row.target:
            found.setdefault((row.experiment, group.family, group.variant), []).append(group)
    return sorted((Ladder(tuple(sorted(each, key=processes))) for each in found.values()), key=worth)


def processes(group: Group) -> int:
    """How many workers a group's runs had."""
    return group.first.processes


def worth(ladder: Ladder) -> tuple[int, ...]:
    """Where it stands among the ladders."""
    row = ladder.groups[0].first
    names = (*EXPERIMENTS, row.experiment)
    several = len(ladder.groups) > 1
    clients = row.variant.get("clients", 0)
    many = clients if isinstance(clients, int) else 0
    return KINDS.index(row.kind), not several, names.index(row.experiment), not ladder.valid, -len(ladder.groups), -many


def cpu_s(group: Group, figure: str) -> list[float]:
    """CPU seconds of a transaction in each counted run, where both were measured."""
    return [
        row.figures[figure] / row.figures["tps"]
        for row in group.counted
        if row.figures.get(figure) and row.figures.get("tps")
    ]


def evidence(group: Group) -> Evidence:
    """The medians of one size as evidence."""
    row, cores = group.first, group.value("machine_cores")
    host = round(cores) if cores else None
    servers, postgres = group.value("backends_max"), group.value("postgres_cores")
    clients = row.variant.get("clients")
    by_name = group.cores()
    return Evidence(
        workers=row.processes,
        rate=group.value("tps") or 0.0,
        by_worker=tuple(used for name, used in by_name.items() if is_worker(name)),
        cores=host,
        postgres=postgres,
        postgres_cores=host if postgres is not None else None,
        load=group.value("load_cores"),
        others=group.value("other_cores"),
        idle=group.value("machine_idle"),
        same_host=postgres is not None,
        servers=servers,
        budget=row.budget,
        clients=clients if isinstance(clients, int) else None,
        load_full=load_full(group),
    )


def is_worker(name: str) -> bool:
    """Whether a process of a row serves clients."""
    return name.startswith("pooler/") and "supervisor" not in name


def load_full(group: Group) -> str:
    """What the runs say about their load generator, when most of them do."""
    said = [
        reason.partition(": ")[2] for row in group.counted for reason in row.invalid if reason.startswith("load-free")
    ]
    return said[0] if 2 * len(said) > len(group.counted) else ""
