"""`report.html` and all other files of a folder, from its rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write(folder: Path) -> Path:
    """Makes summary.md, summary.txt, the CSV files, charts/ and report.html; the path of the report."""
    raise NotImplementedError(folder)


def main(dirs: Sequence[Path]) -> int:
    """`pgshoal bench report`: redraws each folder, compares them when there are several; the exit status."""
    raise NotImplementedError(dirs)
