"""Published ratios beside ours: the same question asked of a folder's medians."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    def factor(self) -> float | None:
        """Ours as a multiple of the published one."""
        return self.here / self.published.value if self.here is not None and self.published.value else None


def beside(experiment: Experiment, groups: Sequence[Group]) -> list[Beside]:
    """Each published figure of an experiment, once for each kind of target that can stand beside it."""
    found = []
    for published in experiment.published:
        ours = [one for one in measured(experiment.name, published, groups) if one.here is not None]
        found += ours or [Beside(experiment.name, published)]
    return found


def measured(name: str, published: Published, groups: Sequence[Group]) -> Iterator[Beside]:
    """Our figures for a published one; picks without a kind are of the same target on both sides."""
    top, bottom = published.top, published.bottom
    for family in families(top, bottom, groups):
        above = picked(top, groups, family)
        below = picked(bottom, groups, family) if bottom else []
        here = middle(top, above)
        if bottom and here is not None:
            base = middle(bottom, below)
            here = here / base if base else None
        valid = all(group.valid for group in (*above, *below))
        kind = next(group.first.kind for group in groups if group.family == family)
        yield Beside(name, published, family, kind, here, valid)


def families(top: Pick, bottom: Pick | None, groups: Sequence[Group]) -> Iterable[str]:
    """The targets looked at: of the kind asked for; where none is, all but the kind that they are held against."""
    if top.kind:
        return dict.fromkeys(group.family for group in groups if group.first.kind == top.kind)
    base = bottom.kind if bottom else ""
    return dict.fromkeys(group.family for group in groups if group.first.kind != base)


def picked(pick: Pick, groups: Sequence[Group], family: str) -> list[Group]:
    """The cells a pick chooses; of a fixed kind that is not the family's, whichever there are."""
    of_kind = [group for group in groups if not pick.kind or group.first.kind == pick.kind]
    own = [group for group in of_kind if group.family == family]
    candidates = own if own or not pick.kind else of_kind
    return [group for group in candidates if all(group.facet(name) == value for name, value in pick.where.items())]


def middle(pick: Pick, groups: Sequence[Group]) -> float | None:
    """The median of the picked cells' figures; None when there are none."""
    found = [value for group in groups if (value := group.value(pick.figure)) is not None]
    return statistics.median(found) if found else None
