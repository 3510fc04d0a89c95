"""`pgshoal advise`: how many workers, where the bottleneck is, what one more worker would bring."""

from __future__ import annotations

from pathlib import Path


def main(source: Path, seconds: float) -> int:
    """Prints advice for a bench folder, or for the fleet that runs from a file; returns the exit status."""
    raise NotImplementedError(source, seconds)
