"""`pgshoal bench plan`: throughput on a larger machine, from CPU time per transaction and a scaling law."""

from __future__ import annotations

from pathlib import Path


def main(cores: int, pg_cores: int, folder: Path | None) -> int:
    """Prints the projection and how the same method does on the published tables; returns the exit status."""
    raise NotImplementedError(cores, pg_cores, folder)
