"""Runs the experiments: PgBouncer and each engine in turn, several rounds, medians, ratios."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from rich.console import Console

from pgshoal.bench import process, runners
from pgshoal.bench.old_experiments import Experiment, chosen
from pgshoal.bench.old_results import Book, Row, Verdict, table, verdicts
from pgshoal.bench.old_stand import ENGINES, REFERENCE, Sizes, Stand
from pgshoal.bench.targets import pgbouncer
from pgshoal.demo.pooler import Pooler
from pgshoal.demo.programs import ProgramsMissing
from pgshoal.demo.show import interruptible

QUICK = Sizes(seconds=2, rounds=1, idle_clients=2_000)
SPARE_FILES = 400
ONE_ROUND = frozenset({"idle", "memory", "workers"})  # figures that do not scatter, and take long
COPY_ROUNDS = 3  # at least: a copy lasts less than a second, and any other work on the machine shows


def main(
    quick: bool = False,
    only: Sequence[str] = (),
    engines: Sequence[str] = ENGINES,
    rounds: int | None = None,
    seconds: int | None = None,
    results_dir: Path = Path("bench-results"),
    strict: bool = False,
) -> int:
    """Measures and reports; 0 unless something failed or, when strict, a target was missed."""
    console = Console()
    try:
        todo = chosen(tuple(only), quick)
        if unknown := set(engines) - set(ENGINES):
            raise ValueError(f"no engine {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
        with interruptible(), Stand(sizes(quick, rounds, seconds)) as stand:
            found = measure_all(stand, todo, tuple(engines), Book(folder_of_run(results_dir)), console)
    except KeyboardInterrupt:
        console.print("\nInterrupted; everything that was started has been stopped.")
        return 130
    except (ValueError, ProgramsMissing, pgbouncer.NoPgBouncer, RuntimeError, OSError) as error:
        console.print(f"The bench failed: {error}", markup=False, style="red")
        return 1
    missed = any(v.met is False for v in found)
    return 1 if any(v.error for v in found) or (strict and missed) else 0


def sizes(quick: bool, rounds: int | None, seconds: int | None) -> Sizes:
    """The sizes asked for, with as many idle clients as the limit of open files allows."""
    base = QUICK if quick else Sizes()
    files = process.raise_file_limit(base.idle_clients + SPARE_FILES)
    idle = min(base.idle_clients, files - SPARE_FILES)
    return Sizes(seconds or base.seconds, rounds or base.rounds, idle, base.copy_mb)


def folder_of_run(results_dir: Path) -> Path:
    """A folder named by the time, so that runs do not mix."""
    return results_dir / datetime.now().strftime("%Y-%m-%d-%H%M%S")


def measure_all(
    stand: Stand, todo: Sequence[Experiment], engines: tuple[str, ...], book: Book, console: Console
) -> list[Verdict]:
    """Runs all experiments, printing each table row group as soon as it is known and all of them at the end."""
    found: list[Verdict] = []
    facts = describe(stand)
    for fact in facts:
        console.print(fact, highlight=False)
    for number, experiment in enumerate(todo, 1):
        if experiment.tls and stand.tls_folder is None:
            console.print(f"left out: {experiment.title} (the system has no PostgreSQL built with TLS)", style="yellow")
            continue
        with console.status(f"{number}/{len(todo)} {experiment.title}"):
            rows = list(measure(stand, experiment, experiment.fleets or (REFERENCE, *engines)))
        book.add(rows)
        fresh = verdicts(experiment, experiment.fleets or engines, rows, REFERENCE)
        found += fresh
        for verdict in fresh:
            console.print("  ".join(c for c in verdict.cells() if c), highlight=False, soft_wrap=True)
    console.print(table(found, "pgshoal against PgBouncer, medians of one run"))
    for verdict in found:
        if verdict.error:
            console.print(f"{verdict.experiment.name}, {verdict.engine}: {verdict.error}", markup=False, style="red")
    console.print(f"rows and summary: {book.summarize(found, facts).parent}", highlight=False)
    return found


def measure(stand: Stand, experiment: Experiment, contenders: Sequence[str]) -> Iterator[Row]:
    """All rounds of one experiment; each round begins with another contender, so that no one always goes first."""
    with ExitStack() as stack:
        poolers: dict[str, Pooler] = {}
        for contender in contenders:
            try:
                poolers[contender] = stack.enter_context(stand.pooler(contender, experiment))
                runners.warm_up(stand, poolers[contender], experiment)
            except (RuntimeError, OSError) as error:
                poolers.pop(contender, None)
                yield Row(experiment.name, "", contender, 0, 0.0, str(error))
        for round_number in range(rounds_of(experiment, stand)):
            names = list(poolers)
            shift = round_number % len(names) if names else 0
            for contender in names[shift:] + names[:shift]:
                yield from one_run(stand, poolers[contender], experiment, contender, round_number)


def rounds_of(experiment: Experiment, stand: Stand) -> int:
    """How often an experiment is repeated."""
    if experiment.kind in ONE_ROUND:
        return 1
    return max(stand.sizes.rounds, COPY_ROUNDS) if experiment.kind == "copy" else stand.sizes.rounds


def one_run(stand: Stand, pooler: Pooler, experiment: Experiment, contender: str, round_number: int) -> Iterator[Row]:
    """The rows of one contender in one round; a failure is a row too."""
    try:
        figures = runners.RUNNERS[experiment.kind](stand, pooler, experiment)
    except (RuntimeError, OSError) as error:
        ending = f"; the pooler {'runs' if pooler.running else 'has ended'}, its log: {pooler.log_text()[-1000:]}"
        yield Row(experiment.name, "", contender, round_number, 0.0, f"{error}{ending}")
        return
    for metric, value in figures.items():
        yield Row(experiment.name, metric, contender, round_number, value)


def describe(stand: Stand) -> list[str]:
    """What a reader must know to judge the numbers."""
    version = ".".join(str(part) for part in pgbouncer.version_of(stand.reference))
    return [
        f"PgBouncer {version}, PostgreSQL {stand.cluster.programs.major}",
        f"Linux {platform.release()}, {os.cpu_count()} cores",
        f"{stand.sizes.rounds} rounds of {stand.sizes.seconds} s, {stand.sizes.idle_clients} idle clients",
    ]
