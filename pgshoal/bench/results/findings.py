"""One sentence of what came out of an experiment, from its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pgshoal.bench.model import Experiment
from pgshoal.bench.results import tables, words
from pgshoal.bench.results.combine import Counts, Group
from pgshoal.bench.results.verdicts import verdicts
from pgshoal.bench.results.words import listed, number

FEW = 6
NO_CONCLUSION = "No conclusion"
RATES = ("tps", "units_per_s", "throughput_mib_s")
Groups = Sequence[Group]


def finding(experiment: Experiment, groups: Groups) -> str:
    """The sentence of an experiment, a general one where it has none of its own; without a valid run there is none.

    Cells without a valid run say nothing, but that they failed; how many they are is said.
    """
    if not any(row.figures for group in groups for row in group.rows):
        return "Nothing came out: every run failed."
    doubtful = sum(not group.valid for group in groups)
    if doubtful == len(groups):
        return f"{NO_CONCLUSION}: no run is valid{reasons(groups)}."
    sure = [group for group in groups if group.valid or not group.counted]
    own = OF_EXPERIMENTS.get(experiment.name)
    said = (own(sure) if own else "") or judged(experiment, sure) or leading(experiment, sure)
    if not doubtful:
        return said
    return f"{said} {doubtful} of {len(groups)} cells {'has' if doubtful == 1 else 'have'} no valid run.".strip()


def reasons(groups: Groups) -> str:
    """The checks that runs did not pass, by name."""
    names = dict.fromkeys(text.partition(":")[0] for group in groups for row in group.rows for text in row.invalid)
    return f" ({listed(list(names))})" if names else ""


def bounds_met(found: Iterable[tuple[Experiment, Groups]]) -> str:
    """How many of the bounds of several experiments are met, and which are not."""
    every = [v for experiment, groups in found for v in verdicts(experiment, groups) if v.bound is not None]
    missed = list(dict.fromkeys(f"{v.cells()[0]} on {v.group.first.target}" for v in every if v.met is False))
    if len(missed) > FEW:
        missed = [*missed[:FEW], f"{len(missed) - FEW} more"]
    open_ = sum(v.met is None for v in every)
    if every and open_ == len(every):
        return f"{NO_CONCLUSION}: none of {len(every)} bounds could be judged for want of a valid run."
    said = f"{sum(v.met is True for v in every)} of {len(every)} bounds are met"
    said += f"; missed: {listed(missed)}" if missed else ""
    return (said + (f"; {open_} not judged for want of a valid run" if open_ else "") + ".") if every else ""


def judged(experiment: Experiment, groups: Groups) -> str:
    """The ratios that have bounds."""
    found = [v for v in verdicts(experiment, groups) if v.bound is not None and v.ratio is not None and not v.trouble]
    parts = [f"{v.group.first.target} {v.ratio:.2f} of {v.metric.base}" for v in found if v.metric is found[0].metric]
    return f"{words.title(found[0].metric.name, found[0].metric.unit).capitalize()}: {listed(parts)}." if parts else ""


def leading(experiment: Experiment, groups: Groups) -> str:
    """The first figure that the experiment shows, of each target."""
    for figure, title in tables.shown(experiment, groups).items():
        parts = [f"{group.label} {number(value)}" for group in groups if (value := group.value(figure)) is not None]
        if parts:
            return f"{title[0].upper()}{title[1:]}: {listed(parts[:6])}{' and others' if len(parts) > 6 else ''}."
    return ""


def rate_of(group: Group) -> float | None:
    """How much a target got done."""
    return next((value for name in RATES if (value := group.value(name)) is not None), None)


def poolers(groups: Groups) -> list[Group]:
    """All but direct."""
    return [group for group in groups if group.first.kind != "direct"]


def faster(what: str) -> Callable[[Groups], str]:
    """How many times as much each pooler gets done as direct in the same variant, and what that does to p99."""

    def say(groups: Groups) -> str:
        parts = []
        for group in poolers(groups):
            base = next(
                (g for g in groups if g.first.kind == "direct" and g.first.variant == group.first.variant), None
            )
            rate, own = (rate_of(base) if base else None), rate_of(group)
            if base and rate and own:
                slow, was = group.value("p99_ms"), base.value("p99_ms")
                p99 = f", p99 {number(slow)} instead of {number(was)} ms" if slow and was else ""
                parts.append(f"{group.label} does {words.ratio(own / rate)} times what direct does{p99}")
        return f"{what}, {'; '.join(parts)}." if parts else ""

    return say


def named(groups: Groups) -> list[tuple[Group, str]]:
    """Each cell with its target's name, and its variant only where the target alone would not tell them apart."""
    alike = len({group.first.target for group in groups}) < len(groups)
    return [(group, group.label if alike else group.first.target) for group in groups]


def outcomes(groups: Groups) -> Iterator[tuple[str, Counts | None]]:
    """What each cell's clients, or attempts, came to; nothing where all of its runs failed."""
    for group, name in named(groups):
        counts = group.outcomes()
        if counts is not None and counts.all:
            yield name, counts
        elif group.failed:
            yield name, None


def lost(groups: Groups) -> str:
    """How many clients each target lost."""
    losers, served = [], []
    for name, counts in outcomes(groups):
        if counts is None:
            losers.append(f"{name} failed")
        elif counts.failed:
            losers.append(f"{name} lost {number(counts.failed)} of {number(counts.all)} clients")
        else:
            served.append(name)
    if not losers:
        return f"Every client was served: by {listed(served)}." if served else ""
    return capital(listed(losers) + (f"; {listed(served)} lost none." if served else "."))


def figures(groups: Groups, leading: str, beside: str) -> Iterator[tuple[str, float, float | None]]:
    """The name of each cell that has the leading figure, and both figures."""
    for group, name in named(groups):
        if (value := group.value(leading)) is not None:
            yield name, value, group.value(beside)


def kept(groups: Groups) -> str:
    """How many backends clients kept, and what memory that was."""
    parts = []
    for name, count, memory in figures(groups, "backends_max", "postgres_rss_mb"):
        size = f" ({number(memory)} MB of PostgreSQL)" if memory is not None else ""
        parts.append(f"{number(count)} backends with {name}{size}")
    return f"The same clients kept {listed(parts)}." if parts else ""


def scaled(groups: Groups) -> str:
    """What the best number of processes brings over one, for each variant and family."""
    found: dict[str, list[str]] = {}
    for variant, family in dict.fromkeys((g.variant, g.family) for g in poolers(groups)):
        members = [g for g in groups if (g.family, g.variant) == (family, variant) and rate_of(g)]
        one = next((g for g in members if g.first.processes == 1), None)
        if one is None or len(members) < 2:
            continue
        best = max(members, key=lambda g: rate_of(g) or 0.0)
        gain = words.ratio((rate_of(best) or 0.0) / (rate_of(one) or 1.0))
        many = f"{best.first.processes} processes of {family} do {gain} times the work of one"
        found.setdefault(variant, []).append(f"one process of {family} does the most" if best is one else many)
    said = [f"with {variant} {listed(parts)}" if variant else listed(parts) for variant, parts in found.items()]
    return capital("; ".join(said) + ".") if said else ""


def tls_cost(groups: Groups) -> str:
    """What TLS adds to the pooler's CPU, by side; what it takes off the rate where that CPU is not known.

    A pooler that does not fill its core shows no cost in the rate.
    """
    by_cpu = any(group.value("cpu_us_per_tx") is not None for group in groups)
    parts = []
    for target in dict.fromkeys(group.first.target for group in groups):
        of = {
            str(group.first.variant.get("tls", "")): group.value("cpu_us_per_tx") if by_cpu else rate_of(group)
            for group in groups
            if group.first.target == target
        }
        none = of.get("none")
        if none:
            costs = [f"{less(value / none)} {where}" for side, where in TLS_SIDES.items() if (value := of.get(side))]
            parts += [f"{target} {'needs' if by_cpu else 'does'} {listed(costs)}"] if costs else []
    lead = "In CPU for a transaction, with TLS" if by_cpu else "With TLS"
    return f"{lead} {'; '.join(parts)}." if parts else ""


TLS_SIDES = {"client": "on the client side", "server": "on the server side", "both": "on both sides"}


def less(ratio: float) -> str:
    """A ratio as what is missing from, or added to, the whole."""
    return f"{1 - ratio:.0%} less" if ratio <= 1 else f"{ratio - 1:.0%} more"


def arrived(groups: Groups) -> str:
    """Which part of the cancels arrived."""
    parts = [
        f"{number(counts.succeeded)} of {number(counts.all)} by {name}" for name, counts in outcomes(groups) if counts
    ]
    return f"Cancels that arrived: {listed(parts)}." if parts else ""


def isolated(groups: Groups) -> str:
    """The API's p99 and the throughput of exports in each layout."""
    parts = []
    for name, slow, speed in figures(groups, "p99_ms", "throughput_mib_s"):
        exports = f", exports {number(speed)} MiB/s" if speed is not None else ""
        parts.append(f"{name}: p99 of the API {number(slow)} ms{exports}")
    return capital("; ".join(parts) + ".") if parts else ""


def capital(text: str) -> str:
    """The first letter large, the others as they are; names of programs stay as they are written."""
    return text if text.startswith(("pgshoal", "pgbouncer")) else text[:1].upper() + text[1:]


OF_EXPERIMENTS: Mapping[str, Callable[[Groups], str]] = {
    "connect": faster("Connecting for each query"),
    "burst": lost,
    "backends": kept,
    "churn": faster("Reconnecting"),
    "ceiling": lost,
    "scaling": scaled,
    "scaling-select": scaled,
    "tls": tls_cost,
    "mixed": isolated,
    "cancel": arrived,
    "nodes": lost,
}
