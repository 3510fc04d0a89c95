"""What `pgshoal check FILE --live` prints: possible server connections against what the servers have."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.table import Column, Table

from pgshoal.config.load import load
from pgshoal.config.model import Config
from pgshoal.fleet.foresight import Memory, look
from pgshoal.policy import foresight
from pgshoal.policy.foresight import place_text


def main(path: str) -> int:
    """For a file that has just been checked; returns the exit code."""
    return show(load(path), Console())


def show(config: Config, console: Console) -> int:
    """Ask, print a table and what it rests on; returns the exit code."""
    outlook = asyncio.run(look(config, Memory()))
    table = Table(Column("server", overflow="fold"), "version", "limit of", "possible", "fit", "verdict")
    for verdict in outlook.verdicts:
        places = "\n".join(map(place_text, verdict.places))
        possible = "no limit" if verdict.possible is None else str(verdict.possible)
        judged = "fits" if verdict.fits else "DOES NOT FIT"
        table.add_row(places, verdict.version, verdict.subject, possible, str(verdict.allowed), judged)
    for place in outlook.errors:
        table.add_row(place_text(place), "?", "server", "?", "?", "CANNOT ASK")
    if table.row_count:
        console.print(table, markup=False)
    for line in (*outlook.warnings(), *outlook.notes()):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in foresight.assumptions(config):
        console.print(f"assumed: {line}", markup=False, highlight=False, soft_wrap=True)
    return outlook.exit_code
