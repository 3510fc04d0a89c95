"""What a command of the bench does around the runner: knobs, folder, terminal, report, exit status."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from pgshoal.bench.experiments import EXPERIMENTS
from pgshoal.bench.knobs import KNOBS, Knobs, resolve
from pgshoal.bench.measure.process import raise_file_limit
from pgshoal.bench.model import Experiment
from pgshoal.bench.results.book import Book
from pgshoal.bench.results.chapters import Run, read
from pgshoal.bench.results.report import files_of
from pgshoal.bench.results.summary import show
from pgshoal.bench.results.terminal import patient
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
    """Runs, reports; the exit status.

    0 when all went well, 1 after failures (or missed targets, when strict), 2 for options that cannot be meant, 130
    when interrupted.
    """
    console = patient()
    try:
        knobs, folder = prepared(request)
    except (ValueError, OSError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 2 if isinstance(error, ValueError) else 1
    declared = {name: EXPERIMENTS[name] for name in request.names}
    ended = Ended()
    raise_file_limit(OPEN_FILES)
    try:
        with interruptible(), Screen(console) as screen:
            run(declared, knobs, folder, request.resume is not None, screen, ended)
    except KeyboardInterrupt:
        console.print("\nInterrupted; everything that was started has been stopped.")
        reported(folder, declared, console)
        return 130
    except (*FAILURES, ProgramsMissing) as error:
        console.print(f"The bench failed: {error}", style="red", markup=False, soft_wrap=True)
        ended.failed["bench"] = str(error)
    report = reported(folder, declared, console)
    if not ended.all_well or report is None:
        return 1
    return 1 if request.strict and missed(report, console) else 0


def prepared(request: Request) -> tuple[Knobs, Path]:
    """The knobs with a seed, and the folder; ValueError for a bad value, or a folder that holds another run."""
    knobs = resolve(request.options, os.environ, request.quick)
    facts = Book(request.resume).facts() if request.resume else {}
    if not knobs.int("seed"):
        seed = facts.get("seed") or random.SystemRandom().randrange(1, 1 << 31)
        knobs = resolve({**request.options, "seed": str(seed)}, os.environ, request.quick)
    if request.resume is None:
        return knobs, new_folder(Path(knobs.text("results")))
    if found := differences(facts, knobs, request.names, mattering(request.names)):
        raise ValueError(f"{request.resume} cannot be resumed: {'; '.join(found)}")
    return knobs, request.resume


def mattering(names: Iterable[str]) -> list[str]:
    """The knobs that these experiments look at, and the common ones."""
    own = {knob for name in names for one in EXPERIMENTS[name] for knob in one.knobs}
    return [name for name, knob in KNOBS.items() if knob.common or name in own]


def new_folder(results: Path) -> Path:
    """Named by the time, and not there yet."""
    name = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    later = (f"{name}-{number}" for number in itertools.count(2))
    return next(folder for one in itertools.chain([name], later) if not (folder := results / one).exists())


def reported(folder: Path, declared: Mapping[str, Sequence[Experiment]], console: Console) -> Run | None:
    """Writes the report of whatever the folder holds and shows its tables; None when that did not succeed."""
    if not Book(folder).rows():
        console.print("No run was made, so there is no report.")
        return Run(folder, {}, ())
    try:
        found = read(folder, declared)
        path = files_of(found)
    except (*FAILURES, ImportError) as error:
        console.print(f"The report failed: {error}; the rows are in {folder}", style="red", markup=False)
        return None
    show(found, console)
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
    return found


def missed(report: Run, console: Console) -> int:
    """How many targets were missed, each said."""
    parts = [part for chapter in report.chapters for part in chapter.parts]
    found = [verdict for part in parts for verdict in part.verdicts if verdict.met is False]
    for verdict in found:
        console.print(f"missed: {'  '.join(filter(None, verdict.cells()))}", style="red", markup=False, soft_wrap=True)
    return len(found)
