"""Rows as they were measured, their medians, and the table a reader sees."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from pgshoal.bench.old_experiments import Experiment, Metric


@dataclass(frozen=True)
class Row:
    """One figure of one contender in one round; `error` tells why there is none."""

    experiment: str
    metric: str
    contender: str
    round: int
    value: float
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    """One contender against another in one metric: both medians of the same run, their ratio, the target."""

    experiment: Experiment
    metric: Metric
    engine: str
    value: float
    reference: float
    error: str = ""

    @property
    def ratio(self) -> float:
        """How many times the reference's figure."""
        return self.value / self.reference if self.reference else float("nan")

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None when there is none."""
        if self.error:
            return False if self.engine in self.metric.targets else None
        return self.metric.met(self.engine, self.ratio, self.value)

    def cells(self) -> tuple[str, ...]:
        """The line of the table."""
        bound = self.metric.targets.get(self.engine)
        sign = "≥" if self.metric.higher_is_better else "≤"
        target = "" if bound is None else f"{sign} {bound:,.0f}" if self.metric.absolute else f"{sign} {bound:.2f}"
        met = {True: "yes", False: "NO", None: ""}[self.met]
        if self.error:
            return (self.experiment.name, self.metric.name, self.engine, "failed", "", "", target, met)
        values = [f"{v:,.2f}" if abs(v) < 1000 else f"{v:,.0f}" for v in (self.value, self.reference)]
        ratio = f"{self.ratio:.2f}" if self.reference > 0 < self.value else ""
        against = f" against {self.metric.base}" if self.metric.base and not self.metric.absolute else ""
        return (
            self.experiment.name,
            f"{self.metric.name}, {self.metric.unit}{against}",
            self.engine,
            *values,
            ratio,
            target,
            met,
        )


HEADINGS = ("experiment", "metric", "contender", "value", "reference", "ratio", "target", "met")


def verdicts(experiment: Experiment, engines: Iterable[str], rows: Sequence[Row], reference: str) -> list[Verdict]:
    """The verdicts of one experiment, from the rows of one run; `reference` where a metric names no other base."""

    def median(metric: str, contender: str) -> float:
        found = [r.value for r in rows if (r.metric, r.contender) == (metric, contender) and not r.error]
        return statistics.median(found) if found else float("nan")

    out = []
    for metric in experiment.metrics:
        base = metric.base or reference
        for engine in engines:
            if engine == base and not metric.absolute:
                continue
            errors = [r.error for r in rows if r.error and r.contender in (engine, base)]
            value, other = median(metric.name, engine), median(metric.name, base)
            out.append(Verdict(experiment, metric, engine, value, other, errors[0] if errors else ""))
    return out


def table(found: Sequence[Verdict], title: str) -> Table:
    """All verdicts for the terminal."""
    out = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in HEADINGS:
        out.add_column(heading, justify="left" if heading in HEADINGS[:3] else "right")
    styles = {True: "green", False: "red", None: ""}
    for at, verdict in enumerate(found):
        last = at + 1 == len(found) or found[at + 1].experiment is not verdict.experiment
        out.add_row(*verdict.cells(), style=styles[verdict.met], end_section=last)
    return out


class Book:
    """The folder of one run: every row as it comes, the summary at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, rows: Iterable[Row]) -> None:
        """Appends rows at once, so that an interrupted run keeps what it has."""
        with (self.folder / "rows.jsonl").open("a") as out:
            out.writelines(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)

    def summarize(self, found: Sequence[Verdict], facts: Sequence[str]) -> Path:
        """Writes summary.md."""
        lines = ["# pgshoal against PgBouncer, one run", "", *(f"- {fact}" for fact in facts), ""]
        lines += [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
        lines += [f"| {' | '.join((v.experiment.title, *v.cells()[1:]))} |" for v in found]
        lines += ["", *(f"{v.experiment.name}, {v.engine}: {v.error.splitlines()[0]}  " for v in found if v.error)]
        path = self.folder / "summary.md"
        path.write_text("\n".join(lines) + "\n")
        return path
