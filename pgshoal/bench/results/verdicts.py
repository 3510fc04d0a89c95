"""Ratios between targets of one run, judged by the bounds an experiment declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgshoal.bench.model import Experiment, Metric
from pgshoal.bench.results.combine import Group
from pgshoal.bench.results.words import number, ratio, title

HEADINGS = ("experiment", "metric", "target", "value", "reference", "ratio", "bound", "met")


@dataclass(frozen=True)
class Verdict:
    """One cell against the base of a metric in the same variant; without a base only its value is judged."""

    experiment: Experiment
    metric: Metric
    group: Group
    base: Group | None

    @property
    def value(self) -> float | None:
        """The figure that is judged."""
        return self.group.value(self.metric.name)

    @property
    def reference(self) -> float | None:
        """The base's figure."""
        return self.base.value(self.metric.name) if self.base else None

    @property
    def ratio(self) -> float | None:
        """How many times the reference's figure."""
        value, reference = self.value, self.reference
        return value / reference if value is not None and reference else None

    @property
    def bound(self) -> float | None:
        """What the ratio, or the value, should keep to."""
        return self.metric.targets.get(self.group.first.target)

    @property
    def trouble(self) -> str:
        """Why there is no verdict: a run that failed on either side, or no valid run."""
        for group in filter(None, (self.group, self.base)):
            if group.failed:
                return f"{group.first.target}: {group.failed}"
        for group in filter(None, (self.group, self.base)):
            if not group.valid:
                return f"{group.first.target}: no valid run: {'; '.join(group.rows[0].invalid)}"
        return ""

    @property
    def met(self) -> bool | None:
        """Whether the bound is met, never where a run failed; None without a bound, or when no run is valid."""
        if self.bound is None:
            return None
        if self.trouble:
            return False if self.group.failed or (self.base and self.base.failed) else None
        value, ratio = self.value, self.ratio
        if value is None or (ratio is None and not self.metric.absolute):
            return None
        return self.metric.met(self.group.first.target, ratio or 0.0, value)

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        sign = "≥" if self.metric.higher_is_better else "≤"
        figure = number if self.metric.absolute else ratio
        bound = "" if self.bound is None else f"{sign} {figure(self.bound)}"
        against = f" against {self.base.first.target}" if self.base and not self.metric.absolute else ""
        failed = self.group.failed or (self.base and self.base.failed)
        met = {True: "yes", False: "NO", None: "not judged" if self.bound is not None else ""}[self.met]
        return (
            " ".join(filter(None, (self.experiment.name, self.group.variant))),
            f"{title(self.metric.name, self.metric.unit)}{against}",
            self.group.first.target,
            "failed" if failed else number(self.value),
            "" if failed or self.metric.absolute else number(self.reference),
            "" if failed or self.metric.absolute else ratio(self.ratio),
            bound,
            met,
        )


def verdicts(experiment: Experiment, groups: Sequence[Group]) -> list[Verdict]:
    """All cells of an experiment against the bases of its metrics; where values are judged, those with a bound."""
    found = []
    for metric in experiment.metrics:
        for group in groups:
            if not metric.absolute and (not metric.base or group.first.target == metric.base):
                continue
            if metric.absolute and group.first.target not in metric.targets:
                continue
            if group.value(metric.name) is None and not any(row.spoiled for row in group.rows):
                continue
            base = None if metric.absolute else base_of(group, metric.base, groups)
            if metric.absolute or base:
                found.append(Verdict(experiment, metric, group, base))
    return found


def base_of(group: Group, target: str, groups: Sequence[Group]) -> Group | None:
    """The base's runs in the same variant, or in the part of it that the base has."""
    bases = [other for other in groups if other.first.target == target]
    same = [other for other in bases if other.first.variant == group.first.variant]
    part = [other for other in bases if other.first.variant.items() <= group.first.variant.items()]
    return next(iter(same or part), None)
