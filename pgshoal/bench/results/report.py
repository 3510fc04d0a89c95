"""`report.html` and all other files of a folder, from its rows alone; several folders beside each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pgshoal.bench.results import across, charts, csvfiles, ladders, page, paint, summary, terminal
from pgshoal.bench.results.book import write_whole
from pgshoal.bench.results.chapters import Chapter, Declared, Part, Run, read
from pgshoal.bench.results.tables import Table, medians
from pgshoal.bench.results.verdicts import HEADINGS, Verdict
from pgshoal.bench.results.words import listed

LEGEND = (
    "Medians are of valid runs; percentiles are of all samples of those runs taken together. "
    "Pale bars, hollow points and lines in italics rest on no valid run; dots on bars are single runs. "
    "Distributions leave out the quickest tenth."
)
REPORT, COMPARISON, CHARTS = "report.html", "comparison.html", "charts"


def write(folder: Path, declared: Declared | None = None) -> Path:
    """Makes summary.md, summary.txt, the CSV files, charts/ and report.html; ValueError where there are no rows."""
    return files_of(read(folder, declared))


def files_of(run: Run) -> Path:
    """All files of a folder that has been read; the path of the report."""
    summary.write(run)
    csvfiles.write(run)
    shutil.rmtree(run.folder / CHARTS, ignore_errors=True)
    path = run.folder / REPORT
    write_whole(path, page.page(f"Benchmark {run.facts.get('started', '')}".strip(), body(run)))
    return path


def main(dirs: Sequence[Path]) -> int:
    """`pgshoal bench report`: redraws each folder, compares them when there are several; the exit status."""
    console = terminal.patient()
    runs = []
    try:
        for folder in dirs:
            runs.append(read(folder))
            console.print(f"{files_of(runs[-1])}", highlight=False, soft_wrap=True)
    except (OSError, ValueError) as error:
        console.print(Text(f"The report failed: {error}", style="red"), soft_wrap=True)
        return 1
    if len(runs) == 1:
        summary.show(runs[0], console)
    elif runs:
        compare(runs, console)
    return 0


def compare(runs: Sequence[Run], console: Console) -> None:
    """Prints the runs side by side, and leaves the same as a page in the last of the folders."""
    for difference in across.differences(runs):
        console.print(Text(f"differs: {difference}", style="yellow"), soft_wrap=True)
    for title, table in across.tables(runs):
        console.print(terminal.of_table(title, table))
    path = runs[-1].folder / COMPARISON
    write_whole(path, page.page("Benchmarks compared", comparison(runs)))
    console.print(f"{path}", highlight=False, soft_wrap=True)


def body(run: Run) -> Iterator[str]:
    """The report's pieces."""
    yield "<header><h1>Benchmark report</h1>"
    lead = " · ".join(str(run.facts.get(name, "")).replace("T", " ") for name in ("kit", "started"))
    yield f'<p class="lead">{escape(lead)}</p>'
    yield page.facts({name: value for name, value in run.facts.items() if name not in ("left_out", "failed")})
    yield "</header>"
    given_up = [f"{name}: {why}" for name, why in dict(run.facts.get("failed", {})).items()]
    yield page.warning("Given up", given_up)
    yield page.warning("Left out", left_out(run.facts.get("left_out", {})))
    yield from contents(run)
    for chapter in run.chapters:
        yield from of_chapter(run, chapter)
    yield from of_published(run)
    yield f"<footer>{escape(LEGEND)}</footer>"


def left_out(cells: Mapping[str, str]) -> list[str]:
    """How many cells, and of which experiments, for each reason; the cell itself where it is the only one."""
    of: dict[str, list[str]] = {}
    for key, why in cells.items():
        of.setdefault(why, []).append(key)
    return [
        f"{why}: {' '.join(filter(None, keys[0].split('|')))}"
        if len(keys) == 1
        else f"{why}: {len(keys)} cells of {listed(list(dict.fromkeys(key.partition('|')[0] for key in keys)))}"
        for why, keys in of.items()
    ]


def contents(run: Run) -> Iterator[str]:
    """A line for each chapter: where it is, and what came out."""
    yield "<nav><ol>"
    for chapter in run.chapters:
        name = escape(chapter.name)
        yield f'<li><a href="#{name}">{name}</a><span>{escape(chapter.finding)}</span></li>'
    yield "</ol></nav>"


def of_chapter(run: Run, chapter: Chapter) -> Iterator[str]:
    """Question, sentence, table, charts."""
    name, alone = escape(chapter.name), len(chapter.parts) == 1
    tag = f'<span class="tag">{name}</span>' if alone else ""
    yield f'<section class="chapter" id="{name}"><h2>{escape(chapter.title)}{tag}</h2>'
    told = {part.question for part in chapter.parts} == {chapter.question}
    yield from asked_and_found(chapter.question if told else "", chapter.finding if told else "")
    if judged := chapter.verdicts:
        yield of_verdicts(judged)
    colours = paint.colours([group for part in chapter.parts for group in part.groups])
    doubts = page.warning("Runs that do not count", chapter.complaints)
    for part in chapter.parts:
        if not alone:
            yield f"<h3>{escape(part.experiment.title)}</h3>"
        if not told:
            yield from asked_and_found(part.question, part.finding)
        table = page.table(medians(part.experiment, part.groups), colours)
        pictures = list(drawn(run.folder, part, colours))
        if alone:
            yield table + doubts + page.charts(pictures)
        else:
            yield page.beside(table, pictures) if len(pictures) == 1 else table + page.charts(pictures)
    yield "" if alone else doubts
    yield "</section>"


def asked_and_found(question: str, finding: str) -> Iterator[str]:
    """The question in grey, and what came out."""
    if question:
        yield f'<p class="question">{escape(question)}</p>'
    if finding:
        yield f'<p class="finding">{escape(finding)}</p>'


def drawn(folder: Path, part: Part, colours: paint.Colours) -> Iterator[str]:
    """The charts of one experiment, written as files on the way."""
    for at, chart in enumerate(part.experiment.charts):
        figure = charts.draw(chart, part.groups, colours)
        if figure is not None:
            yield paint.save(figure, folder / CHARTS, f"{part.experiment.name}-{at + 1}-{chart.kind}")


def of_verdicts(found: Sequence[Verdict]) -> str:
    """Ratios and bounds, coloured by whether they are met."""
    names = {True: "met", False: "missed", None: ""}
    classes = {at: names[verdict.met] for at, verdict in enumerate(found) if names[verdict.met]}
    return page.table(Table(HEADINGS, tuple(v.cells() for v in found), texts=3), classes=classes)


def of_published(run: Run) -> Iterator[str]:
    """The last section."""
    found = [one for chapter in run.chapters for one in chapter.published]
    if found:
        yield '<section class="chapter" id="published"><h2>published / here</h2>'
        yield '<p class="question">Ratios travel between machines, absolute figures do not.</p>'
        yield page.table(summary.of_published(found))
        figure = ladders.published(found)
        yield page.charts([paint.save(figure, run.folder / CHARTS, "published")] if figure else [])
        yield "</section>"


def comparison(runs: Sequence[Run]) -> Iterator[str]:
    """The pieces of a comparison's page."""
    yield "<header><h1>Benchmarks compared</h1>"
    yield f'<p class="lead">{escape(" / ".join(across.names(runs)))}</p></header>'
    found = across.differences(runs)
    yield "<p>Lines in bold differ by more than the repeats of these runs do.</p>"
    yield page.warning("Not alike: figures may differ for these reasons, too", [str(one) for one in found])
    for title, table in across.tables(runs):
        yield f'<section class="chapter"><h2>{escape(title)}</h2>{page.table(table)}</section>'
