"""Rows and cells as a run would leave them, with the figures that a test wants."""

from __future__ import annotations

from dataclasses import dataclass

from pgshoal.bench.model import Cell, Kind, Outcome, Row, Scene, Target


@dataclass(frozen=True)
class Silent:
    """A load that is never run."""

    generators: int = 2

    def run(self, scene: Scene) -> Outcome:
        """Not here."""
        raise NotImplementedError


CELL = Cell("planted", Target("pgshoal", processes=2), Silent(), budget=20)


def row(
    repeat: int = 0,
    *,
    kind: Kind = "pgshoal",
    key: str = CELL.key,
    error: str = "",
    invalid: tuple[str, ...] = (),
    **figures: float,
) -> Row:
    """A row of that cell."""
    return Row(
        "planted", key, CELL.target.label, kind, 2, {}, repeat, repeat, "", figures, error=error, invalid=invalid
    )


def runs(*rates: float) -> list[Row]:
    """One row for each rate, as repeats of one cell."""
    return [row(number, tps=rate) for number, rate in enumerate(rates)]
