"""Published ratios beside ours: the same question asked of a folder's medians."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pgshoal.bench.model import Experiment, Kind, Pick, Published
from pgshoal.bench.results.combine import Group


@dataclass(frozen=True)
class Beside:
    """One published figure and ours; `family` is the target ours is of, `here` is None where it was not measured."""

    experiment: str
    published: Published
    family: str = ""
    kind: Kind = "direct"
    here: float | None = None
    valid: bool = True

    @property
    def words(self) -> str:
        """What was published, and the target that ours is of where that does not say it."""
        said = self.published.text
        return said if not self.family or said.endswith(self.family) else f"{said}, {self.family}"

    @property
    def factor(self) -> float | None:
        """Ours as a multiple of the published one."""
        return self.here / self.published.value if self.here is not None and self.published.value else None


def beside(experiment: Experiment, groups: Sequence[Group]) -> list[Beside]:
    """Each published figure of an experiment, once for each kind of target that can stand beside it."""
    found = []
    for published in experiment.published:
        ours = [one for one in measured(experiment.name, published, groups) if one.here is not None]
        names = [one.family.partition(" ")[0] for one in ours]
        if len(set(names)) == len(names):  # what was published says itself which option is meant
            ours = [replace(one, family=name) for one, name in zip(ours, names, strict=True)]
        found += ours or [Beside(experiment.name, published)]
    return found


def measured(name: str, published: Published, groups: Sequence[Group]) -> Iterator[Beside]:
    """Our figures for a published one; picks without a kind are of the same target on both sides."""
    top, bottom = published.top, published.bottom
    for family in dict.fromkeys(group.family for group in groups if looked_at(group, top, bottom)):
        own = [group for group in groups if group.family == family]
        above, below = chosen(top, own), []
        here = middle(top, above)
        if bottom and here is not None:
            kind = bottom.kind or own[0].first.kind
            alike = [group for group in groups if group.first.kind == kind]
            below = chosen(bottom, [group for group in alike if group.family == family]) or chosen(bottom, alike)
            base = middle(bottom, below)
            here = here / base if base else None
        valid = all(group.valid for group in (*above, *below))
        yield Beside(name, published, family, own[0].first.kind, here, valid)


def looked_at(group: Group, top: Pick, bottom: Pick | None) -> bool:
    """Whether a cell's target gets a line: those of the kind asked for; where none is, all poolers, but the base's."""
    kind = group.first.kind
    return kind == top.kind if top.kind else kind not in ("direct", bottom.kind if bottom else "")


def chosen(pick: Pick, groups: Sequence[Group]) -> list[Group]:
    """The cells whose variant, or number of processes, is as asked."""
    return [group for group in groups if all(group.facet(name) == value for name, value in pick.where.items())]


def middle(pick: Pick, groups: Sequence[Group]) -> float | None:
    """The median of the picked cells' figures; None when there are none."""
    found = [value for group in groups if (value := group.value(pick.figure)) is not None]
    return statistics.median(found) if found else None
