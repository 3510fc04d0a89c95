"""Inks follow kind, processes and paper; labels keep apart; charts are files and pieces of a page."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from pgshoal.bench.model import Chart
from pgshoal.bench.results import paint
from pgshoal.bench.results.chapters import Run
from tests.bench.results.drawing import cells, drawn
from tests.bench.results.planted import DIRECT, PGBOUNCER, PGSHOAL, cell, run_of


def test_targets_that_variants_tell_apart_look_alike() -> None:
    """One colour and one dash, as their panels have headings; the colour is known by both names."""
    shared = cell(run_of("x", PGSHOAL, exports="shared"))
    apart = cell(run_of("x", replace(PGSHOAL, options=(("isolated", "on"),)), exports="isolated"))
    found = paint.colours([shared, apart])
    assert found["pgshoal"] == found["pgshoal isolated=on"]
    assert paint.dash(apart, [shared, apart]) == paint.dash(shared, [shared, apart]) == "-"


def test_kinds_have_hues_and_processes_have_shades() -> None:
    """Direct is grey, PgBouncer orange, pgshoal blue; more processes are stronger."""
    groups = [cell(run_of("x", replace(target, processes=n))) for target in (PGBOUNCER, PGSHOAL) for n in (8, 1, 2)]
    groups.append(cell(run_of("x", DIRECT)))
    found = paint.colours(groups)
    names = {colour: name for name, (colour, _) in paint.INKS.items()}
    assert [names[found[f"pgshoal{x}"]] for x in ("", " x2", " x8")] == ["pgshoal-0", "pgshoal-2", "pgshoal-4"]
    assert names[found["pgbouncer x8"]] == "pgbouncer-4"
    assert names[found["direct"]] == "direct-1"


def test_labels_keep_their_distance() -> None:
    """Names at the ends of lines do not overlap, keep their order and stay inside."""
    found = paint.spread([0.5, 0.5, 0.51, 0.99, 1.2], 0.1)
    assert found == sorted(found)
    assert min(b - a for a, b in itertools.pairwise(found)) >= 0.1 - 1e-9
    assert found[-1] == 1
    assert paint.spread([0.1, 0.9], 0.1) == [0.1, 0.9]


def test_a_chart_in_the_page_takes_its_inks_from_the_page(run: Run, tmp_path: Path) -> None:
    """No colour of the palette is fixed, no size, no id that another chart could have; the files are whole pictures."""
    svg = paint.save(drawn(Chart("bars", "Units", "units_per_s"), cells(run, "connect")), tmp_path, "units")
    tree = ElementTree.fromstring(svg)
    assert "width" not in tree.attrib
    assert "viewBox" in tree.attrib
    assert "var(--pgshoal-2)" in svg
    assert not any(colour in svg for colour, _ in paint.INKS.values())
    assert not re.search(r'<g id="', svg)
    assert (tmp_path / "units.png").read_bytes().startswith(b"\x89PNG")
    assert "#2b7cc4" in (tmp_path / "units.svg").read_text()


def test_inks_are_told_apart() -> None:
    """Charts in pages are recoloured by colour: no two inks may share one on light paper."""
    assert len({paper for paper, _ in paint.INKS.values()}) == len(paint.INKS)
