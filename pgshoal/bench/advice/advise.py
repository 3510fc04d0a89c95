"""`pgshoal advise`: how many workers, where the bottleneck is, what one more worker would bring."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from pgshoal.bench.advice.live import watched
from pgshoal.bench.advice.sizes import Ladder, ladders
from pgshoal.bench.advice.usl import fit
from pgshoal.bench.advice.verdict import Advice, advise
from pgshoal.bench.results import terminal
from pgshoal.bench.results.book import ROWS, Book
from pgshoal.bench.results.combine import gathered


def main(source: Path, seconds: float) -> int:
    """Prints advice for a bench folder, or for the fleet that runs from a file; returns the exit status."""
    try:
        lines = from_folder(source) if source.is_dir() else from_fleet(source, seconds)
    except (OSError, ValueError) as error:
        print(f"pgshoal advise: {error}", file=sys.stderr)
        return 1
    terminal.patient().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return 0


def from_folder(folder: Path) -> list[str]:
    """The advice from the runs that tell most, and what they were; ValueError where there are none."""
    if not (folder / ROWS).exists():
        raise ValueError(f"{folder} holds no {ROWS}: a folder of `pgshoal bench` is wanted")
    found = ladders(gathered(Book(folder).rows()))
    if not found:
        raise ValueError(f"{folder} holds no runs of a pooler with a rate: `pgshoal bench scaling` makes them")
    ladder = found[0]
    doubts = [f"{ladder.doubt}: take this as a hint."] if ladder.doubt else []
    return list(told(of_ladder(ladder), [f"From {ladder.text}.", *doubts]))


def of_ladder(ladder: Ladder) -> Advice:
    """The advice from sizes that were measured."""
    return advise(ladder.evidence(), fit(ladder.rates()))


def from_fleet(file: Path, seconds: float) -> list[str]:
    """The advice from a fleet at work."""
    seen, notes = watched(file, seconds)
    if not seen.rate:
        return ["No change: no transaction ended while the fleet was watched.", *notes]
    return list(told(advise([seen], fit({seen.workers: (seen.rate,)})), notes))


def told(advice: Advice, sources: Iterable[str]) -> Iterable[str]:
    """The advice as lines."""
    yield advice.headline
    yield f"Bottleneck: {advice.finding.where}."
    yield from advice.reasons
    yield from sources
