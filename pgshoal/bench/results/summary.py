"""summary.md for a page in a repository, summary.txt for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from pgshoal.bench.results import terminal
from pgshoal.bench.results.chapters import Chapter, Run
from pgshoal.bench.results.page import worded
from pgshoal.bench.results.published import Beside
from pgshoal.bench.results.tables import Table, medians
from pgshoal.bench.results.verdicts import HEADINGS
from pgshoal.bench.results.words import number, ratio

TEXT_WIDTH = 140
BESIDE = ("experiment", "figure", "target", "published", "here", "here / published")
SHOWN = ("started", "kit", "seed", "quick", "machine", "versions")


def write(run: Run) -> None:
    """Writes both."""
    (run.folder / "summary.md").write_text("\n".join(markdown(run)) + "\n")
    with (run.folder / "summary.txt").open("w") as out:
        show(run, Console(file=out, width=TEXT_WIDTH, no_color=True))


def markdown(run: Run) -> Iterator[str]:
    """The lines of summary.md."""
    yield from (f"# Benchmark of {run.facts.get('started', run.folder.name)}", "")
    yield from (f"- {name}: {worded(run.facts[name])}" for name in SHOWN if name in run.facts)
    for chapter in run.chapters:
        yield from ("", f"## {chapter.title}", "")
        yield from (f"{chapter.question}  ", f"**{chapter.finding}**")
        for part in chapter.parts:
            yield from ("", *(["### " + part.experiment.title, ""] if len(chapter.parts) > 1 else []))
            yield from of_table(medians(part.experiment, part.groups))
        if judged := [verdict.cells() for verdict in chapter.verdicts]:
            yield ""
            yield from of_table(Table(HEADINGS, tuple(judged), texts=3))
        if chapter.complaints:
            yield from ("", "Runs that do not count:", "", *(f"- {line}" for line in chapter.complaints))
    if beside := [one for chapter in run.chapters for one in chapter.published]:
        yield from ("", "## published / here", "")
        yield from of_table(of_published(beside))


def of_published(found: Sequence[Beside]) -> Table:
    """Published figures beside ours; what a line shares with the one above it is not repeated."""
    lines, before = [], ("", "", "")
    for one in found:
        name, text, source = place = (one.experiment, one.published.text, one.published.source)
        known = before[::2] == (name, source)
        told = text if known or not source else f"{text} ({source})"
        start = ("" if name == before[0] else name, "" if place == before else told)
        factor = ratio(one.factor) if one.factor is not None else ""
        lines.append((*start, one.family or "not measured", number(one.published.value), number(one.here), factor))
        before = place
    doubtful = frozenset(at for at, one in enumerate(found) if one.here is None or not one.valid)
    return Table(BESIDE, tuple(lines), doubtful, 3)


def of_table(table: Table) -> Iterator[str]:
    """A table in Markdown; what rests on no valid run is in italics."""
    yield f"| {' | '.join(table.headings)} |"
    yield "|" + "".join("---|" if at < table.texts else "---:|" for at in range(len(table.headings)))
    for at, line in enumerate(table.lines):
        cells = [text.replace("|", "\\|") for text in line]
        yield f"| {' | '.join(f'*{text}*' if at in table.doubtful and text else text for text in cells)} |"


def show(run: Run, console: Console) -> None:
    """All tables of a run on a terminal, or into a text file."""
    for chapter in run.chapters:
        show_chapter(chapter, console)
    beside = [one for chapter in run.chapters for one in chapter.published]
    if beside:
        console.print(terminal.of_table("published / here", of_published(beside)))


def show_chapter(chapter: Chapter, console: Console) -> None:
    """The tables and the sentence of one name."""
    for part in chapter.parts:
        console.print(terminal.of_groups(part.experiment, part.groups))
    if judged := chapter.verdicts:
        console.print(terminal.of_verdicts(f"{chapter.name}: ratios", judged))
    for line in chapter.complaints:
        console.print(line, style="yellow", markup=False, highlight=False)
    console.print(chapter.finding, style="bold", markup=False, highlight=False)
    console.print()
