"""What a command of the bench does around the runner: knobs, folder, terminal, report, exit status."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.knobs import Knobs, resolve
from pgshoal.bench.measure.process import raise_file_limit
from pgshoal.bench.model import Experiment
from pgshoal.bench.results import report
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.combine import groups
from pgshoal.bench.results.verdicts import verdicts
from pgshoal.bench.run.progress import Screen
from pgshoal.bench.run.resume import differences
from pgshoal.bench.run.runner import FAILURES, Ended, run
from pgshoal.demo.programs import ProgramsMissing
from pgshoal.demo.show import interruptible

OPEN_FILES = 20_000  # clients, and both sides of those that a pooler of ours has


@dataclass(frozen=True)
class Request:
    """What the command line asked for; `options` are knobs as typed, None where they were not given."""

    names: tuple[str, ...]
    options: Mapping[str, str | None]
    quick: bool
    strict: bool
    resume: Path | None


def measure(request: Request) -> int:
    """Runs, reports; 0 when all went well, 1 after failures (or missed targets, when strict), 130 when interrupted."""
    console = Console()
    try:
        knobs, folder = prepared(request)
    except (ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    declared = [one for name in request.names for one in EXPERIMENTS[name]]
    ended: Ended | None = None
    interrupted = False
    raise_file_limit(OPEN_FILES)
    try:
        with interruptible(), Screen(console) as screen:
            ended = run(request.names, declared, knobs, folder, request.resume is not None, screen)
    except KeyboardInterrupt:
        interrupted = True
        console.print("\nInterrupted; everything that was started has been stopped.")
    except (*FAILURES, ProgramsMissing) as error:
        console.print(f"The bench failed: {error}", style="red", markup=False, soft_wrap=True)
    reported = write_report(folder, console)
    if interrupted:
        return 130
    if ended is None or not ended.all_well or not reported:
        return 1
    return 1 if request.strict and missed(folder, declared, console) else 0


def prepared(request: Request) -> tuple[Knobs, Path]:
    """The knobs with a seed, and the folder; ValueError for a bad value, or a folder that holds another run."""
    knobs = resolve(request.options, os.environ, request.quick)
    facts = Book(request.resume).facts() if request.resume else {}
    if not knobs.int("seed"):
        seed = facts.get("seed") or random.SystemRandom().randrange(1, 1 << 31)
        knobs = resolve({**request.options, "seed": str(seed)}, os.environ, request.quick)
    if request.resume is None:
        return knobs, Path(knobs.text("results")) / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    if found := differences(facts, knobs, request.names):
        raise ValueError(f"{request.resume} cannot be resumed: {'; '.join(found)}")
    return knobs, request.resume


def write_report(folder: Path, console: Console) -> bool:
    """The report of whatever the folder holds; whether that succeeded."""
    if not Book(folder).rows():
        console.print("no run was made: no report")
        return True
    try:
        path = report.write(folder)
    except (*FAILURES, ImportError) as error:
        console.print(f"The report failed: {error}; the rows are in {folder}", style="red", markup=False)
        return False
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
    return True


def missed(folder: Path, declared: Sequence[Experiment], console: Console) -> int:
    """How many targets were missed, each said."""
    every = groups(Book(folder))
    count = 0
    for experiment in declared:
        for verdict in verdicts(experiment, [one for one in every if one.first.experiment == experiment.name]):
            if verdict.met is False:
                count += 1
                console.print(f"missed: {'  '.join(filter(None, verdict.cells()))}", style="red", markup=False)
    return count
