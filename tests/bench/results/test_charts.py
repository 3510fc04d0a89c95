"""Every kind of chart can be declared, and draws nothing from nothing."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from pgshoal.bench.model import Chart
from pgshoal.bench.results import paint
from pgshoal.bench.results.charts import KINDS, draw
from tests.bench.results.planted import PGSHOAL, cell, run_of


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_drawn_from_nothing(kind: str) -> None:
    """Rows without what a chart shows make no empty chart."""
    group = cell(run_of("x", PGSHOAL))
    assert draw(Chart(kind, "Title", "tps"), [group], paint.colours([group])) is None  # type: ignore[arg-type]


def test_every_kind_can_be_drawn() -> None:
    """What a declaration may name is in the table, and nothing else."""
    assert set(KINDS) == set(get_args(get_type_hints(Chart)["kind"]))
