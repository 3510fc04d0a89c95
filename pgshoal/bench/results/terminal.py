"""Tables in colour for the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pgshoal.bench.model import Experiment
from pgshoal.bench.results import tables, verdicts
from pgshoal.bench.results.combine import Group

WORD_MOST = 12
LOG_WIDTH = 140  # of tables where nobody says how wide they may be


class Patient(Console):
    """A console whose reader may go, as `head` does: what nobody reads is dropped, and the work goes on."""

    def on_broken_pipe(self) -> None:
        """Whatever is said from now on, also while Python ends, goes nowhere."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def patient(**how: Any) -> Patient:
    """Standard output, as wide as its terminal is."""
    return Patient(width=None if sys.stdout.isatty() else LOG_WIDTH, **how)


def of_groups(experiment: Experiment, groups: Sequence[Group]) -> RichTable:
    """The medians of cells."""
    return of_table(experiment.title, tables.medians(experiment, groups))


def of_table(title: str, content: tables.Table) -> RichTable:
    """Any table; what rests on no valid run is dim, what is notable is bold."""
    out = plain(title, content)
    for at, line in enumerate(content.lines):
        out.add_row(*map(Text, line), style=style_of(content, at))
    return out


def style_of(content: tables.Table, line: int) -> str | None:
    """How a line looks."""
    return "dim" if line in content.doubtful else "bold" if line in content.notable else None


def of_verdicts(title: str, found: Sequence[verdicts.Verdict]) -> RichTable:
    """Ratios against their bounds; green where met, red where missed."""
    lines = tuple(verdict.cells() for verdict in found)
    out = plain(title, tables.Table(verdicts.HEADINGS, lines, texts=3))
    styles = {True: "green", False: "red", None: ""}
    for at, verdict in enumerate(found):
        last = at + 1 == len(found) or found[at + 1].experiment is not verdict.experiment
        out.add_row(*map(Text, lines[at]), style=styles[verdict.met], end_section=last)
    return out


def plain(title: str, content: tables.Table) -> RichTable:
    """A table without frames and without lines; on narrow terminals headings and words wrap, numbers never do.

    The words of a heading are never broken: names of folders are such.
    """
    out = RichTable(title=Text(title), title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for at, heading in enumerate(content.headings):
        longest = max(len(word) for word in (*heading.split(), *(line[at] for line in content.lines), ""))
        if at < content.texts:
            word = max((len(word) for line in content.lines for word in line[at].split()), default=0)
            out.add_column(heading, overflow="fold", min_width=min(word, WORD_MOST))
        else:
            out.add_column(heading, justify="right", overflow="fold", min_width=longest)
    return out
