"""Makes one table of what all workers have, by the rule of each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pgshoal.console import sockets
from pgshoal.console.sockets import Row, Value
from pgshoal.console.tables import COUNTERS, Table
from pgshoal.worker.stats import Totals, added, averages, overall, total

_SOCKETS: Final = frozenset({"ACTIVE_SOCKETS", "CLIENTS", "SERVERS", "SOCKETS"})


@dataclass(frozen=True, slots=True)
class Gathered:
    """One source's rows of every worker, and what the supervisor adds.

    To STATS: what the last period has brought. To LEDGER: by row, the slots of servers whose backends are still to end.
    """

    parts: Sequence[Sequence[Row]]
    deltas: Mapping[str, Totals] = field(default_factory=dict)
    period_us: int = 0
    dying: Mapping[int, int] = field(default_factory=dict)


def gathered(own: Sequence[Row], answer: Mapping[str, Any] | None) -> Gathered:
    """This worker's rows and what the supervisor has brought of all others."""
    parts = [own]
    deltas: Mapping[str, Totals] = {}
    period_us = 0
    dying: Mapping[int, int] = {}
    for part in (answer or {}).get("parts", ()):
        parts.append([tuple(row) for row in part["rows"]])
        if "period_us" in part:
            deltas, period_us = _counted(part["deltas"]), part["period_us"]
        if "dying" in part:
            dying = dict(part["dying"])
    return Gathered(parts, deltas, period_us, dying)


def merge(table: Table, found: Gathered) -> list[Row]:
    """The rows to show."""
    special = _SPECIAL.get(table.name)
    if special is not None:
        return special(found)
    if table.columns[0].merge == "each":
        rows = [row for part in found.parts for row in part]
        return sorted(rows, key=sockets.order) if table.name in _SOCKETS else rows
    keys = [at for at, column in enumerate(table.columns) if column.merge == "key"]
    merged: dict[tuple[Value, ...], list[Value]] = {}
    for part in found.parts:
        for row in part:
            key = tuple(row[at] for at in keys)
            if key in merged:
                _join(table, merged[key], row)
            else:
                merged[key] = list(row)
    rows = [tuple(row) for row in merged.values()]
    # Rows of one table have keys of the same types.
    return sorted(rows, key=lambda row: [row[at] for at in keys]) if table.sorted else rows


def _join(table: Table, into: list[Value], row: Row) -> None:
    """Add one more worker's row."""
    greater = same = False
    for at, column in enumerate(table.columns):
        old, new = _number(into[at]), _number(row[at])
        if column.merge == "sum":
            into[at] = old + new
        elif column.merge == "max":
            greater, same = new > old, new == old
            into[at] = max(old, new)
        elif column.merge == "tail" and (greater or (same and new > old)):
            into[at] = new


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


# -- LISTS


def _lists(found: Gathered) -> list[Row]:
    counts: dict[str, int] = {}
    names: dict[str, set[Value]] = {}
    for part in found.parts:
        for what, items, *named in part:
            key = str(what)
            if len(named) == items and named:
                names.setdefault(key, set()).update(named)
            counts[key] = counts.get(key, 0) + _number(items)
    return [(what, len(names[what]) if what in names else items) for what, items in counts.items()]


# -- DNS_ZONES


def _zones(found: Gathered) -> list[Row]:
    serials: dict[str, int] = {}
    names: dict[str, set[str]] = {}
    for part in found.parts:
        for zone, serial, named in part:
            serials[str(zone)] = max(serials.get(str(zone), 0), _number(serial))
            names.setdefault(str(zone), set()).update(name for name in str(named).split(",") if name)
    return [(zone, serial, len(names[zone])) for zone, serial in sorted(serials.items())]


# -- STATS and its relatives


def _counted(rows: Sequence[Sequence[Any]]) -> dict[str, Totals]:
    return {str(name): Totals(*counts) for name, *counts in rows}


def _totals(found: Gathered) -> list[tuple[str, Totals]]:
    return sorted(added(map(_counted, found.parts)).items())


def _average(found: Gathered, name: str) -> Totals:
    return averages(found.deltas.get(name, Totals()), found.period_us)


def _stats(found: Gathered) -> list[Row]:
    return [(name, *each.counts, *_average(found, name).counts) for name, each in _totals(found)]


def _stats_totals(found: Gathered) -> list[Row]:
    return [(name, *each.counts) for name, each in _totals(found)]


def _stats_averages(found: Gathered) -> list[Row]:
    return [(name, *_average(found, name).counts) for name, _ in _totals(found)]


def _overall(found: Gathered) -> list[Row]:
    whole = total(each for _, each in _totals(found))
    shown = (("total", whole), ("avg", overall(found.deltas, found.period_us)))
    names = [name for _, _, name, _ in COUNTERS]
    return [
        (f"{prefix}_{name}", value) for prefix, each in shown for name, value in zip(names, each.counts, strict=True)
    ]


_SPECIAL: Final[Mapping[str, Callable[[Gathered], list[Row]]]] = {
    "DNS_ZONES": _zones,
    "LISTS": _lists,
    "STATS": _stats,
    "STATS_AVERAGES": _stats_averages,
    "STATS_TOTALS": _stats_totals,
    "TOTALS": _overall,
}
